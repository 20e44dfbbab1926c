"""How to read: the arguments that `load` and `as_numpy` share, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from readers.dataset import name_list
from readers.format.schema import Schema, format_shape
from readers.schedule import State

BATCHINGS = ("dense", "padded", "ragged")
ORDERS = ("interleave", "global")
ON_CORRUPT = ("raise", "skip")
MASK_SUFFIX = "_mask"


@dataclass(frozen=True)
class BatchOptions:
    """How records become batches.

    Attributes:
        batch_size: Records of a batch; the last one of an epoch may have fewer.
        batching: What becomes of features of unknown shape: one of `BATCHINGS`.
        mask: Whether `padded` adds `<name>_mask`.
        shuffle: Whether the order is random, another one in each epoch.
        seed: What the order depends on; None for one that nobody knows beforehand.
        repeat: Epochs; None or True for no end.
        as_supervised: Names of the features (or masks) of the tuple that replaces the dict.
        drop_remainder: Whether an epoch's last batch is left out if it has fewer records.
        order: How records are found: one of `ORDERS`; None for what suits the dataset's place.
        window: Records that are shuffled at a time where shards are interleaved; None for as many
            as fit `WINDOW_BYTES`.
        shard: (index, count) of this host.
        start_step: Steps that are done already.
        state: Where to go on; None for the beginning.
        on_corrupt: What becomes of a record whose checksum fails: one of `ON_CORRUPT`.

    Raises:
        ValueError: A value is none of those; the message names the argument.
    """

    batch_size: int
    batching: str = "dense"
    mask: bool = False
    shuffle: bool = False
    seed: int | None = 0
    repeat: int | None = 1
    as_supervised: Sequence[str] | None = None
    drop_remainder: bool = False
    order: str | None = None
    window: int | None = None
    shard: tuple[int, int] = (0, 1)
    start_step: int = 0
    state: State | None = None
    on_corrupt: str = "raise"

    def __post_init__(self) -> None:
        if not _is_count(self.batch_size):
            raise ValueError(f"batch_size={self.batch_size!r}: expected a number of at least 1")
        if self.batching not in BATCHINGS:
            raise ValueError(f"batching={self.batching!r}: one of {', '.join(BATCHINGS)}")
        if self.mask and self.batching != "padded":
            raise ValueError(f"mask=True needs batching='padded', not {self.batching!r}")
        if self.repeat is True:
            object.__setattr__(self, "repeat", None)
        if self.repeat is not None and not _is_count(self.repeat):
            raise ValueError(
                f"repeat={self.repeat!r}: expected a number of epochs, or None for no end"
            )
        if self.seed is None:
            drawn = int.from_bytes(os.urandom(4), "little")
            object.__setattr__(self, "seed", self.state.seed if self.state else drawn)
        elif not _is_number(self.seed, 0, 2**63 - 1):
            raise ValueError(f"seed={self.seed!r}: expected a number from 0 to 2**63 - 1, or None")
        if self.on_corrupt not in ON_CORRUPT:
            raise ValueError(f"on_corrupt={self.on_corrupt!r}: one of {', '.join(ON_CORRUPT)}")
        self._check_place()
        if self.as_supervised is not None:
            names = tuple(name_list("as_supervised", self.as_supervised))
            object.__setattr__(self, "as_supervised", names)

    def _check_place(self) -> None:
        if self.order is not None and self.order not in ORDERS:
            raise ValueError(f"order={self.order!r}: one of {', '.join(ORDERS)}, or None")
        if self.window is not None and not _is_count(self.window):
            raise ValueError(f"shuffle_buffer={self.window!r}: expected a number of at least 1")
        if (
            not isinstance(self.shard, (tuple, list))
            or len(self.shard) != 2
            or not _is_count(self.shard[1])
            or not _is_number(self.shard[0], 0, self.shard[1] - 1)
        ):
            raise ValueError(
                f"shard={self.shard!r}: expected (index, count) of this host, such as (0, 4)"
            )
        if not _is_number(self.start_step, 0):
            raise ValueError(f"start_step={self.start_step!r}: expected a number of at least 0")
        if self.state is None:
            return
        if self.start_step:
            raise ValueError("start_step and state both say where to begin: give one of them")
        if self.shuffle and self.seed != self.state.seed:
            raise ValueError(
                f"the state is from a run with seed={self.state.seed}, not {self.seed}"
            )

    def columns(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """The features to decode: those asked for, or those of `as_supervised` alone."""
        if columns is not None or self.as_supervised is None:
            return columns
        return [self._feature(name) for name in self.as_supervised]

    def check(self, schema: Schema) -> None:
        """Holds the options against the features that will be batched.

        Raises:
            ValueError: `dense` with a feature of unknown shape, `as_supervised` with a name that
                no batch has, or a mask with the name of a feature.
        """
        varying = [name for name, feature in schema.items() if not feature.is_fixed]
        if self.batching == "dense" and varying:
            name = varying[0]
            raise ValueError(
                f"feature {name!r} has the shape {format_shape(schema[name].shape)}, which differs "
                "between records, so it cannot be stacked: use batching='padded' or 'ragged', or "
                "leave it out with columns="
            )
        masks = [name + MASK_SUFFIX for name in varying] if self.mask else []
        taken = [name for name in masks if name in schema]
        if taken:
            raise ValueError(f"mask=True would replace the feature {taken[0]!r}")
        unknown = [n for n in self.as_supervised or () if n not in schema and n not in masks]
        if unknown:
            raise ValueError(
                f"as_supervised names {unknown[0]!r}: a batch has {', '.join([*schema, *masks])}"
            )

    def _feature(self, name: str) -> str:
        return name[: -len(MASK_SUFFIX)] if self.mask and name.endswith(MASK_SUFFIX) else name


def _is_count(value: object) -> bool:
    return _is_number(value, 1)


def _is_number(value: object, least: int, most: int | None = None) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)
