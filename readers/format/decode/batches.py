"""Decoding of many serialized Examples at once into columns of arrays.

The Examples of one writer have the same fields in the same order. So all of them are scanned in
lockstep: each step reads the same tag, length or name in every record, with a few NumPy calls.
Records of any other form are left to `Decoder`, which defines the result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.decode.column import Allocator, FeatureColumn, LazyValues, Spans, object_array
from readers.format.decode.records import list_kind, parse_example
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema
from readers.format.tensor import tensor_header
from readers.format.wire import BYTES_LIST, INT64_LIST, LONGEST_LENGTH, unpacked_varints, varint

# Bytes that the buffer needs after the last record, so that no step reads outside of it: a varint
# may run past the end of a record before this is noticed, and eight bytes are read at a time.
MARGIN = 32

# How often irregular records are set aside before all records are left to `Decoder`.
_ATTEMPTS = 8

# How many layouts are kept, each for one length of record: keys of a few lengths make as many.
_MAX_LAYOUTS = 256


class _IrregularRecords(Exception):
    """Some records do not have the same form as the first.

    Args:
        regular: bool [B], which records do.
    """

    def __init__(self, regular: np.ndarray) -> None:
        super().__init__()
        self.regular = regular


class _Scanner:
    """One position in each of B records, all of which advance together.

    Every step raises _IrregularRecords if a record does not have what the step expects.

    Args:
        data: uint8 [n], the buffer that holds the records.
        at: int64 [B], the first position in each record.
        stops: int64 [B], the end of each record.
    """

    def __init__(self, data: np.ndarray, at: np.ndarray, stops: np.ndarray) -> None:
        self._octets = data
        # The eight bytes from each position on as one number; this is a view.
        self._words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at, self._stops = at, stops

    def expect(self, literal: bytes) -> None:
        """Skips the same bytes in every record."""
        _require(self.at + len(literal) <= self._stops)
        for start in range(0, len(literal), 8):
            word = literal[start : start + 8]
            found = self._words[self.at + start]
            if len(word) < 8:
                found &= np.uint64((1 << 8 * len(word)) - 1)
            _require(found == np.uint64(int.from_bytes(word, "little")))
        self.at = self.at + len(literal)

    def varint(self) -> np.ndarray:
        """Reads a varint in every record: int64 [B]."""
        octet = self._octets[self.at]
        value = octet.astype(np.int64)
        self.at = self.at + 1
        more = octet >= 128
        if more.any():
            value &= 127
        for place in range(1, LONGEST_LENGTH):
            if not more.any():
                return value
            octet = self._octets[self.at] * more
            value += (octet & 127).astype(np.int64) << 7 * place
            self.at = self.at + more
            more = octet >= 128
        _require(~more)
        return value

    def enter(self) -> np.ndarray:
        """Reads a length in every record, and returns the end of what it counts, int64 [B]."""
        length = self.varint()
        _require(length <= self._stops - self.at)
        return self.at + length

    def leave(self, ends: np.ndarray) -> None:
        """Requires every position to be at the end that `enter` returned."""
        _require(self.at == ends)


def _require(holds: np.ndarray) -> None:
    if not holds.all():
        raise _IrregularRecords(holds)


class ColumnDecoder:
    """Decodes batches of serialized Examples into columns. It is safe to share between threads.

    Args:
        schema: The features to decode.
        empty: Allocates large arrays.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty) -> None:
        self._schema, self._empty = schema, empty
        self._kinds = {name: _kind(feature) for name, feature in schema.items()}
        self._kinds |= {f"{n}/shape": INT64_LIST for n, f in schema.items() if f.needs_companion}
        self._layouts: dict[int, _Layout] = {}

    def decode(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, FeatureColumn], np.ndarray]:
        """The columns of a batch of Examples, as far as these can be decoded together.

        Args:
            data: uint8 [n], the Examples, followed by at least `MARGIN` more bytes.
            starts: int64 [B], where each Example begins.
            stops: int64 [B], where each Example ends.

        Returns:
            The columns of the features that are one value or one run of numbers; and int64 [R],
            ascending, the records that the columns hold. All other features and records are left to
            `Decoder`.
        """
        rows = np.arange(len(starts))
        for _ in range(_ATTEMPTS):
            if not len(rows):
                break
            try:
                return self._decode(data, starts[rows], stops[rows]), rows
            except _IrregularRecords as error:
                # If most records differ from the first, the first is the irregular one.
                most = 2 * np.count_nonzero(error.regular) > len(rows)
                rows = rows[error.regular] if most else rows[1:]
            except ValueError:  # The first record is not an Example.
                rows = rows[1:]
        # Without columns, `Decoder` gets all records, and decodes each only once.
        return {}, np.arange(len(starts))

    def _decode(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> dict[str, FeatureColumn]:
        located = self._locate(data, starts, stops)
        columns = {}
        for name, spans in located.items():
            if name in self._schema:
                column = _decode(
                    self._schema[name], spans, located.get(f"{name}/shape"), self._empty
                )
                if column:
                    columns[name] = column
        return columns

    def _locate(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> dict[str, Spans]:
        """The spans of the features that are one value or one run of numbers, by name.

        They include `<name>/shape` for features that take their shape from it.
        """
        length = int(stops[0] - starts[0])
        same_length = bool((stops - starts == length).all())
        layout = self._layouts.get(length) if same_length else None
        if layout and layout.fits(data, starts):
            return layout.spans(data, starts)
        first = parse_example(data.data[starts[0] : stops[0]], self._kinds)
        spans, skipped = {}, []
        scanner = _Scanner(data, starts, stops)
        scanner.expect(b"\x0a")
        ends = scanner.enter()
        _require(ends == stops)
        for name, (kind, chunks) in first.items():
            key = name.encode()
            scanner.expect(b"\x0a")
            ends = scanner.enter()
            scanner.expect(b"\x0a" + varint(len(key)) + key + b"\x12")
            _require(scanner.enter() == ends)
            if kind and kind == self._kinds.get(name) and len(chunks) == 1:
                scanner.expect(bytes([kind << 3 | 2]))
                _require(scanner.enter() == ends)
                scanner.expect(b"\x0a")
                _require(scanner.enter() == ends)
                spans[name] = Spans(data, scanner.at, ends)
            elif name not in self._kinds:
                skipped.append(Spans(data, scanner.at, ends))
            scanner.at = ends
        scanner.leave(stops)
        if same_length:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[length] = _Layout.of_first(data, starts, stops, spans, skipped)
        return spans


@dataclass(frozen=True)
class _Layout:
    """The positions of features in records that are alike in all bytes around the values.

    Attributes:
        bounds: Name -> where the value begins and ends in a record.
        constant: (position, bytes) of what is the same in every record.
    """

    bounds: dict[str, tuple[int, int]]
    constant: tuple[tuple[int, np.ndarray], ...]

    @classmethod
    def of_first(
        cls,
        data: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        spans: dict[str, Spans],
        skipped: Sequence[Spans],
    ) -> _Layout:
        """The layout of the first of some records.

        Args:
            data: uint8 [n], the buffer that holds the records.
            starts: int64 [B], where each record begins.
            stops: int64 [B], where each record ends.
            spans: The spans of the features to decode.
            skipped: The spans of the other features, which may hold anything.
        """
        start, stop = int(starts[0]), int(stops[0])
        found = [(int(p.starts[0]), int(p.stops[0])) for p in (*spans.values(), *skipped)]
        free = [(start, start), *sorted(found), (stop, stop)]
        constant = tuple(
            (end - start, data[end:begin].copy())
            for (_, end), (begin, _) in itertools.pairwise(free)
            if end < begin
        )
        bounds = zip(spans, found, strict=False)
        return cls({name: (a - start, b - start) for name, (a, b) in bounds}, constant)

    def fits(self, data: np.ndarray, starts: np.ndarray) -> bool:
        """Whether records that begin at `starts`, int64 [B], all have this layout."""
        return all(
            bool((Spans(data, starts + begin, starts).stacked(len(octets)) == octets).all())
            for begin, octets in self.constant
        )

    def spans(self, data: np.ndarray, starts: np.ndarray) -> dict[str, Spans]:
        """The spans of the features in records that have this layout."""
        return {
            name: Spans(data, starts + begin, starts + end)
            for name, (begin, end) in self.bounds.items()
        }


def _kind(feature: Feature) -> int:
    """The kind of list that stores the feature as one value or run of numbers; 0 if none does."""
    if feature.is_sequence or feature.step:
        return 0
    if feature.dtype == "string":
        return BYTES_LIST if feature.encoding == "text" else 0
    return list_kind(feature.dtype) if feature.encoding == "list" else BYTES_LIST


def _decode(
    feature: Feature, spans: Spans, companion: Spans | None, empty: Allocator
) -> FeatureColumn | None:
    """The column of a feature from its spans; None if `Decoder` has to decode it.

    Args:
        feature: The feature.
        spans: The bytes of its values.
        companion: The packed shapes, if the records store them.
        empty: Allocates large arrays.
    """
    if feature.encoding == "text" or feature.encoding in IMAGE_ENCODINGS:
        return FeatureColumn(object_array(spans.to_list()))
    if feature.encoding == "tensor":
        if feature.is_fixed:
            return _fixed_tensors(feature, spans, empty)
        return _tensors(feature, spans, empty)
    if feature.is_fixed:
        values, counts = _flat_values(feature, spans, empty)
        _require(counts == math.prod(feature.known_sizes))
        return FeatureColumn(values.reshape(-1, *feature.known_sizes))
    found: np.ndarray | Spans
    if feature.encoding == "raw" or feature.dtype == "float32":
        found, counts = spans, _counts(spans, numpy_dtype(feature.dtype))
    else:
        found, counts = _flat_values(feature, spans, empty)
    if companion:
        rank = Feature("int64", (len(feature.shape),), "list")
        shapes, ranks = _flat_values(rank, companion, empty)
        _require(ranks == len(feature.shape))
        return _shaped(feature, found, counts, shapes.reshape(-1, len(feature.shape)))
    known = math.prod(feature.known_sizes)
    if feature.shape.count(None) > 1 or not known:
        return None
    sizes = [counts // known if d is None else np.full_like(counts, d) for d in feature.shape]
    return _shaped(feature, found, counts, np.stack(sizes, axis=1))


def _fixed_tensors(feature: Feature, spans: Spans, empty: Allocator) -> FeatureColumn:
    dtype, shape = numpy_dtype(feature.dtype), feature.known_sizes
    header, nbytes = tensor_header(feature.dtype, shape), math.prod(shape) * dtype.itemsize
    _require(spans.lengths == len(header) + nbytes)
    scanner = _Scanner(spans.data, spans.starts, spans.stops)
    scanner.expect(header)
    values = spans.starting_at(scanner.at).stacked(nbytes, empty)
    return FeatureColumn(values.view(dtype).reshape(-1, *shape))


def _tensors(feature: Feature, spans: Spans, empty: Allocator) -> FeatureColumn:
    """The column of serialized TensorProtos of unknown shape, none of which is empty."""
    scanner = _Scanner(spans.data, spans.starts, spans.stops)
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
            _require(size == known)
        sizes.append(size)
    scanner.leave(shape_ends)
    scanner.expect(b"\x22")
    _require(scanner.enter() == spans.stops)
    content = spans.starting_at(scanner.at)
    counts = _counts(content, numpy_dtype(feature.dtype))
    return _shaped(feature, content, counts, np.stack(sizes, axis=1))


def _shaped(
    feature: Feature, found: np.ndarray | Spans, counts: np.ndarray, shapes: np.ndarray
) -> FeatureColumn:
    """The column of values with their shapes, which must fit the feature and the number of values.

    Args:
        feature: The feature.
        found: The values, flat, or the spans of their bytes.
        counts: int64 [B], the number of values in each record.
        shapes: int64 [B, rank], the shape of each record.
    """
    for axis, size in enumerate(feature.shape):
        _require(shapes[:, axis] >= 0 if size is None else shapes[:, axis] == size)
    # Unlike a product of integers, one of floats does not wrap around.
    _require(np.prod(shapes.astype(np.float64), axis=1) == counts)
    if isinstance(found, Spans):
        return FeatureColumn(None, shapes, LazyValues(found, numpy_dtype(feature.dtype)))
    return FeatureColumn(found, shapes)


def _flat_values(feature: Feature, spans: Spans, empty: Allocator) -> tuple[np.ndarray, np.ndarray]:
    """The values of raw bytes or of a list, flat, and the number of them per record, int64 [B]."""
    dtype = numpy_dtype(feature.dtype)
    if _kind(feature) == INT64_LIST:
        numbers, counts = _integers(spans, empty)
        values = numbers.astype(dtype, copy=False)
        if values is not numbers:
            held = values == numbers
            if not held.all():
                _require(np.logical_and.reduceat(held, np.cumsum(counts) - counts))
        return values, counts
    stored = np.dtype("<f4") if feature.encoding == "list" else dtype
    counts = _counts(spans, stored)
    return spans.joined(empty).view(stored).astype(dtype, copy=False), counts


def _counts(spans: Spans, dtype: np.dtype[Any]) -> np.ndarray:
    """The number of values of a fixed-width dtype in each record, int64 [B]."""
    _require(spans.lengths % dtype.itemsize == 0)
    return spans.lengths // dtype.itemsize


def _integers(spans: Spans, empty: Allocator) -> tuple[np.ndarray, np.ndarray]:
    """The values of packed varints, int64 [N], and the number of them per record, int64 [B]."""
    _require(spans.lengths > 0)
    octets = spans.joined(empty)
    stops = np.cumsum(spans.lengths)
    last = octets < 128
    _require(last[stops - 1])  # No varint continues into the next record.
    counts = np.add.reduceat(last, stops - spans.lengths, dtype=np.int64)
    return unpacked_varints(octets.data), counts
