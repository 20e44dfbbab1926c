"""The options of the readers, each checked without the dataset."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from readers.batches.batch_format import BATCH_MASK, BatchFormat, check_one_of, is_number, plain
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import Map, check_decoders
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.cache import Cache
from readers.shards.plan import ColumnNames
from readers.shards.resolve import name_list

OrderName = Literal["interleave", "global"]

OnCorrupt = Literal["raise", "skip"]

# Options that may hold NumPy numbers.
_NUMBERS = ["batch_size", "repeat", "seed", "shard", "state"]


@dataclass(frozen=True)
class Order:
    """The order of the records: `shuffle=readers.Order(by="interleave", buffer=10_000)`.

    Attributes:
        shuffle: Whether each epoch has a random order, which depends only on the seed and the epoch.
        by: `global` shuffles all records uniformly. `interleave` reads shards from front to back, 16
            at a time, and shuffles within windows. None means `global` for shards on local disks or
            in the cache and for mixtures, otherwise `interleave`.
        buffer: The number of records in each window of `interleave`. None means 32 MiB of records, or
            1,024 records if they fit into 128 MiB. Up to three windows are in memory.
        each_pass: Whether each new pass, such as a second `for` loop or the next epoch of Keras,
            reads the next epochs. False makes every pass read the same epochs.

    Raises:
        ValueError: A value is not allowed, or `buffer` is given without `by="interleave"`.

    Example:
        >>> in_windows = readers.Order(by="interleave", buffer=10_000)
        >>> batches = readers.as_numpy("shards/images", 32, split="train", shuffle=in_windows)
    """

    shuffle: bool = True
    by: OrderName | None = None
    buffer: int | None = None
    each_pass: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffer", plain(self.buffer))
        for name in ("shuffle", "each_pass"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"Order({name}={getattr(self, name)!r}): expected True or False")
        if self.by not in (None, *get_args(OrderName)):
            names = ", ".join(get_args(OrderName))
            raise ValueError(f"Order(by={self.by!r}): expected one of {names}, or None")
        if self.buffer is None:
            return
        if not is_number(self.buffer, 1):
            raise ValueError(f"Order(buffer={self.buffer!r}): expected a number of at least 1")
        if self.by != "interleave" or not self.shuffle:
            raise ValueError(
                f"Order(buffer={self.buffer}): only a shuffle by interleave has a buffer, "
                f"readers.Order(by='interleave', buffer={self.buffer}); any other shuffles all records"
            )

    @classmethod
    def of(cls, shuffle: object) -> Order:
        """Converts a reader's argument `shuffle` to an order; raises ValueError for any other value."""
        shuffle = plain(shuffle)
        if isinstance(shuffle, Order):
            return shuffle
        if isinstance(shuffle, bool):
            return cls(shuffle)
        if isinstance(shuffle, int):
            buffer = shuffle if shuffle > 1 else 10_000
            raise ValueError(
                f"shuffle={shuffle}: expected True or False; shuffle=True shuffles all records and needs no buffer. To "
                f"read shards from front to back, use shuffle=readers.Order(by='interleave', buffer={buffer})"
            )
        raise ValueError(f"shuffle={shuffle!r}: expected True, False or readers.Order(...)")


