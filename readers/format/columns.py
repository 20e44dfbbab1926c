"""A batch of serialized Examples -> columns of arrays, decoded together instead of one by one.

Examples of one writer have the same pieces in the same order. So all of them are walked at once: a
step reads the same piece, a tag, a length or a name, of every record with a few NumPy calls. A batch
in which a record has another form is left to `Decoder`, whose result is the definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.parse import parse_example
from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    TENSORFLOW_DTYPES,
    Feature,
    Schema,
    numpy_dtype,
)
from readers.format.tensor import tensor_header
from readers.format.wire import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    unpacked_varints,
    varint,
)

# Bytes that have to stand behind the last record, so that no step looks outside of the buffer: the
# longest name, the longest number, and the eight bytes that are read at a time.
MARGIN = 1024

# How often records of another form are set aside before all are left to `Decoder`.
_ATTEMPTS = 8

# Lengths and sizes are below 2**63; a longer number is not in the usual form.
_LONGEST_VARINT = 9


@dataclass(frozen=True)
class Column:
    """One feature of B records.

    Attributes:
        values: [B, *shape] where the shape is fixed; else flat [N], record after record. Strings
            are bytes in an object array. Of a sequence, and of pictures still encoded, an object
            array [B] of lists of arrays, or of bytes.
        shapes: int64 [B, rank], the shape of each record; None where the values are no flat ones.
    """

    values: np.ndarray
    shapes: np.ndarray | None = None

    def part(self, start: int, stop: int) -> Column:
        """The column of the records from start to stop; its values are views."""
        if self.shapes is None:
            return Column(self.values[start:stop])
        before, within = np.split(np.prod(self.shapes[:stop], axis=1), [start])
        first = int(before.sum())
        return Column(self.values[first : first + int(within.sum())], self.shapes[start:stop])

    def arrays(self) -> list[Any]:
        """The value of each record; arrays are views."""
        if self.shapes is None:
            return list(self.values)
        counts = np.prod(self.shapes, axis=1)
        ends = np.cumsum(counts)
        places = zip((ends - counts).tolist(), ends.tolist(), self.shapes.tolist(), strict=True)
        return [self.values[start:end].reshape(shape) for start, end, shape in places]


def column_of(feature: Feature, values: Sequence[Any]) -> Column:
    """The column of the values of records, as `Decoder` gives them (pictures: or their pixels).

    It shares no memory with them.
    """
    if feature.encoding == "sequence":
        return Column(_objects([[array.copy() for array in value] for value in values]))
    if values and isinstance(values[0], bytes):
        return Column(_objects(values))
    if feature.is_fixed:
        return Column(np.stack(values) if values else np.empty(0))
    shapes = np.array([value.shape for value in values], np.int64)
    return Column(np.concatenate([value.reshape(-1) for value in values]), shapes)


def merged(feature: Feature, parts: Sequence[tuple[np.ndarray, Column]]) -> Column:
    """One column of several, each with the rows, int64 [n], that it has in it."""
    total = sum(len(rows) for rows, _ in parts)
    if parts[0][1].shapes is None:
        values = parts[0][1].values
        out = np.empty((total, *values.shape[1:]), values.dtype)
        for rows, column in parts:
            out[rows] = column.values
        return Column(out)
    arrays: list[Any] = [None] * total
    for rows, column in parts:
        for row, array in zip(rows.tolist(), column.arrays(), strict=True):
            arrays[row] = array
    return column_of(feature, arrays)


@dataclass(frozen=True)
class Pieces:
    """Where one feature stands in each of B records.

    Attributes:
        data: The records and `MARGIN` bytes.
        starts, stops: int64 [B]; of the one bytes value, or of the packed numbers.
    """

    data: bytes | bytearray
    starts: np.ndarray
    stops: np.ndarray

    @property
    def octets(self) -> np.ndarray:
        """The data as uint8 [n]."""
        return np.frombuffer(self.data, np.uint8)

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each, int64 [B]."""
        return self.stops - self.starts

    def each(self) -> list[bytes]:
        """The bytes of each."""
        view = memoryview(self.data)
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return [bytes(view[start:stop]) for start, stop in rows]

    def joined(self) -> bytearray:
        """The bytes of all."""
        view = memoryview(self.data)
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return bytearray().join([view[start:stop] for start, stop in rows])

    def stacked(self, length: int) -> np.ndarray:
        """So many bytes of each, from its start on: uint8 [B, length]."""
        rows = len(self.data) - length + 1
        return np.ndarray((rows, length), np.uint8, self.data, strides=(1, 1))[self.starts]


def _objects(items: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(items), object)
    # Assigned one by one: NumPy would merge arrays and lists that happen to have one shape.
    for row, item in enumerate(items):
        out[row] = item
    return out


class _Irregular(Exception):
    """Some records have not the form of the others.

    Args:
        regular: bool [B], which have.
    """

    def __init__(self, regular: np.ndarray) -> None:
        super().__init__()
        self.regular = regular


