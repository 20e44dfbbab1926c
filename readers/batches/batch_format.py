"""How a batch represents features of unknown shape: padded, ragged or packed, and with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from readers.format.decode.column import RowFormat
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema

Batching = Literal["dense", "padded", "ragged", "packed"]

PadTo = Literal["longest", "max_length"]

Boundaries = Sequence[int]

# Suffixes of the companion arrays that a batch holds next to a feature.
MASK, LENGTH = "_mask", "_length"

# Added to every batch if the last one of an epoch is padded.
BATCH_MASK = "batch_mask"

SEGMENT_IDS, POSITIONS = "_segment_ids", "_positions"


@dataclass(frozen=True)
class BatchFormat:
    """How features of unknown shape are batched. This base class is `"dense"`, which allows none."""

    max_length: int | Mapping[str, int] | None = None
    values: Any = None
    mask: bool = False
    lengths: bool = False
    to: PadTo = "longest"
    buckets: Boundaries | Mapping[str, Boundaries] | None = None

    batching: ClassVar[Batching] = "dense"

    @staticmethod
    def of(batching: object) -> BatchFormat:
        """Converts a reader's argument `batching` to a format; raises ValueError for any other value."""
        if isinstance(batching, BatchFormat):
            return batching
        if isinstance(batching, str) and batching in _FORMATS:
            return _FORMATS[batching]()
        if batching == "packed":
            raise ValueError("batching='packed' lacks the length of a row: use readers.Packed(512)")
        raise ValueError(
            f"batching={batching!r}: expected {', '.join(map(repr, _FORMATS))}, readers.Padded(...), "
            "readers.Ragged(...) or readers.Packed(...)"
        )

    def __post_init__(self) -> None:
        check_one_of("to", self.to, PadTo)
        limits = plain(self.max_length)
        for limit in limits.values() if isinstance(limits, Mapping) else [limits]:
            if limit is not None and not is_number(limit, 1):
                raise ValueError(f"max_length={limits!r}: expected numbers of at least 1")
        object.__setattr__(self, "max_length", limits)
        object.__setattr__(self, "buckets", _checked_buckets(self.buckets))

    @property
    def boundaries(self) -> Sequence[int] | None:
        """The lengths at which a new bucket starts; None without buckets."""
        if isinstance(self.buckets, Mapping):
            return next(iter(self.buckets.values()))
        return self.buckets

    def limit(self, name: str) -> int | None:
        """The maximum size of a feature's first unknown dimension; None for no limit."""
        if isinstance(self.max_length, Mapping):
            return self.max_length.get(name)
        return self.max_length

    def pad_sizes(self, name: str) -> list[int]:
        """Increasing sizes: a batch is padded to the first that fits its longest record; if empty, to that record."""
        limit = self.limit(name)
        if self.to == "longest" or limit is None:
            return []
        buckets = self.buckets.get(name, ()) if isinstance(self.buckets, Mapping) else ()
        ends = (boundary - 1 for boundary in buckets)
        return [*(end for end in ends if end < limit), limit]

    def rows(self, schema: Mapping[str, Feature]) -> dict[str, RowFormat]:
        """How the kernel makes rows, for each feature with only the first size unknown."""
        rows = {}
        for name, feature in schema.items():
            if feature.is_rows:
                pads = self.batching == "padded" and 0 not in feature.shape
                padding = self.padding_value(name, feature).tobytes() if pads else b""
                rows[name] = RowFormat(self.limit(name), padding, self.pad_sizes(name))
        return rows

    def padded_shape(self, name: str, feature: Feature) -> tuple[int | None, ...]:
        """The shape of a feature in padded batches; None is a size that varies between them."""
        sizes = self.pad_sizes(name)
        if feature.is_fixed or len(sizes) != 1:
            return feature.shape
        axis = feature.first_unknown
        return (*feature.shape[:axis], *sizes, *feature.shape[axis + 1 :])

    def padding_value(self, name: str, feature: Feature) -> Any:
        """The padding of a feature: bytes, or a NumPy scalar of its dtype."""
        value = self._value(name, feature)
        if feature.dtype == "string":
            return value.encode() if isinstance(value, str) else value or b""
        return numpy_dtype(feature.dtype).type(value or 0)

    def _value(self, name: str, feature: Feature) -> Any:
        """The padding that the user chose for a feature; None for the default."""
        if isinstance(self.values, Mapping):
            return self.values.get(name)
        # A single value applies to all features of its kind.
        is_text = isinstance(self.values, (str, bytes))
        return self.values if is_text == (feature.dtype == "string") else None

    def feature_of(self, name: str) -> str:
        """The feature that an array of the batch belongs to."""
        for suffix in self._suffixes:
            if name.endswith(suffix):
                return name[: -len(suffix)]
        return name

    def batch_names(self, schema: Schema) -> list[str]:
        """The names in a batch: the features, then the companions of features of unknown shape."""
        varying = [name for name, feature in schema.items() if not feature.is_fixed]
        return [*schema, *(name + suffix for name in varying for suffix in self._suffixes)]

    @property
    def _suffixes(self) -> tuple[str, ...]:
        if self.batching == "packed":
            return SEGMENT_IDS, POSITIONS
        return (MASK,) * self.mask + (LENGTH,) * self.lengths

    def check(self, schema: Schema) -> None:
        """Raises ValueError if the features cannot be batched in this format."""
        varying = {name: feature for name, feature in schema.items() if not feature.is_fixed}
        for argument, by_name in (("values", self.values), ("max_length", self.max_length)):
            for name in by_name if isinstance(by_name, Mapping) else ():
                if name not in varying:
                    raise ValueError(
                        f"{argument} names {name!r}: the features of unknown shape are {', '.join(varying) or 'none'}"
                    )
        for name, feature in varying.items():
            self._check_padding_value(name, feature)
            if self.to == "max_length" and self.limit(name) is None:
                raise ValueError(
                    f"to='max_length': {name!r}, {feature}, has no max_length; set "
                    f"max_length={{{name!r}: ...}}, or leave it out with columns="
                )
            if self.lengths and not feature.has_length:
                raise ValueError(
                    f"lengths=True: the arrays of {name!r} differ in length, so a record has no single "
                    "length; use mask=True"
                )
        if self.batching == "packed":
            self._check_packed(schema)

    def _check_padding_value(self, name: str, feature: Feature) -> None:
        value, is_string = self._value(name, feature), feature.dtype == "string"
        fits = value is None or (is_string and isinstance(value, (str, bytes)))
        if not fits and not is_string and not isinstance(value, (str, bytes)):
            try:
                with np.errstate(all="ignore"):
                    held = self.padding_value(name, feature)
                fits = bool(held == value) or (held != held and value != value)
            except (TypeError, ValueError, OverflowError):
                pass
            # A float is rounded to the precision of the feature.
            floating = not np.issubdtype(numpy_dtype(feature.dtype), np.integer)
            fits = fits or (floating and isinstance(value, float))
        if not fits:
            raise ValueError(f"values: {value!r} does not fit {name!r}, {feature}")

    def _check_packed(self, schema: Schema) -> None:
        for name, feature in schema.items():
            if feature.is_sequence or feature.shape[:1] != (None,):
                problem = "does not have an unknown first dimension"
            elif None in feature.shape[1:]:
                problem = "has a second unknown dimension"
            elif self.limit(name) is None:
                problem = "has no max_length, which is the length of a row"
            else:
                continue
            raise ValueError(f"Packed: {name!r}, {feature}, {problem}; leave it out with columns=")


