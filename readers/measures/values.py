"""Values of a feature in the records of a sample: so few of each record that they fit memory, drawn evenly.

A record is divided into equal parts, and a place is drawn in each of them, at a fraction that the multiples of the golden ratio
give: at equal distances, a picture would be looked at in a few of its columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema

# Numbers that are kept of a dataset, and of a feature; and the fewest of a feature, whatever their number.
_MOST_IN_ALL, _MOST, _FEWEST = 1 << 22, 1 << 20, 1 << 11

# Sizes of a last dimension that counts as channels, as in the statistics of a manifest.
_CHANNELS = range(2, 65)

# A table of fixed size with as many rows and columns is a picture in gray, whose columns are no channels.
_GRAY_SIDE = 16

# Bytes that are kept of a string, and strings that are kept of a record.
TEXT_BYTES, _STRINGS = 96, 16

# Fractions of 1 whose multiples lie far from each other: of places in a record, and of records.
_GOLDEN, _SILVER = 0.6180339887498949, 0.4142135623730951


@dataclass(frozen=True)
class Values:
    """What is kept of a feature in some records.

    Attributes:
        shapes: The shape of each value, int64 [records, rank], at least of rank 1: of a single string the
            number of its bytes, of a list of arrays their number and the largest of each dimension.
        sizes: How many numbers or strings each value has, int64 [records].
        drawn: Some of the numbers, [n, channels], of the feature's dtype, or float32 for shorter floats; [0, 1]
            of strings and complex numbers.
        each: How many rows are drawn of a record that has more.
        texts: The first bytes of some of the strings.
    """

    shapes: np.ndarray
    sizes: np.ndarray
    drawn: np.ndarray
    each: int
    texts: Sequence[bytes]

    @property
    def is_whole(self) -> bool:
        """Whether all numbers of the records were drawn."""
        return self.drawn.size == int(self.sizes.sum())


def channels_of(feature: Feature) -> int:
    """The number of channels of a feature, its last dimension; 1 if it has none."""
    shape = feature.shape
    if not has_numbers(feature) or len(shape) < 2 or shape[-1] not in _CHANNELS:
        return 1
    if len(shape) == 2 and feature.is_fixed and min(feature.known_sizes) >= _GRAY_SIDE:
        return 1
    return shape[-1] or 1


def has_numbers(feature: Feature) -> bool:
    """Whether the values are real numbers."""
    return feature.dtype != "string" and not feature.dtype.startswith("complex")


def rows_each(schema: Schema, records: int) -> dict[str, int]:
    """How many rows to draw of each record, by feature, such that all fit the bounds."""
    most = min(_MOST, max(_FEWEST, _MOST_IN_ALL // len(schema)))
    return {
        name: max(1, most // (max(1, records) * channels_of(feature)))
        for name, feature in schema.items()
    }


def drawn_places(count: int, most: int, number: int) -> np.ndarray | None:
    """The rows of a record that are drawn, int64 [most], ascending; None for all of them.

    Args:
        count: The number of rows.
        most: How many are drawn at most.
        number: The number of the record, so that not all records are drawn at the same places.
    """
    if count <= most:
        return None
    parts = np.arange(most)
    fractions = (parts * _GOLDEN + number * _SILVER) % 1
    return np.minimum((parts + fractions) * (count / most), count - 1).astype(np.int64)


class Collector:
    """Collects the values of a feature from records, one after another."""

    def __init__(self, feature: Feature, each: int) -> None:
        self._each, self._channels = each, channels_of(feature)
        self._rank, self._has_numbers = max(1, len(feature.shape)), has_numbers(feature)
        self._is_string, dtype = feature.dtype == "string", numpy_dtype(feature.dtype)
        # Histograms of NumPy know no bfloat16, and sums of float16 overflow.
        self._dtype = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind in "fV" else dtype
        self._shapes: list[tuple[int, ...]] = []
        self._sizes: list[int] = []
        self._drawn: list[np.ndarray] = []
        self._scalars: list[Any] = []
        self._texts: list[bytes] = []

    def add(self, value: Any, number: int) -> None:
        """Adds the value of a record, of which it keeps copies alone."""
        if isinstance(value, bytes):
            self._note((len(value),), 1)
            self._texts.append(value[:TEXT_BYTES])
        elif isinstance(value, list):
            self._add_list(value, number)
        elif not np.ndim(value):
            self._note((1,), 1)
            if self._has_numbers:
                self._scalars.append(value)
        else:
            self._note(value.shape, value.size)
            if self._has_numbers:
                self._draw(value.reshape(-1, self._channels), number)

    def _add_list(self, items: list[Any], number: int) -> None:
        """Adds strings, in lists of lists perhaps, or arrays of any shapes."""
        if self._is_string:
            shape, strings = np.shape(np.array(items, object)), list(_strings(items))
            self._note((*shape, *(1,) * self._rank)[: self._rank], len(strings))
            self._texts += [text[:TEXT_BYTES] for text in strings[:_STRINGS]]
            return
        inner = np.array([item.shape for item in items], np.int64).reshape(
            len(items), self._rank - 1
        )
        self._note((len(items), *inner.max(axis=0, initial=0).tolist()), sum(i.size for i in items))
        if self._has_numbers:
            rows = [item.reshape(-1, self._channels) for item in items if item.size]
            self._draw(np.concatenate([*rows, np.empty((0, self._channels), self._dtype)]), number)

    def _note(self, shape: tuple[int, ...], size: int) -> None:
        self._shapes.append(shape)
        self._sizes.append(size)

    def _draw(self, rows: np.ndarray, number: int) -> None:
        places = drawn_places(len(rows), self._each, number)
        # With a copy, because the memory of a record is used again.
        self._drawn.append(np.array(rows if places is None else rows[places], self._dtype))

    def values(self) -> Values:
        """What was collected."""
        drawn = [*self._drawn, np.empty((0, self._channels), self._dtype)]
        if self._scalars:
            drawn = [np.array(self._scalars).astype(self._dtype).reshape(-1, 1)]
        return Values(
            np.array(self._shapes, np.int64).reshape(-1, self._rank),
            np.array(self._sizes, np.int64),
            np.concatenate(drawn) if self._has_numbers else np.empty((0, 1)),
            self._each,
            self._texts,
        )


def joined(parts: Sequence[Values]) -> Values:
    """The values of runs of records as those of all of them."""
    return Values(
        np.concatenate([part.shapes for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.drawn for part in parts]),
        max(part.each for part in parts),
        [text for part in parts for text in part.texts],
    )


def _strings(items: list[Any]) -> Iterator[bytes]:
    for item in items:
        if isinstance(item, list):
            yield from _strings(item)
        else:
            yield item