class _Walk:
    """A position in each of B records, which all move on together.

    Raises:
        _Irregular: By every step, when a record has not what the step is for.
    """

    def __init__(self, data: bytes | bytearray, at: np.ndarray, stops: np.ndarray) -> None:
        self._octets = np.frombuffer(data, np.uint8)
        # The eight bytes from each position on, as one number; a view.
        self._words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at, self._stops = at, stops

    def expect(self, literal: bytes) -> None:
        """Passes the same bytes in every record."""
        for start in range(0, len(literal), 8):
            piece = literal[start : start + 8]
            found = self._words[self.at + start]
            if len(piece) < 8:
                found &= np.uint64((1 << 8 * len(piece)) - 1)
            _require(found == np.uint64(int.from_bytes(piece, "little")))
        self.at = self.at + len(literal)

    def varint(self) -> np.ndarray:
        """Passes a number in every record: int64 [B]."""
        octet = self._octets[self.at]
        value = octet.astype(np.int64)
        self.at = self.at + 1
        more = octet >= 128
        if more.any():
            value &= 127
        for place in range(1, _LONGEST_VARINT):
            if not more.any():
                return value
            octet = self._octets[self.at] * more
            value += (octet & 127).astype(np.int64) << 7 * place
            self.at = self.at + more
            more = octet >= 128
        _require(~more)
        return value

    def enter(self) -> np.ndarray:
        """Passes a length: the end of what it counts, int64 [B]."""
        length = self.varint()
        _require(length <= self._stops - self.at)
        return self.at + length

    def leave(self, ends: np.ndarray) -> None:
        """Makes sure that every position is at the end of what was entered."""
        _require(self.at == ends)


def _require(holds: np.ndarray) -> None:
    if not holds.all():
        raise _Irregular(holds)


def decode_columns(
    data: bytes | bytearray, starts: np.ndarray, stops: np.ndarray, schema: Schema
) -> tuple[dict[str, Column], np.ndarray]:
    """The columns of some Examples, as far as they can be decoded together.

    Args:
        data: The Examples and, behind the last one, at least `MARGIN` bytes.
        starts, stops: int64 [B], where each begins and ends.
        schema: The features to decode.

    Returns:
        The columns of those features that are one value or a run of numbers; and int64 [R], rising,
        which of the records they hold. Other features and records are for `Decoder`.
    """
    rows = np.arange(len(starts))
    for _ in range(_ATTEMPTS):
        if not len(rows):
            break
        try:
            return _decode_all(data, starts[rows], stops[rows], schema), rows
        except _Irregular as error:
            # Where the first record is unlike most others it is the odd one, not they.
            most = 2 * np.count_nonzero(error.regular) > len(rows)
            rows = rows[error.regular] if most else rows[1:]
        except ValueError:  # The first record is no Example.
            rows = rows[1:]
    return {}, np.empty(0, np.int64)


def _decode_all(
    data: bytes | bytearray, starts: np.ndarray, stops: np.ndarray, schema: Schema
) -> dict[str, Column]:
    located = _locate(data, starts, stops, schema)
    columns = {}
    for name, pieces in located.items():
        if name in schema:
            column = _decode(schema[name], pieces, located.get(f"{name}/shape"))
            if column:
                columns[name] = column
    return columns


def _locate(
    data: bytes | bytearray, starts: np.ndarray, stops: np.ndarray, schema: Schema
) -> dict[str, Pieces]:
    """Where the features of a schema stand that are one value or a run of numbers, by name.

    And their companions, where the shape is read from them.
    """
    kinds = {name: _kind(feature) for name, feature in schema.items()}
    kinds |= {f"{name}/shape": INT64_LIST for name, f in schema.items() if f.needs_companion}
    first = parse_example(memoryview(data)[int(starts[0]) : int(stops[0])], kinds)
    pieces = {}
    walk = _Walk(data, starts, stops)
    walk.expect(b"\x0a")
    ends = walk.enter()
    _require(ends == stops)
    for name, (kind, chunks) in first.items():
        key = name.encode()
        walk.expect(b"\x0a")
        ends = walk.enter()
        walk.expect(b"\x0a" + varint(len(key)) + key + b"\x12")
        _require(walk.enter() == ends)
        if name in kinds and kind == kinds[name] and len(chunks) == 1:
            walk.expect(bytes([kind << 3 | 2]))
            _require(walk.enter() == ends)
            walk.expect(b"\x0a")
            _require(walk.enter() == ends)
            pieces[name] = Pieces(data, walk.at, ends)
        walk.at = ends
    walk.leave(stops)
    return pieces


def _kind(feature: Feature) -> int:
    """The list in which a feature is one piece; 0 for one that is not."""
    if feature.encoding == "sequence":
        return 0
    if feature.encoding != "list":
        return BYTES_LIST if feature.dtype != "string" or feature.encoding == "text" else 0
    if feature.dtype == "string":
        return 0
    return FLOAT_LIST if feature.dtype in FLOATS_IN_A_LIST else INT64_LIST


