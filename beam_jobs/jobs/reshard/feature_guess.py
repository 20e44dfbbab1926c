"""Facts learned about one feature from some records; the order in which they merge is irrelevant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from beam_jobs.jobs.reshard.byte_values import are_utf8, image_formats, tensor_shapes, value_counts
from beam_jobs.jobs.reshard.example_lists import Lists
from readers.format.decode.column import Spans
from readers.format.dtypes import numpy_dtype
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST, unpacked_varints
from readers.format.schema import Feature

Shape = tuple[int | None, ...]

_NUMBERS = {FLOAT_LIST: "float32", INT64_LIST: "int64"}


@dataclass
class CommonShape:
    """The shape that some arrays have in common.

    Attributes:
        count: The number of arrays.
        shape: Holds None for a size that differs; is None if ranks differ or there is no array.
    """

    count: int = 0
    shape: Shape | None = None

    @classmethod
    def of(cls, shapes: np.ndarray) -> CommonShape:
        """The common shape of some shapes of one rank, int64 [n, rank]."""
        if not len(shapes):
            return cls()
        same = (shapes == shapes[0]).all(axis=0).tolist()
        sizes = zip(shapes[0].tolist(), same, strict=True)
        return cls(len(shapes), tuple(size if agreed else None for size, agreed in sizes))

    def merge(self, other: CommonShape) -> None:
        """Adds the arrays of another instance."""
        if not self.count:
            self.shape = other.shape
        elif other.count:
            self.shape = _common(self.shape, other.shape)
        self.count += other.count


def _common(shape: Shape | None, other: Shape | None) -> Shape | None:
    if shape is None or other is None or len(shape) != len(other):
        return None
    return tuple(a if a == b else None for a, b in zip(shape, other, strict=True))


@dataclass
class ValuesGuess:
    """Facts about byte strings.

    Attributes:
        utf8: Whether all are UTF-8.
        formats: Their image formats by their first bytes: "jpeg", "png", or "" for other bytes.
        gray: Whether all images are gray.
        dtypes: The dtypes of the TensorProtos they are; "" if one is not a TensorProto.
        shape: The common shape of the TensorProtos.
    """

    utf8: bool = True
    formats: set[str] = field(default_factory=set)
    gray: bool = True
    dtypes: set[str] = field(default_factory=set)
    shape: CommonShape = field(default_factory=CommonShape)

    @classmethod
    def of(cls, values: Spans) -> ValuesGuess:
        """The facts about some byte strings."""
        if not len(values.starts):
            return cls()
        formats, gray = image_formats(values)
        dtype, shapes = tensor_shapes(values) or ("", np.empty((0, 0), np.int64))
        return cls(are_utf8(values), formats, gray, {dtype}, CommonShape.of(shapes))

    def merge(self, other: ValuesGuess) -> None:
        """Adds the facts of another instance."""
        self.utf8 &= other.utf8
        self.formats |= other.formats
        self.gray &= other.gray
        self.dtypes |= other.dtypes
        self.shape.merge(other.shape)

    @property
    def tensor(self) -> Feature | None:
        """The feature of one tensor in every record; None if dtypes or ranks differ."""
        if self.shape.shape is None or len(self.dtypes) > 1:
            return None
        return Feature(min(self.dtypes), self.shape.shape, "tensor")

    def feature(self) -> Feature:
        """The feature of one value in every record."""
        if self.tensor:
            return self.tensor
        if self.formats and "" not in self.formats:
            encoding = "source" if len(self.formats) > 1 else min(self.formats)
            return Feature("uint8", (None, None, 1 if self.gray else 3), encoding)
        return Feature("string") if self.utf8 else Feature("string", (), "list")


@dataclass
class ShapesGuess:
    """Whether an int64 list `<name>/shape` is the shape of `<name>` in the same record.

    Attributes:
        of_list: Whether its product is the number of values in each list.
        of_tensor: Whether it is the shape of each tensor.
        of_sequence: Whether it has a row for each tensor, as in the encoding `sequence`.
        shape: The common shape it holds.
        filled: The number of records in which both lists have a value.
    """

    of_list: bool = True
    of_tensor: bool = True
    of_sequence: bool = True
    shape: CommonShape = field(default_factory=CommonShape)
    filled: int = 0

    @classmethod
    def of(cls, shapes: Lists, lists: list[Lists]) -> ShapesGuess:
        """Compares the lists `<name>/shape` and `<name>` of some records."""
        rows, ranks = shapes.rows[shapes.counts > 0], shapes.counts[shapes.counts > 0]
        if not len(rows):
            return cls()
        held = np.zeros(1 + max(int(part.rows[-1]) for part in (shapes, *lists)), np.int64)
        for part in lists:
            held[part.rows] = part.counts
        counts = held[rows]
        values = next((part.pieces for part in lists if part.kind == BYTES_LIST), None)
        # Includes tensors of records without a shape; `filled` counts the others.
        tensors = tensor_shapes(values) if values else None
        sizes = unpacked_varints(shapes.pieces.joined(np.empty).data)
        table = sizes.reshape(len(rows), -1) if (ranks == ranks[0]).all() else None
        return cls(
            table is not None
            and bool((table >= 0).all() and (value_counts(table) == counts).all()),
            table is not None and tensors is not None and np.array_equal(table, tensors[1]),
            tensors is not None and _are_rows(sizes, ranks, counts, *tensors),
            CommonShape(len(rows)) if table is None else CommonShape.of(table),
            int(np.count_nonzero(counts)),
        )

    def merge(self, other: ShapesGuess) -> None:
        """Adds the facts of another instance."""
        self.of_list &= other.of_list
        self.of_tensor &= other.of_tensor
        self.of_sequence &= other.of_sequence
        self.shape.merge(other.shape)
        self.filled += other.filled


def _are_rows(
    numbers: np.ndarray, lengths: np.ndarray, counts: np.ndarray, dtype: str, shapes: np.ndarray
) -> bool:
    """Whether each list has a row for each tensor of its record: size in bytes, then shape.

    Args:
        numbers: int64 [N], the lists of all records, joined.
        lengths, counts: int64 [n], how many numbers and tensors each record has.
        dtype, shapes: The dtype of the tensors, and int64 [N, rank].
    """
    if dtype == "string":
        return False
    nbytes = np.prod(shapes, axis=1) * numpy_dtype(dtype).itemsize
    rows = np.column_stack([nbytes, shapes])
    whole = np.array_equal(lengths, counts * rows.shape[1])
    return whole and np.array_equal(numbers, rows.reshape(-1))


@dataclass
class FeatureGuess:
    """Facts about a feature.

    Attributes:
        kinds: How many records have it as a list of each kind, empty lists included.
        size: The common number of values in lists that are not empty.
        values: Facts about the values of bytes lists.
        shapes: Of a feature `<name>/shape`: how it relates to the feature `<name>`.
    """

    kinds: Counter[int] = field(default_factory=Counter)
    size: CommonShape = field(default_factory=CommonShape)
    values: ValuesGuess = field(default_factory=ValuesGuess)
    shapes: ShapesGuess = field(default_factory=ShapesGuess)

    @classmethod
    def of(cls, lists: Lists) -> FeatureGuess:
        """The facts about some lists."""
        size = CommonShape.of(lists.counts[lists.counts > 0][:, None])
        values = ValuesGuess.of(lists.pieces) if lists.kind == BYTES_LIST else ValuesGuess()
        return cls(Counter({lists.kind: len(lists.rows)}), size, values)

    def merge(self, other: FeatureGuess) -> None:
        """Adds the facts of another instance."""
        self.kinds.update(other.kinds)
        self.size.merge(other.size)
        self.values.merge(other.values)
        self.shapes.merge(other.shapes)

    @property
    def dtype(self) -> str:
        """The dtype of its lists, which must all have one kind."""
        return _NUMBERS.get(min(self.kinds), "string")

    def feature(self, records: int) -> Feature:
        """The schema entry, given the number of records or steps; ignores `<name>/shape`."""
        if self.size.count < records or self.size.shape is None or self.size.shape == (None,):
            return Feature(self.dtype, (None,), "list")
        if self.size.shape != (1,):
            return Feature(self.dtype, self.size.shape, "list")
        return Feature(self.dtype) if self.dtype != "string" else self.values.feature()
