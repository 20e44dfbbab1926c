"""How to read: the arguments that `load` and `as_numpy` share, checked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from readers.dataset import name_list
from readers.format.schema import Schema, format_shape

BATCHINGS = ("dense", "padded", "ragged")
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
            object.__setattr__(self, "seed", int.from_bytes(os.urandom(4), "little"))
        elif not _is_count(self.seed + 1 if isinstance(self.seed, int) else self.seed):
            raise ValueError(f"seed={self.seed!r}: expected a number of at least 0, or None")
        if self.as_supervised is not None:
            names = tuple(name_list("as_supervised", self.as_supervised))
            object.__setattr__(self, "as_supervised", names)

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
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