def _decode(feature: Feature, pieces: Pieces, companion: Pieces | None) -> Column | None:
    if feature.encoding == "text" or feature.encoding in PICTURES:
        return Column(_objects(pieces.each()))
    if feature.encoding == "tensor":
        return _fixed_tensors(feature, pieces) if feature.is_fixed else _tensors(feature, pieces)
    values, counts = _packed(feature, pieces)
    if feature.is_fixed:
        _require(counts == math.prod(_known(feature)))
        return Column(values.reshape(-1, *_known(feature)))
    if companion:
        rank = Feature("int64", (len(feature.shape),), "list")
        shapes, ranks = _packed(rank, companion)
        _require(ranks == len(feature.shape))
        return _shaped(feature, values, counts, shapes.reshape(-1, len(feature.shape)))
    known = math.prod(_known(feature))
    if feature.shape.count(None) > 1 or not known:
        return None
    sizes = [counts // known if d is None else np.full_like(counts, d) for d in feature.shape]
    return _shaped(feature, values, counts, np.stack(sizes, axis=1))


def _fixed_tensors(feature: Feature, pieces: Pieces) -> Column:
    dtype, shape = numpy_dtype(feature.dtype), tuple(_known(feature))
    header, nbytes = tensor_header(feature.dtype, shape), math.prod(shape) * dtype.itemsize
    _require(pieces.lengths == len(header) + nbytes)
    walk = _Walk(pieces.data, pieces.starts, pieces.stops)
    walk.expect(header)
    values = Pieces(pieces.data, walk.at, pieces.stops).stacked(nbytes)
    return Column(values.view(dtype).reshape(-1, *shape))


def _tensors(feature: Feature, pieces: Pieces) -> Column:
    """TensorProtos as `serialize_tensor` writes them, of values of any number but none."""
    walk = _Walk(pieces.data, pieces.starts, pieces.stops)
    walk.expect(bytes([8, TENSORFLOW_DTYPES[feature.dtype], 18]))
    shape_ends = walk.enter()
    sizes = []
    for known in feature.shape:
        walk.expect(b"\x12")
        ends = walk.enter()
        walk.expect(b"\x08")
        size = walk.varint()
        walk.leave(ends)
        if known is not None:
            _require(size == known)
        sizes.append(size)
    walk.leave(shape_ends)
    walk.expect(b"\x22")
    _require(walk.enter() == pieces.stops)
    content = Pieces(pieces.data, walk.at, pieces.stops)
    values, counts = _content(content, numpy_dtype(feature.dtype))
    return _shaped(feature, values, counts, np.stack(sizes, axis=1))


def _shaped(feature: Feature, values: np.ndarray, counts: np.ndarray, shapes: np.ndarray) -> Column:
    """The column of flat values, of which each record has so many, int64 [B]."""
    for axis, size in enumerate(feature.shape):
        _require(shapes[:, axis] >= 0 if size is None else shapes[:, axis] == size)
    # Reals do not wrap around as a product of integers would.
    _require(np.prod(shapes.astype(np.float64), axis=1) == counts)
    return Column(values, shapes)


def _packed(feature: Feature, pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """The values of raw bytes or of a list, flat, and how many each record has, int64 [B]."""
    dtype = numpy_dtype(feature.dtype)
    if _kind(feature) == INT64_LIST:
        numbers, counts = _integers(pieces)
        values = numbers.astype(dtype, copy=False)
        if values is not numbers:
            held = values == numbers
            if not held.all():
                _require(np.logical_and.reduceat(held, np.cumsum(counts) - counts))
        return values, counts
    stored = np.dtype("<f4") if feature.encoding == "list" else dtype
    values, counts = _content(pieces, stored)
    return values.astype(dtype, copy=False), counts


def _content(pieces: Pieces, dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The values of bytes, flat, and how many each record has, int64 [B]."""
    lengths = pieces.lengths
    _require(lengths % dtype.itemsize == 0)
    if len(lengths) and (lengths == lengths[0]).all():
        stacked = pieces.stacked(int(lengths[0]))
        return stacked.reshape(-1).view(dtype), lengths // dtype.itemsize
    return np.frombuffer(pieces.joined(), dtype), lengths // dtype.itemsize


def _integers(pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of packed varints, int64 [N], and how many each record has, int64 [B]."""
    _require(pieces.lengths > 0)
    octets = np.frombuffer(pieces.joined(), np.uint8)
    stops = np.cumsum(pieces.lengths)
    last = octets < 128
    _require(last[stops - 1])  # No number runs on into the next record.
    counts = np.add.reduceat(last, stops - pieces.lengths, dtype=np.int64)
    return unpacked_varints(octets.data), counts


def _known(feature: Feature) -> list[int]:
    return [d for d in feature.shape if d is not None]
