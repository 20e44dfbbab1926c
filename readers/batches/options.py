"""What becomes of features of unknown shape in a batch: the arguments about it, checked once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.schema import Feature, Schema, format_shape, numpy_dtype
from readers.order.state import State
from readers.shards.cache import ShardCache
from readers.shards.resolve import name_list

BATCHINGS = ("dense", "padded", "ragged", "packed")

# What is added to the name of a feature for what stands beside it in a batch.
MASK, LENGTH = "_mask", "_length"

SEGMENT_IDS, POSITIONS = "_segment_ids", "_positions"


@dataclass(frozen=True)
class Form:
    """The form of a batch.

    Attributes:
        batching: One of `BATCHINGS`.
        mask: Whether `padded` adds `<name>_mask`.
        lengths: Whether `padded` adds `<name>_length`.
        padding_values: What `padded` and `packed` fill up with, for all features or by name; None
            means 0 and b"".
        max_length: What the first unknown dimension is cut to, for all features or by name; of
            `packed`, the length of its rows.

    Raises:
        ValueError: A value is none of those, or does not go with the batching.
    """

    batching: str = "dense"
    mask: bool = False
    lengths: bool = False
    padding_values: Any = None
    max_length: int | Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.batching not in BATCHINGS:
            raise ValueError(f"batching={self.batching!r}: one of {', '.join(BATCHINGS)}")
        for argument, given, fitting in (
            ("mask=True", self.mask, ("padded",)),
            ("lengths=True", self.lengths, ("padded",)),
            ("padding_values", self.padding_values is not None, ("padded", "packed")),
            ("max_length", self.max_length is not None, ("padded", "ragged", "packed")),
        ):
            if given and self.batching not in fitting:
                names = " or ".join(map(repr, fitting))
                raise ValueError(f"{argument} needs batching={names}, not {self.batching!r}")
        limits = self.max_length
        for limit in limits.values() if isinstance(limits, Mapping) else [limits]:
            if limit is not None and not is_number(limit, 1):
                raise ValueError(f"max_length={limits!r}: expected numbers of at least 1")

    def limit(self, name: str) -> int | None:
        """What the first unknown dimension of a feature is cut to; None for no limit."""
        if isinstance(self.max_length, Mapping):
            return self.max_length.get(name)
        return self.max_length

    def filler(self, name: str, feature: Feature) -> Any:
        """What a feature is filled up with: bytes, or a NumPy scalar of its dtype."""
        value = self.padding_values
        if isinstance(value, Mapping):
            value = value.get(name)
        elif feature.dtype == "string" and not isinstance(value, (str, bytes)):
            value = None  # One number for all features is meant for those of numbers.
        if feature.dtype == "string":
            return value.encode() if isinstance(value, str) else value or b""
        return numpy_dtype(feature.dtype).type(value or 0)

    def feature_of(self, name: str) -> str:
        """The feature that something in a batch is, or stands beside."""
        for suffix in self._suffixes:
            if name.endswith(suffix):
                return name[: -len(suffix)]
        return name

    def names(self, schema: Schema) -> list[str]:
        """What a batch has: the features, and what stands beside those of unknown shape."""
        varying = [name for name, feature in schema.items() if not feature.is_fixed]
        return [*schema, *(name + suffix for name in varying for suffix in self._suffixes)]

    @property
    def _suffixes(self) -> tuple[str, ...]:
        if self.batching == "packed":
            return SEGMENT_IDS, POSITIONS
        return (MASK,) * self.mask + (LENGTH,) * self.lengths

    def check(self, schema: Schema) -> None:
        """Holds the form against the features.

        Raises:
            ValueError: A feature cannot be batched so, an argument names one that there is not or
                that needs none, or what stands beside a feature has the name of another.
        """
        varying = {name: feature for name, feature in schema.items() if not feature.is_fixed}
        if self.batching == "dense" and varying:
            name, feature = next(iter(varying.items()))
            raise ValueError(
                f"feature {name!r} has the shape {format_shape(feature.shape)}, which differs "
                "between records, so it cannot be stacked: use batching='padded' or 'ragged', or "
                "leave it out with columns="
            )
        for argument, by_name in (
            ("padding_values", self.padding_values),
            ("max_length", self.max_length),
        ):
            for name in by_name if isinstance(by_name, Mapping) else ():
                if name not in varying:
                    raise ValueError(
                        f"{argument} names {name!r}: the features of unknown shape are "
                        f"{', '.join(varying) or 'none'}"
                    )
        for name, feature in varying.items():
            self._check_filler(name, feature)
            if self.lengths and not feature.has_length:
                raise ValueError(
                    f"lengths=True: the arrays of {name!r} have a length each, not the record; "
                    "use mask=True"
                )
        taken = [name for name in self.names(schema)[len(schema) :] if name in schema]
        if taken:
            raise ValueError(
                f"what is added to a batch would replace the feature {taken[0]!r}; "
                "leave it out with columns="
            )
        if self.batching == "packed":
            self._check_packed(schema)

    def _check_filler(self, name: str, feature: Feature) -> None:
        value = self.padding_values
        if isinstance(value, Mapping):
            value = value.get(name)
            if value is not None and isinstance(value, (str, bytes)) != (feature.dtype == "string"):
                raise ValueError(f"padding_values: {value!r} does not fit {name!r}, {feature}")
        if value is None or feature.dtype == "string" or isinstance(value, (str, bytes)):
            return
        try:
            with np.errstate(all="ignore"):
                held = self.filler(name, feature)
            fits = bool(held == value) or (held != held and value != value)
        except (TypeError, ValueError, OverflowError):
            fits = False
        floating = not np.issubdtype(numpy_dtype(feature.dtype), np.integer)
        if not (fits or (floating and isinstance(value, float))):
            raise ValueError(f"padding_values: {value!r} does not fit {name!r}, {feature}")

    def _check_packed(self, schema: Schema) -> None:
        for name, feature in schema.items():
            if feature.is_sequence or feature.shape[:1] != (None,):
                problem = "has no unknown first dimension"
            elif None in feature.shape[1:]:
                problem = "has another unknown dimension than the first"
            elif self.limit(name) is None:
                problem = "has no max_length, the length of a row"
            else:
                continue
            raise ValueError(
                f"batching='packed': {name!r}, {feature}, {problem}; leave it out with columns="
            )


def is_number(value: object, least: int, most: int | None = None) -> bool:
    """Whether a value is an integer, no bool, within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)