@dataclass(frozen=True)
class ReadOptions:
    """How records become batches: the arguments of `readers.load`, documented there.

    `state` may be a number of steps. `keys` is whether each batch comes with a pseudo-random number for each record.

    Raises:
        ValueError: An argument is not valid; the message names it.
    """

    batch_size: int | Sequence[int]
    format: BatchFormat
    order: Order = field(default_factory=lambda: Order(shuffle=False))
    seed: int | None = 0
    repeat: int | None = 1
    as_supervised: Sequence[str] | None = None
    remainder: Remainder = "short"
    shard: tuple[int, int] = (0, 1)
    state: State | int | None = None
    on_corrupt: OnCorrupt = "raise"
    keys: bool = False
    cache: Cache | None = None
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    map: Map | None = None

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            self._set(name, plain(getattr(self, name)))
        self._check_batch_size()
        check_decoders(self.decoders)
        if self.repeat is True:
            self._set("repeat", None)
        if self.repeat is not None and not is_number(self.repeat, 1):
            raise ValueError(
                f"repeat={self.repeat!r}: expected a number of epochs, or None to repeat forever"
            )
        check_one_of("on_corrupt", self.on_corrupt, OnCorrupt)
        check_one_of("remainder", self.remainder, Remainder)
        self._check_shard()
        if isinstance(self.state, (str, bytes)):
            self._set("state", State.from_json(self.state))
        self._check_seed()
        self._check_state()
        if self.as_supervised is not None:
            self._set("as_supervised", tuple(name_list("as_supervised", self.as_supervised)))

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def _check_batch_size(self) -> None:
        buckets, sizes = len(self.format.boundaries or []) + 1, self.batch_size
        each = sizes if buckets > 1 and isinstance(sizes, (list, tuple)) else [sizes] * buckets
        if len(each) != buckets or not all(is_number(size, 1) for size in each):
            more = f", or one for each of the {buckets} buckets" if buckets > 1 else ""
            raise ValueError(f"batch_size={sizes!r}: expected a number of at least 1{more}")

    def _check_seed(self) -> None:
        if self.seed is not None:
            if not is_number(self.seed, 0, 2**63 - 1):
                raise ValueError(
                    f"seed={self.seed!r}: expected a number from 0 to 2**63 - 1, or None"
                )
        elif isinstance(self.state, State):
            self._set("seed", self.state.seed)
        elif self.shard[1] > 1:
            raise ValueError(
                f"seed=None with shard={self.shard}: each host would draw a different seed, and the "
                "hosts would read some records twice and others never; give all hosts the same number, such as seed=0"
            )
        else:
            self._set("seed", int.from_bytes(os.urandom(4), "little"))

    def _check_shard(self) -> None:
        if (
            not isinstance(self.shard, (tuple, list))
            or len(self.shard) != 2
            or not is_number(self.shard[1], 1)
            or not is_number(self.shard[0], 0, self.shard[1] - 1)
        ):
            raise ValueError(
                f"shard={self.shard!r}: expected (index, count) of this host, such as (0, 4), or 'auto'"
            )

    def _check_state(self) -> None:
        state = self.state
        if isinstance(state, State):
            if self.order.shuffle and self.seed != state.seed:
                raise ValueError(f"the state is from a run with seed={state.seed}, not {self.seed}")
        elif state is not None and not is_number(state, 0):
            raise ValueError(
                f"state={state!r}: expected a readers.State, its JSON, or a number of steps"
            )

    @property
    def by_length(self) -> bool:
        """Whether the lengths of the records determine which of them share a batch."""
        return self.format.buckets is not None or self.format.batching == "packed"

    @property
    def part_of_host(self) -> int | None:
        """The number of the part that only this host reads; None if the hosts share each batch."""
        alone = self.order.by == "interleave" and self.shard[1] > 1 and not self.by_length
        return self.shard[0] if alone else None

    @property
    def pads(self) -> bool:
        """Whether batches are padded to their full size, and have a mask of their rows."""
        return self.remainder == "pad"

    @property
    def rows(self) -> int | None:
        """The number of rows in every batch; None if batches differ in size."""
        are_full = self.remainder != "short"
        return self.batch_size if are_full and isinstance(self.batch_size, int) else None

    def features_to_read(self, columns: ColumnNames | None) -> ColumnNames | None:
        """The features to decode: `columns`, or those that `as_supervised` needs; None for all."""
        if columns is not None or self.as_supervised is None or self.map is not None:
            return columns
        names = [name for name in self.as_supervised if name not in self.added_names]
        names = [*map(self.format.feature_of, names)]
        for name, decoder in self.decoders.items():
            if {name, *decoder.moved} & {*names}:
                names += [name, *decoder.moved]
        return list(dict.fromkeys(names))

    @property
    def added_names(self) -> list[str]:
        """The names in a batch that belong to no feature."""
        return [BATCH_MASK] if self.pads else []
