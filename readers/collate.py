"""Records -> the NumPy arrays of a batch: dense, padded (with masks) or ragged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from readers.format.schema import Feature, Schema, numpy_dtype
from readers.options import MASK_SUFFIX


def collate(
    records: Sequence[dict[str, Any]], schema: Schema, batching: str, mask: bool = False
) -> dict[str, np.ndarray]:
    """The arrays by feature name, each with a leading batch dimension.

    Args:
        records: At least one, each with a value for every feature.
        schema: The features. Those of fixed shape are dense in each of the batchings.
        batching: `padded` fills the others up with 0 or b"" to the longest of the batch; `ragged`
            gives an object array [B] of arrays; of object arrays of arrays for a sequence of
            arrays of unknown shape.
        mask: Adds for each padded feature a bool `<name>_mask`, true where there is a value; it
            has the dimensions up to the last unknown one.
    """
    batch = {}
    for name, feature in schema.items():
        values = [record[name] for record in records]
        if feature.is_fixed:
            batch[name] = np.stack([_stacked(feature, value) for value in values])
        elif batching == "ragged":
            batch[name] = _objects([_ragged(feature, value) for value in values])
        else:
            batch[name] = padded(feature, values)
            if mask:
                batch[name + MASK_SUFFIX] = mask_of(feature, values)
    return batch


def padded(feature: Feature, values: Sequence[Any]) -> np.ndarray:
    """The array [B, *longest], filled up with 0 or b"" in every unknown dimension."""
    fill = b"" if feature.dtype == "string" else 0
    out = np.full(_padded_shape(feature, values), fill, numpy_dtype(feature.dtype))
    for row, value in zip(out, values, strict=True):
        for place, array in _places(feature, value):
            # Nothing may be wider than the room: [0, 5] takes none in its second dimension.
            if array.size:
                row[place] = array
    return out


def mask_of(feature: Feature, values: Sequence[Any]) -> np.ndarray:
    """bool [B, *longest], up to the last unknown dimension: where `padded` has values."""
    depth = feature.varying_rank
    out = np.zeros(_padded_shape(feature, values)[: depth + 1], bool)
    for row, value in zip(out, values, strict=True):
        for place, _ in _places(feature, value):
            row[place[:depth]] = True
    return out


def _padded_shape(feature: Feature, values: Sequence[Any]) -> tuple[int, ...]:
    longest = np.max([_extent(feature, value) for value in values], axis=0).tolist()
    sizes = zip(feature.shape, longest, strict=True)
    return (len(values), *(size if d is None else d for d, size in sizes))


def _extent(feature: Feature, value: Any) -> list[int]:
    """The room that a value takes in each dimension; an empty dimension leaves none in the next."""
    rank = len(feature.shape)
    if feature.encoding == "sequence":
        parts = [_extent(Feature(feature.dtype, feature.shape[1:]), part) for part in value]
        inner = np.max(parts, axis=0).astype(int).tolist() if parts else [0] * (rank - 1)
        return [len(value), *inner]
    extent = list(value.shape)
    first_empty = extent.index(0) if 0 in extent else rank
    return extent[:first_empty] + [0] * (rank - first_empty)


def _places(feature: Feature, value: Any) -> Iterator[tuple[tuple[int | slice, ...], np.ndarray]]:
    """The arrays of a value, each with its index in a padded row: one alone, or a sequence's."""
    if feature.encoding == "sequence":
        for i, part in enumerate(value):
            yield (i, *map(slice, part.shape)), part
    else:
        yield tuple(map(slice, value.shape)), value


def _stacked(feature: Feature, value: Any) -> np.ndarray:
    """The value as one array; that of a sequence whose arrays have one fixed shape."""
    if feature.encoding != "sequence":
        return np.asarray(value)
    inner = [d for d in feature.shape[1:] if d is not None]
    return np.array(value, numpy_dtype(feature.dtype)).reshape(len(value), *inner)


def _ragged(feature: Feature, value: Any) -> np.ndarray:
    if feature.encoding == "sequence" and None in feature.shape[1:]:
        return _objects(value)
    return _stacked(feature, value)


def _objects(arrays: Sequence[np.ndarray]) -> np.ndarray:
    out = np.empty(len(arrays), object)
    # Assigned one by one: NumPy would merge arrays that happen to have the same shape.
    for i, array in enumerate(arrays):
        out[i] = array
    return out