ORDERS = ("interleave", "global")

ON_CORRUPT = ("raise", "skip")


@dataclass(frozen=True)
class ReadOptions:
    """How records become batches.

    Attributes:
        batch_size: Records of a batch, or rows of a packed one; the last one of an epoch may have
            fewer. With buckets, one for all of them or for each.
        form: What becomes of features of unknown shape.
        bucket_boundaries: Lengths at which the next bucket begins, rising; by the name of a
            feature where several have a length.
        weights: Of the datasets that are mixed; None for a single one.
        shuffle: Whether the order is random, another one in each epoch.
        seed: What the order depends on; None for one that nobody knows beforehand.
        repeat: Epochs; None or True for no end.
        as_supervised: Names of the features (or masks) of the tuple that replaces the dict.
        drop_remainder: Whether an epoch's last batch is left out if it has fewer records.
        order: How records are found: one of `ORDERS`; None for what suits the dataset's place.
        window: Records that are shuffled at a time where shards are interleaved; None for as many
            as `window_of` says.
        shard: (index, count) of this host.
        start_step: Steps that are done already.
        state: Where to go on; None for the beginning.
        on_corrupt: What becomes of a record whose checksum fails: one of `ON_CORRUPT`.
        keys: Whether each batch comes with a pseudo-random number for each of its records.
        cache: Where shards of a store are kept; None to read them where they are.

    Raises:
        ValueError: A value is none of those; the message names the argument.
    """

    batch_size: int | Sequence[int]
    form: Form
    bucket_boundaries: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    weights: Sequence[float] | None = None
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
    keys: bool = False
    cache: ShardCache | None = None

    def __post_init__(self) -> None:
        self._check_sizes()
        if self.repeat is True:
            object.__setattr__(self, "repeat", None)
        if self.repeat is not None and not is_number(self.repeat, 1):
            raise ValueError(
                f"repeat={self.repeat!r}: expected a number of epochs, or None for no end"
            )
        if self.seed is None:
            drawn = int.from_bytes(os.urandom(4), "little")
            object.__setattr__(self, "seed", self.state.seed if self.state else drawn)
        elif not is_number(self.seed, 0, 2**63 - 1):
            raise ValueError(f"seed={self.seed!r}: expected a number from 0 to 2**63 - 1, or None")
        if self.on_corrupt not in ON_CORRUPT:
            raise ValueError(f"on_corrupt={self.on_corrupt!r}: one of {', '.join(ON_CORRUPT)}")
        self._check_place()
        if self.as_supervised is not None:
            names = tuple(name_list("as_supervised", self.as_supervised))
            object.__setattr__(self, "as_supervised", names)

    def _check_sizes(self) -> None:
        boundaries, sizes = self.boundaries, self.batch_size
        if boundaries is None:
            if not is_number(sizes, 1):
                raise ValueError(f"batch_size={sizes!r}: expected a number of at least 1")
            return
        if self.form.batching not in ("padded", "ragged"):
            raise ValueError(
                f"bucket_boundaries needs batching='padded' or 'ragged', not {self.form.batching!r}"
            )
        several = isinstance(boundaries, (list, tuple)) and len(boundaries) > 0
        if (
            not several
            or not all(is_number(boundary, 1) for boundary in boundaries)
            or list(boundaries) != sorted(set(boundaries))
        ):
            raise ValueError(
                f"bucket_boundaries={self.bucket_boundaries!r}: expected rising numbers, or one "
                "feature's by its name"
            )
        buckets = len(boundaries) + 1
        each = sizes if isinstance(sizes, (list, tuple)) else [sizes] * buckets
        if len(each) != buckets or not all(is_number(size, 1) for size in each):
            raise ValueError(
                f"batch_size={sizes!r}: expected a number of at least 1, or one for each of the "
                f"{buckets} buckets"
            )

    @property
    def boundaries(self) -> Sequence[int] | None:
        """The lengths at which the next bucket begins; None without buckets."""
        given = self.bucket_boundaries
        if isinstance(given, Mapping):
            return next(iter(given.values())) if len(given) == 1 else ()
        return given

    @property
    def by_length(self) -> bool:
        """Whether the lengths of records decide what makes a batch."""
        return self.bucket_boundaries is not None or self.form.batching == "packed"

    def _check_place(self) -> None:
        if self.weights is not None:
            self._check_weights(self.weights)
        if self.order is not None and self.order not in ORDERS:
            raise ValueError(f"order={self.order!r}: one of {', '.join(ORDERS)}, or None")
        if self.window is not None and not is_number(self.window, 1):
            raise ValueError(f"shuffle_buffer={self.window!r}: expected a number of at least 1")
        if (
            not isinstance(self.shard, (tuple, list))
            or len(self.shard) != 2
            or not is_number(self.shard[1], 1)
            or not is_number(self.shard[0], 0, self.shard[1] - 1)
        ):
            raise ValueError(
                f"shard={self.shard!r}: expected (index, count) of this host, such as (0, 4)"
            )
        if not is_number(self.start_step, 0):
            raise ValueError(f"start_step={self.start_step!r}: expected a number of at least 0")
        if self.state is None:
            return
        if self.start_step:
            raise ValueError("start_step and state both say where to begin: give one of them")
        if self.shuffle and self.seed != self.state.seed:
            raise ValueError(
                f"the state is from a run with seed={self.state.seed}, not {self.seed}"
            )

    def _check_weights(self, weights: Sequence[float]) -> None:
        numbers = isinstance(weights, (list, tuple)) and all(
            isinstance(weight, (int, float)) and 0 < weight < float("inf") for weight in weights
        )
        if not numbers or not weights:
            raise ValueError(
                f"weights={weights!r}: expected a number above 0 for each dataset, as in [3, 1]"
            )
        if self.order == "interleave":
            raise ValueError("weights find records by their index: they need order='global'")

    def columns(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """The features to decode: those asked for, or those of `as_supervised` alone."""
        if columns is not None or self.as_supervised is None:
            return columns
        return list(dict.fromkeys(map(self.form.feature_of, self.as_supervised)))

    def check(self, schema: Schema) -> None:
        """Holds the options against the features that will be batched.

        Raises:
            ValueError: As `Form.check`; or `as_supervised` has a name that no batch has, or it is
                not clear which feature's length decides on the bucket.
        """
        self.form.check(schema)
        names = self.form.names(schema)
        unknown = [name for name in self.as_supervised or () if name not in names]
        if unknown:
            raise ValueError(f"as_supervised names {unknown[0]!r}: a batch has {', '.join(names)}")
        if self.bucket_boundaries is not None:
            self.bucketed_by(schema)

    def bucketed_by(self, schema: Schema) -> str:
        """The feature whose first unknown dimension decides on the bucket."""
        having = [name for name, feature in schema.items() if feature.has_length]
        if isinstance(self.bucket_boundaries, Mapping):
            (name,) = self.bucket_boundaries
            if name not in having:
                raise ValueError(
                    f"bucket_boundaries names {name!r}: features with a length are "
                    f"{', '.join(having) or 'none'}"
                )
            return name
        if len(having) != 1:
            raise ValueError(
                f"bucket_boundaries={self.bucket_boundaries!r}: {len(having)} features have a length"
                f"{': say which, as in {' + repr(having[0]) + ': [...]}' if having else ''}"
            )
        return having[0]