@dataclass(frozen=True)
class Padded(BatchFormat):
    """Pads features of unknown shape: `batching=readers.Padded(max_length=400, mask=True)`.

    Args:
        max_length: Truncates the first unknown dimension to this size, for all features or by name.
        values: The padding, for all numeric features or by name; None means 0 and b"".
        mask: Adds bool `<name>_mask`, true where there is a value.
        lengths: Adds int64 `<name>_length` [B], or [B, n] for n unknown dimensions.
        to: `"longest"` pads to the longest in the batch. `"max_length"` pads the first unknown dimension to `max_length`, or
            with buckets to the longest length of the bucket (its end - 1; max_length in the last one), so that `jax.jit`
            compiles once, or once per bucket. Further unknown dimensions are padded to the longest in the batch.
        buckets: Increasing lengths at which a new bucket starts, such as `[100, 250]`: all records of
            a batch come from one bucket. Write `{"signal": [100, 250]}` if several features have a
            length. `batch_size` may then be a list with one size per bucket.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> padded = readers.Padded(max_length=400, mask=True)
        >>> batch = next(readers.as_numpy("shards/sensors", 40, batching=padded))
        >>> batch["signal"].shape, batch["signal_mask"].shape
        ((40, 400, 3), (40, 400))
    """

    batching = "padded"


