"""What becomes of features of unknown shape in a batch: the arguments about it, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.schema import Feature, Schema, format_shape, numpy_dtype

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
