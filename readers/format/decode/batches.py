"""A batch of serialized Examples -> columns of arrays, decoded together instead of one by one.

Examples of one writer have the same pieces in the same order. So all of them are walked at once: a
step reads the same piece, a tag, a length or a name, of every record with a few NumPy calls. Records
of another form are set aside for `Decoder`, whose result is the definition.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.decode.column import Column, Empty, Pieces, Scattered, objects
from readers.format.decode.records import parse_example
from readers.format.schema import (
    FLOATS_IN_A_LIST,
    PICTURES,
    TENSORFLOW_DTYPES,
    Feature,
    Schema,
    numpy_dtype,
)
from readers.format.tensor import tensor_header
from readers.format.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST, unpacked_varints, varint

# Bytes that have to stand behind the last record, so that no step looks outside of the buffer: a
# number may run over the end of a record before that is noticed, and eight bytes are read at a time.
MARGIN = 32

# How often records of another form are set aside before all are left to `Decoder`.
_ATTEMPTS = 8

# Lengths of records whose layout is kept: keys of a few lengths make records of as many.
_MAX_LAYOUTS = 256

# Lengths and sizes are below 2**63; a longer number is not in the usual form.
_LONGEST_VARINT = 9


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

    def __init__(self, data: np.ndarray, at: np.ndarray, stops: np.ndarray) -> None:
        self._octets = data
        # The eight bytes from each position on, as one number; a view.
        self._words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        self.at, self._stops = at, stops

    def expect(self, literal: bytes) -> None:
        """Passes the same bytes in every record."""
        _require(self.at + len(literal) <= self._stops)
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


class ColumnDecoder:
    """Turns batches of serialized Examples into columns; safe to share between threads.

    Args:
        schema: The features to decode.
        empty: Where large arrays come from.
    """

    def __init__(self, schema: Schema, empty: Empty = np.empty) -> None:
        self._schema, self._empty = schema, empty
        self._kinds = {name: _kind(feature) for name, feature in schema.items()}
        self._kinds |= {f"{n}/shape": INT64_LIST for n, f in schema.items() if f.needs_companion}
        self._layouts: dict[int, _Layout] = {}

    def decode(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, Column], np.ndarray]:
        """The columns of some Examples, as far as they can be decoded together.

        Args:
            data: uint8 [n], the Examples and, behind the last one, at least `MARGIN` bytes.
            starts, stops: int64 [B], where each begins and ends.

        Returns:
            The columns of those features that are one value or a run of numbers; and int64 [R],
            rising, which of the records they hold. Other features and records are for `Decoder`.
        """
        rows = np.arange(len(starts))
        for _ in range(_ATTEMPTS):
            if not len(rows):
                break
            try:
                return self._decode(data, starts[rows], stops[rows]), rows
            except _Irregular as error:
                # Where the first record is unlike most others it is the odd one, not they.
                most = 2 * np.count_nonzero(error.regular) > len(rows)
                rows = rows[error.regular] if most else rows[1:]
            except ValueError:  # The first record is no Example.
                rows = rows[1:]
        # All of them have all of no columns: so each is left to `Decoder` once.
        return {}, np.arange(len(starts))

    def _decode(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> dict[str, Column]:
        located = self._locate(data, starts, stops)
        columns = {}
        for name, pieces in located.items():
            if name in self._schema:
                column = _decode(
                    self._schema[name], pieces, located.get(f"{name}/shape"), self._empty
                )
                if column:
                    columns[name] = column
        return columns

    def _locate(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> dict[str, Pieces]:
        """Where the features stand that are one value or a run of numbers, by name.

        And their companions, where the shape is read from them.
        """
        length = int(stops[0] - starts[0])
        of_one_length = bool((stops - starts == length).all())
        layout = self._layouts.get(length) if of_one_length else None
        if layout and layout.fits(data, starts):
            return layout.pieces(data, starts)
        first = parse_example(data.data[starts[0] : stops[0]], self._kinds)
        pieces, skipped = {}, []
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
            if kind and kind == self._kinds.get(name) and len(chunks) == 1:
                walk.expect(bytes([kind << 3 | 2]))
                _require(walk.enter() == ends)
                walk.expect(b"\x0a")
                _require(walk.enter() == ends)
                pieces[name] = Pieces(data, walk.at, ends)
            elif name not in self._kinds:
                skipped.append(Pieces(data, walk.at, ends))
            walk.at = ends
        walk.leave(stops)
        if of_one_length:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            self._layouts[length] = _Layout.of_first(data, starts, stops, pieces, skipped)
        return pieces


@dataclass(frozen=True)
class _Layout:
    """Where features stand in all records that have the same bytes around them.

    Attributes:
        spans: Name -> where its piece begins and ends in a record.
        constant: Where bytes that are the same in all records begin, and these bytes.
    """

    spans: dict[str, tuple[int, int]]
    constant: tuple[tuple[int, np.ndarray], ...]

    @classmethod
    def of_first(
        cls,
        data: np.ndarray,
        starts: np.ndarray,
        stops: np.ndarray,
        pieces: dict[str, Pieces],
        skipped: Sequence[Pieces],
    ) -> _Layout:
        """The layout of the first of some records.

        Args:
            pieces: Of the features to decode.
            skipped: Of the others, which may hold anything.
        """
        start, stop = int(starts[0]), int(stops[0])
        found = [(int(p.starts[0]), int(p.stops[0])) for p in (*pieces.values(), *skipped)]
        free = [(start, start), *sorted(found), (stop, stop)]
        constant = tuple(
            (end - start, data[end:begin].copy())
            for (_, end), (begin, _) in itertools.pairwise(free)
            if end < begin
        )
        spans = zip(pieces, found, strict=False)
        return cls({name: (a - start, b - start) for name, (a, b) in spans}, constant)

    def fits(self, data: np.ndarray, starts: np.ndarray) -> bool:
        """Whether all of some records have it."""
        return all(
            bool((Pieces(data, starts + begin, starts).stacked(len(octets)) == octets).all())
            for begin, octets in self.constant
        )

    def pieces(self, data: np.ndarray, starts: np.ndarray) -> dict[str, Pieces]:
        """Where the features stand in records that have it."""
        return {
            name: Pieces(data, starts + begin, starts + end)
            for name, (begin, end) in self.spans.items()
        }


def _kind(feature: Feature) -> int:
    """The list in which a feature is one piece; 0 for one that is not."""
    if feature.is_sequence or feature.step:
        return 0
    if feature.encoding != "list":
        return BYTES_LIST if feature.dtype != "string" or feature.encoding == "text" else 0
    if feature.dtype == "string":
        return 0
    return FLOAT_LIST if feature.dtype in FLOATS_IN_A_LIST else INT64_LIST


def _decode(
    feature: Feature, pieces: Pieces, companion: Pieces | None, empty: Empty
) -> Column | None:
    if feature.encoding == "text" or feature.encoding in PICTURES:
        return Column(objects(pieces.each()))
    if feature.encoding == "tensor":
        if feature.is_fixed:
            return _fixed_tensors(feature, pieces, empty)
        return _tensors(feature, pieces, empty)
    if feature.is_fixed:
        values, counts = _packed(feature, pieces, empty)
        _require(counts == math.prod(_known(feature)))
        return Column(values.reshape(-1, *_known(feature)))
    found: np.ndarray | Pieces
    if feature.encoding == "raw" or feature.dtype == "float32":
        found, counts = pieces, _counts(pieces, numpy_dtype(feature.dtype))
    else:
        found, counts = _packed(feature, pieces, empty)
    if companion:
        rank = Feature("int64", (len(feature.shape),), "list")
        shapes, ranks = _packed(rank, companion, empty)
        _require(ranks == len(feature.shape))
        return _shaped(feature, found, counts, shapes.reshape(-1, len(feature.shape)))
    known = math.prod(_known(feature))
    if feature.shape.count(None) > 1 or not known:
        return None
    sizes = [counts // known if d is None else np.full_like(counts, d) for d in feature.shape]
    return _shaped(feature, found, counts, np.stack(sizes, axis=1))


def _fixed_tensors(feature: Feature, pieces: Pieces, empty: Empty) -> Column:
    dtype, shape = numpy_dtype(feature.dtype), tuple(_known(feature))
    header, nbytes = tensor_header(feature.dtype, shape), math.prod(shape) * dtype.itemsize
    _require(pieces.lengths == len(header) + nbytes)
    walk = _Walk(pieces.data, pieces.starts, pieces.stops)
    walk.expect(header)
    values = pieces.after(walk.at).stacked(nbytes, empty)
    return Column(values.view(dtype).reshape(-1, *shape))


def _tensors(feature: Feature, pieces: Pieces, empty: Empty) -> Column:
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
    content = pieces.after(walk.at)
    counts = _counts(content, numpy_dtype(feature.dtype))
    return _shaped(feature, content, counts, np.stack(sizes, axis=1))


def _shaped(
    feature: Feature, found: np.ndarray | Pieces, counts: np.ndarray, shapes: np.ndarray
) -> Column:
    """The column of values, flat or where they stand; each record has so many, int64 [B]."""
    for axis, size in enumerate(feature.shape):
        _require(shapes[:, axis] >= 0 if size is None else shapes[:, axis] == size)
    # Reals do not wrap around as a product of integers would.
    _require(np.prod(shapes.astype(np.float64), axis=1) == counts)
    if isinstance(found, Pieces):
        return Column(None, shapes, Scattered(found, numpy_dtype(feature.dtype)))
    return Column(found, shapes)


def _packed(feature: Feature, pieces: Pieces, empty: Empty) -> tuple[np.ndarray, np.ndarray]:
    """The values of raw bytes or of a list, flat, and how many each record has, int64 [B]."""
    dtype = numpy_dtype(feature.dtype)
    if _kind(feature) == INT64_LIST:
        numbers, counts = _integers(pieces, empty)
        values = numbers.astype(dtype, copy=False)
        if values is not numbers:
            held = values == numbers
            if not held.all():
                _require(np.logical_and.reduceat(held, np.cumsum(counts) - counts))
        return values, counts
    stored = np.dtype("<f4") if feature.encoding == "list" else dtype
    counts = _counts(pieces, stored)
    return pieces.joined(empty).view(stored).astype(dtype, copy=False), counts


def _counts(pieces: Pieces, dtype: np.dtype[Any]) -> np.ndarray:
    """How many values each record has, int64 [B]."""
    _require(pieces.lengths % dtype.itemsize == 0)
    return pieces.lengths // dtype.itemsize


def _integers(pieces: Pieces, empty: Empty) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of packed varints, int64 [N], and how many each record has, int64 [B]."""
    _require(pieces.lengths > 0)
    octets = pieces.joined(empty)
    stops = np.cumsum(pieces.lengths)
    last = octets < 128
    _require(last[stops - 1])  # No number runs on into the next record.
    counts = np.add.reduceat(last, stops - pieces.lengths, dtype=np.int64)
    return unpacked_varints(octets.data), counts


def _known(feature: Feature) -> list[int]:
    return [d for d in feature.shape if d is not None]
