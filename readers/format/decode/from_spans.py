"""Columns of features from the spans of their bytes in a batch of Examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from readers.format.decode.column import Allocator, FeatureColumn, Spans, object_array
from readers.format.decode.records import list_kind
from readers.format.decode.scanner import Scanner, require
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.protobuf.tensor import tensor_header
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST, unpacked_varints
from readers.format.schema import IMAGE_ENCODINGS, MAX_EMPTY_SIZE, Feature


def stored_kind(feature: Feature) -> int:
    """The kind of list that stores the feature as one value or run of numbers; 0 if none does."""
    if feature.is_sequence or feature.step:
        return 0
    if feature.dtype == "string":
        return BYTES_LIST if feature.encoding == "text" else 0
    return list_kind(feature.dtype) if feature.encoding == "list" else BYTES_LIST


def column_of(
    feature: Feature, spans: Spans, companion: Spans | None, empty: Allocator
) -> FeatureColumn | None:
    """The column of a feature from its spans; None if `Decoder` has to decode it.

    Args:
        feature: The feature.
        spans: The bytes of its values.
        companion: The packed shapes, if the records store them.
        empty: Allocates large arrays.
    """
    if feature.encoding == "text":
        return FeatureColumn(object_array(spans.to_list()))
    if feature.encoding in IMAGE_ENCODINGS:
        return FeatureColumn(object_array(spans.views()))
    if feature.encoding == "tensor":
        if feature.is_fixed:
            return _fixed_tensors(feature, spans, empty)
        return _tensors(feature, spans, empty)
    values, counts = _flat_values(feature, spans, empty)
    if feature.is_fixed:
        require(counts == math.prod(feature.known_sizes))
        return FeatureColumn(values.reshape(len(counts), *feature.known_sizes))
    if companion:
        rank = Feature("int64", (len(feature.shape),), "list")
        shapes, ranks = _flat_values(rank, companion, empty)
        require(ranks == len(feature.shape))
        return _shaped(feature, values, counts, shapes.reshape(-1, len(feature.shape)))
    known = math.prod(feature.known_sizes)
    if feature.shape.count(None) > 1 or not known:
        return None
    sizes = [counts // known if d is None else np.full_like(counts, d) for d in feature.shape]
    return _shaped(feature, values, counts, np.stack(sizes, axis=1))


def _fixed_tensors(feature: Feature, spans: Spans, empty: Allocator) -> FeatureColumn:
    dtype, shape = numpy_dtype(feature.dtype), feature.known_sizes
    header, nbytes = tensor_header(feature.dtype, shape), math.prod(shape) * dtype.itemsize
    require(spans.lengths == len(header) + nbytes)
    scanner = Scanner(spans.data, spans.starts, spans.stops)
    scanner.expect(header)
    values = spans.starting_at(scanner.at).stacked(nbytes, empty)
    return FeatureColumn(values.view(dtype).reshape(len(values), *shape))


def _tensors(feature: Feature, spans: Spans, empty: Allocator) -> FeatureColumn:
    """The column of serialized TensorProtos of unknown shape, none of which is empty."""
    scanner = Scanner(spans.data, spans.starts, spans.stops)
    scanner.expect(bytes([8, TENSORFLOW_DTYPES[feature.dtype], 18]))
    shape_ends = scanner.enter()
    sizes = []
    for known in feature.shape:
        scanner.expect(b"\x12")
        ends = scanner.enter()
        scanner.expect(b"\x08")
        size = scanner.varint()
        scanner.leave(ends)
        if known is not None:
            require(size == known)
        sizes.append(size)
    scanner.leave(shape_ends)
    scanner.expect(b"\x22")
    require(scanner.enter() == spans.stops)
    content, dtype = spans.starting_at(scanner.at), numpy_dtype(feature.dtype)
    counts = _counts(content, dtype)
    values = content.joined(empty).view(dtype)
    return _shaped(feature, values, counts, np.stack(sizes, axis=1))


def _shaped(
    feature: Feature, values: np.ndarray, counts: np.ndarray, shapes: np.ndarray
) -> FeatureColumn:
    """The column of values with their shapes, which must fit the feature and the number of values.

    Args:
        feature: The feature.
        values: The values, flat.
        counts: int64 [B], the number of values in each record.
        shapes: int64 [B, rank], the shape of each record.
    """
    for axis, size in enumerate(feature.shape):
        require(shapes[:, axis] >= 0 if size is None else shapes[:, axis] == size)
    require((shapes.max(axis=1, initial=0) <= MAX_EMPTY_SIZE) | (counts > 0))
    # Unlike a product of integers, one of floats does not wrap around.
    require(np.prod(shapes.astype(np.float64), axis=1) == counts)
    return FeatureColumn(values, shapes)


def _flat_values(feature: Feature, spans: Spans, empty: Allocator) -> tuple[np.ndarray, np.ndarray]:
    """The values of raw bytes or of a list, flat, and the number of them per record, int64 [B]."""
    dtype = numpy_dtype(feature.dtype)
    if stored_kind(feature) == INT64_LIST:
        numbers, counts = _integers(spans, empty)
        values = numbers.astype(dtype, copy=False)
        if values is not numbers:
            held = values == numbers
            if not held.all():
                require(np.logical_and.reduceat(held, np.cumsum(counts) - counts))
        return values, counts
    stored = np.dtype("<f4") if feature.encoding == "list" else dtype
    counts = _counts(spans, stored)
    return spans.joined(empty).view(stored).astype(dtype, copy=False), counts


def _counts(spans: Spans, dtype: np.dtype[Any]) -> np.ndarray:
    """The number of values of a fixed-width dtype in each record, int64 [B]."""
    require(spans.lengths % dtype.itemsize == 0)
    return spans.lengths // dtype.itemsize


def _integers(spans: Spans, empty: Allocator) -> tuple[np.ndarray, np.ndarray]:
    """The values of packed varints, int64 [N], and the number of them per record, int64 [B]."""
    require(spans.lengths > 0)
    octets = spans.joined(empty)
    stops = np.cumsum(spans.lengths)
    last = octets < 128
    require(last[stops - 1])  # No varint continues into the next record.
    counts = np.add.reduceat(last, stops - spans.lengths, dtype=np.int64)
    try:
        return unpacked_varints(octets.data), counts
    except ValueError:  # One of them is longer than ten bytes.
        ends = np.flatnonzero(last)
        too_long = ends[np.diff(ends, prepend=-1) > 10]
        require(~np.isin(np.arange(len(stops)), np.searchsorted(stops, too_long, side="right")))
        raise