@dataclass(frozen=True)
class Ragged(BatchFormat):
    """Keeps features of unknown shape as they are: ragged tensors, or object arrays [B] of arrays.

    Args:
        max_length: Truncates the first unknown dimension to this size, for all features or by name.
        buckets: As for `readers.Padded`.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> ragged = readers.Ragged(max_length=400)
        >>> batch = next(readers.as_numpy("shards/sensors", 40, batching=ragged))
        >>> batch["signal"].shape, batch["signal"][0].shape[1]
        ((40,), 3)
    """

    values: Any = field(default=None, init=False, repr=False)
    mask: bool = field(default=False, init=False, repr=False)
    lengths: bool = field(default=False, init=False, repr=False)
    to: PadTo = field(default="longest", init=False, repr=False)

    batching = "ragged"


@dataclass(frozen=True)
class Packed(BatchFormat):
    """Puts several records into each row: `batching=readers.Packed(512)`.

    It adds int32 `<name>_segment_ids`, where 0 is padding, and `<name>_positions`, both [B, max_length].

    Args:
        max_length: The length of a row, for all features or by name; longer records are truncated.
        values: The padding, for all numeric features or by name; None means 0.

    Raises:
        ValueError: A value is not allowed.

    Example:
        >>> packed = readers.Packed(512)
        >>> batches = readers.as_numpy("shards/text", 4, columns=["tokens"], batching=packed)
        >>> batch = next(batches)
        >>> batch["tokens"].shape, batch["tokens_segment_ids"].shape
        ((4, 512), (4, 512))
    """

    mask: bool = field(default=False, init=False, repr=False)
    lengths: bool = field(default=False, init=False, repr=False)
    to: PadTo = field(default="longest", init=False, repr=False)
    buckets: None = field(default=None, init=False, repr=False)

    batching = "packed"


_FORMATS = {"dense": BatchFormat, "padded": Padded, "ragged": Ragged}


def _checked_buckets(given: Any) -> Any:
    """The buckets of a format, as Python numbers; raises ValueError if they are not valid."""
    buckets = plain(given)
    if buckets is None:
        return None
    one_feature = isinstance(buckets, Mapping) and len(buckets) == 1
    starts = next(iter(buckets.values())) if one_feature else buckets
    if isinstance(starts, (list, tuple)):
        # Quantiles are floats even where they are whole numbers.
        starts = [int(b) if isinstance(b, float) and b.is_integer() else b for b in starts]
    if (
        not isinstance(starts, list)
        or not starts
        or not all(is_number(start, 1) for start in starts)
        or starts != sorted(set(starts))
    ):
        raise ValueError(
            f"buckets={given!r}: expected increasing whole numbers of at least 1, such as [100, 250], or "
            "a dict with one feature's name and such numbers"
        )
    return {next(iter(buckets)): starts} if one_feature else starts


def plain(value: Any) -> Any:
    """A value with Python numbers and lists in place of NumPy ones."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


def is_number(value: object, least: int, most: int | None = None) -> bool:
    """Whether a value is an integer within bounds; a bool is not."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return least <= value and (most is None or value <= most)


def check_number(argument: str, value: int, least: int) -> int:
    """The value of an argument; raises ValueError if it is not an integer of at least `least`."""
    if not is_number(value, least):
        raise ValueError(f"{argument}={value!r}: expected a number of at least {least}")
    return value


def check_one_of(argument: str, value: object, literal: Any) -> None:
    """Raises ValueError if the value of an argument is not one that a `Literal` lists."""
    if value not in get_args(literal):
        raise ValueError(f"{argument}={value!r}: expected one of {', '.join(get_args(literal))}")
