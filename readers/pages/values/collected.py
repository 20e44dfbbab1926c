"""Values of a feature in the records of a sample: so few of each record that they fit memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema

# Numbers that are kept of a dataset, and of a feature; and the fewest of a feature, whatever their number.
_MOST_IN_ALL, _MOST, _FEWEST = 1 << 22, 1 << 20, 1 << 11

# Sizes of a last dimension that counts as channels, as in the statistics of a manifest.
_CHANNELS = range(2, 65)

# Bytes that are kept of a string, and strings that are kept of a record.
_TEXT_BYTES, _STRINGS = 96, 16


class Values(NamedTuple):
    """What is kept of a feature in some records.

    Attributes:
        shapes: The shape of each value, int64 [records, rank], at least of rank 1: of a single string the
            number of its bytes, of a list of arrays their number and the largest of each dimension.
        sizes: How many numbers or strings each value has, int64 [records].
        drawn: Some of the numbers, [n, channels], of the feature's dtype, or float32 for shorter floats; [0, 1]
            of strings and complex numbers.
        texts: The first bytes of some of the strings.
    """

    shapes: np.ndarray
    sizes: np.ndarray
    drawn: np.ndarray
    texts: Sequence[bytes]


def channels_of(feature: Feature) -> int:
    """The number of channels of a feature, its last dimension; 1 if it has none."""
    shape = feature.shape
    is_gray = len(shape) == 2 and feature.dtype == "uint8"
    has_channels = len(shape) > 1 and shape[-1] in _CHANNELS and has_numbers(feature)
    return (shape[-1] or 1) if has_channels and not is_gray else 1


def has_numbers(feature: Feature) -> bool:
    """Whether the values are real numbers."""
    return feature.dtype != "string" and not feature.dtype.startswith("complex")


def collectors_of(schema: Schema, records: int) -> Callable[[], WindowValues]:
    """Makes collectors of the features of a window of records, such that the values of all windows fit memory.

    Args:
        schema: The features.
        records: The number of records in all windows.
    """
    most = min(_MOST, max(_FEWEST, _MOST_IN_ALL // max(1, len(schema))))
    each = {
        name: max(1, most // (max(1, records) * channels_of(feature)))
        for name, feature in schema.items()
    }
    return lambda: WindowValues(schema, each)


class WindowValues:
    """Collects the values of all features of a window of records: it is called with each record."""

    def __init__(self, schema: Schema, each: Mapping[str, int]) -> None:
        self.collectors = {name: Collector(schema[name], most) for name, most in each.items()}

    def __call__(self, number: int, record: Mapping[str, Any]) -> None:
        """Adds a record of a number."""
        for name, collector in self.collectors.items():
            collector.add(record[name], number)


class Collector:
    """Collects the values of a feature from records, one after another.

    Args:
        feature: The feature.
        each: How many rows of numbers are drawn of a record that has more.
    """

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
            self._texts.append(value[:_TEXT_BYTES])
        elif isinstance(value, list) and self._is_string:
            shape, strings = np.shape(np.array(value, object)), list(_strings(value))
            self._note((*shape, *(1,) * self._rank)[: self._rank], len(strings))
            self._texts += [text[:_TEXT_BYTES] for text in strings[:_STRINGS]]
        elif isinstance(value, list):
            shapes = [item.shape for item in value]
            inner = np.array(shapes, np.int64).reshape(len(value), self._rank - 1)
            largest = inner.max(axis=0, initial=0).tolist()
            self._note((len(value), *largest), sum(item.size for item in value))
            parts = [item.reshape(-1) for item in value]
            self._draw(np.concatenate(parts) if parts else np.empty(0), number)
        elif np.ndim(value):
            self._note(value.shape, value.size)
            self._draw(value, number)
        else:
            self._note((1,), 1)
            self._scalars.append(value)

    def _note(self, shape: tuple[int, ...], size: int) -> None:
        self._shapes.append(shape)
        self._sizes.append(size)

    def _draw(self, numbers: np.ndarray, number: int) -> None:
        if self._has_numbers:
            rows = numbers.reshape(-1, self._channels)
            if len(rows) > self._each:
                # At random: at equal distances, a picture would be looked at in a few of its columns alone.
                rows = rows[np.random.default_rng(number).integers(0, len(rows), self._each)]
            # With a copy, because the memory of a record is used again.
            self._drawn.append(np.array(rows, self._dtype))

    def values(self) -> Values:
        """What was collected."""
        drawn = [*self._drawn, np.empty((0, self._channels), self._dtype)]
        if self._scalars:
            drawn = [np.array(self._scalars).astype(self._dtype).reshape(-1, 1)]
        return Values(
            np.array(self._shapes, np.int64).reshape(-1, self._rank),
            np.array(self._sizes, np.int64),
            np.concatenate(drawn) if self._has_numbers else np.empty((0, 1)),
            self._texts,
        )


def joined(parts: Sequence[Values]) -> Values:
    """The values of runs of records, at least one, as those of all of them."""
    shapes, sizes, drawn, texts = zip(*parts, strict=True)
    return Values(
        np.concatenate(shapes),
        np.concatenate(sizes),
        np.concatenate(drawn),
        [text for some in texts for text in some],
    )


def _strings(items: list[Any]) -> Iterator[bytes]:
    for item in items:
        if isinstance(item, list):
            yield from _strings(item)
        else:
            yield item
