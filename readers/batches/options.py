"""The options of `readers.load` and `readers.as_numpy`, checked by themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from readers.batches.batch_format import BATCH_MASK, BatchFormat, is_number, plain
from readers.decoders.decoder import Decoder
from readers.decoders.record_work import RecordFunction
from readers.format.schema import Feature
from readers.order.schedule import Remainder
from readers.order.state import State
from readers.shards.cache import ShardCache
from readers.shards.resolve import name_list

OrderName = Literal["interleave", "global"]

OnCorrupt = Literal["raise", "skip"]

ORDERS: tuple[str, ...] = get_args(OrderName)

ON_CORRUPT: tuple[str, ...] = get_args(OnCorrupt)

# The options that hold numbers, which may be NumPy's.
_NUMBERS = [
    "batch_size",
    "bucket_boundaries",
    "weights",
    "repeat",
    "seed",
    "window",
    "shard",
    "start_step",
]

REMAINDERS: tuple[str, ...] = get_args(Remainder)


def remainder_of(remainder: Remainder | None, drop_remainder: bool) -> Remainder:
    """What two arguments of `readers.load` say about the last step of an epoch.

    Raises:
        ValueError: There is no such remainder, or the two contradict each other.
    """
    if remainder is None:
        return "drop" if drop_remainder else "short"
    if remainder not in REMAINDERS:
        raise ValueError(
            f"remainder={remainder!r}: expected one of {', '.join(REMAINDERS)}, or None"
        )
    if drop_remainder and remainder != "drop":
        raise ValueError(
            f"drop_remainder=True means remainder='drop', not {remainder!r}: give only one of them"
        )
    return remainder


@dataclass(frozen=True)
class ReadOptions:
    """How records become batches.

    Attributes without a description here are arguments of `readers.load`, which describes them.

    Attributes:
        remainder: The argument, or `drop` for `drop_remainder=True`: see `remainder_of`.
        format: How features of unknown shape are batched.
        order: The order asked for; `global` if weights require it.
        window: The argument `shuffle_buffer`; None for `default_window`.
        keys: Whether each batch comes with a pseudo-random number for each of its records.
        next_epochs: Whether each pass over a dataset reads other epochs than the pass before.
        cache: Where to keep shards of a remote dataset; None to read them in place.
        truncates: Whether `max_length` truncates records where they are read; otherwise it limits only
            the lengths that decide on their bucket, and what maps records truncates them afterwards.

    Raises:
        ValueError: A value is not allowed; the message names the argument.
    """

    batch_size: int | Sequence[int]
    format: BatchFormat
    bucket_boundaries: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    weights: Sequence[float] | None = None
    shuffle: bool = False
    seed: int | None = 0
    repeat: int | None = 1
    as_supervised: Sequence[str] | None = None
    remainder: Remainder = "short"
    order: OrderName | None = None
    window: int | None = None
    shard: tuple[int, int] = (0, 1)
    start_step: int = 0
    state: State | None = None
    on_corrupt: OnCorrupt = "raise"
    keys: bool = False
    next_epochs: bool = True
    cache: ShardCache | None = None
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    map: RecordFunction | None = None
    map_schema: Mapping[str, Feature | tuple[Any, ...]] | None = None
    truncates: bool = True

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            self._set(name, plain(getattr(self, name)))
        self._check_batch_size()
        if not isinstance(self.decoders, Mapping) or not all(
            isinstance(decoder, Decoder) for decoder in self.decoders.values()
        ):
            raise ValueError(
                f"decoders={self.decoders!r}: expected decoders by feature name, such as "
                '{"image": readers.decoders.Resize(224)}'
            )
        if self.map is not None and not callable(self.map):
            raise ValueError(f"map={self.map!r}: expected a function of (record, key)")
        if self.repeat is True:
            self._set("repeat", None)
        if self.repeat is not None and not is_number(self.repeat, 1):
            raise ValueError(
                f"repeat={self.repeat!r}: expected a number of epochs, or None for no end"
            )
        if self.on_corrupt not in ON_CORRUPT:
            raise ValueError(
                f"on_corrupt={self.on_corrupt!r}: expected one of {', '.join(ON_CORRUPT)}"
            )
        if self.weights is not None:
            self._check_weights(self.weights)
        self._check_order()
        self._check_shard()
        self._check_seed()
        self._check_start()
        if self.as_supervised is not None:
            self._set("as_supervised", tuple(name_list("as_supervised", self.as_supervised)))

    def _set(self, attribute: str, value: Any) -> None:
        object.__setattr__(self, attribute, value)

    def _check_batch_size(self) -> None:
        boundaries, sizes = self.boundaries, self.batch_size
        if boundaries is None:
            if not is_number(sizes, 1):
                raise ValueError(f"batch_size={sizes!r}: expected a number of at least 1")
            return
        if self.format.batching not in ("padded", "ragged"):
            raise ValueError(
                "bucket_boundaries needs batching='padded' or 'ragged', not "
                f"{self.format.batching!r}"
            )
        if (
            not isinstance(boundaries, (list, tuple))
            or not boundaries
            or not all(is_number(boundary, 1) for boundary in boundaries)
            or list(boundaries) != sorted(set(boundaries))
        ):
            raise ValueError(
                f"bucket_boundaries={self.bucket_boundaries!r}: expected increasing numbers of "
                "at least 1 without fractions, or a dict of one feature's name and such numbers"
            )
        buckets = len(boundaries) + 1
        each = sizes if isinstance(sizes, (list, tuple)) else [sizes] * buckets
        if len(each) != buckets or not all(is_number(size, 1) for size in each):
            raise ValueError(
                f"batch_size={sizes!r}: expected a number of at least 1, or one for each of the "
                f"{buckets} buckets"
            )

    def _check_weights(self, weights: Sequence[float]) -> None:
        are_numbers = isinstance(weights, (list, tuple)) and all(
            type(weight) in (int, float) and 0 < weight < float("inf") for weight in weights
        )
        if not are_numbers or not weights:
            raise ValueError(
                f"weights={weights!r}: expected a number above 0 for each dataset, as in [3, 1]"
            )
        if self.order == "interleave":
            raise ValueError("weights find records by their index: they need order='global'")

    def _check_order(self) -> None:
        if self.order is not None and self.order not in ORDERS:
            raise ValueError(f"order={self.order!r}: expected one of {', '.join(ORDERS)}, or None")
        if self.order is None and self.weights is not None:
            self._set("order", "global")
        if self.window is not None and not is_number(self.window, 1):
            raise ValueError(f"shuffle_buffer={self.window!r}: expected a number of at least 1")

    def _check_seed(self) -> None:
        if self.seed is not None:
            if not is_number(self.seed, 0, 2**63 - 1):
                raise ValueError(
                    f"seed={self.seed!r}: expected a number from 0 to 2**63 - 1, or None"
                )
        elif self.state:
            self._set("seed", self.state.seed)
        elif self.shard[1] > 1:
            raise ValueError(
                f"seed=None with shard={self.shard}: each host would draw a seed of its own, and "
                "the hosts would read some records twice and others never; give all of them one "
                "number, as in seed=0"
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

    def _check_start(self) -> None:
        if not is_number(self.start_step, 0):
            raise ValueError(f"start_step={self.start_step!r}: expected a number of at least 0")
        if self.state is None:
            return
        if self.start_step:
            raise ValueError("start_step and state both set where to begin: give only one of them")
        if self.shuffle and self.seed != self.state.seed:
            raise ValueError(
                f"the state is from a run with seed={self.state.seed}, not {self.seed}"
            )

    @property
    def boundaries(self) -> Sequence[int] | None:
        """The lengths at which a new bucket starts; None without buckets."""
        given = self.bucket_boundaries
        if isinstance(given, Mapping):
            given = next(iter(given.values())) if len(given) == 1 else ()
        if not isinstance(given, (list, tuple)):
            return given
        # Quantiles are floats even where they are whole numbers.
        return [int(b) if isinstance(b, float) and b.is_integer() else b for b in given]

    @property
    def by_length(self) -> bool:
        """Whether the lengths of the records decide which of them share a batch."""
        return self.bucket_boundaries is not None or self.format.batching == "packed"

    @property
    def by_index(self) -> bool:
        """Whether the records must be found by their index."""
        return self.order == "global" or self.by_length or self.on_corrupt == "skip"

    @property
    def part_of_host(self) -> int | None:
        """The number of the part that this host reads alone; None if the hosts share each batch."""
        alone = self.order == "interleave" and self.shard[1] > 1 and not self.by_length
        return self.shard[0] if alone else None

    @property
    def pads(self) -> bool:
        """Whether batches are padded to their full size, and have a mask of their rows."""
        return self.remainder == "pad"

    @property
    def rows(self) -> int | None:
        """The number of rows in every batch; None if some have fewer, or sizes of their own."""
        are_full = self.remainder != "short"
        return self.batch_size if are_full and isinstance(self.batch_size, int) else None

    def features_to_read(self, columns: Sequence[str] | None) -> Sequence[str] | None:
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

    def bucket_feature(self, schema: Mapping[str, Feature]) -> str:
        """The feature whose first unknown dimension decides on the bucket."""
        candidates = [name for name, feature in schema.items() if feature.has_length]
        if isinstance(self.bucket_boundaries, Mapping):
            (name,) = self.bucket_boundaries
            if name not in candidates:
                raise ValueError(
                    f"bucket_boundaries names {name!r}: the features with a length are "
                    f"{', '.join(candidates) or 'none'}"
                )
            return name
        if len(candidates) != 1:
            cure = f": name one, as in {{{candidates[0]!r}: [...]}}" if candidates else ""
            raise ValueError(
                f"bucket_boundaries={self.bucket_boundaries!r}: {len(candidates)} features have a "
                f"length{cure}"
            )
        return candidates[0]
