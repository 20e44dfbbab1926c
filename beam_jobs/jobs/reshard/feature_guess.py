"""Facts learned about one feature from some records; the order in which they merge is irrelevant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from beam_jobs.jobs.reshard.values import ValueList, image_format, is_gray, is_utf8, tensor_type
from readers.format.dtypes import numpy_dtype
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST
from readers.format.schema import Feature

Shape = tuple[int | None, ...]

_NUMBERS = {FLOAT_LIST: "float32", INT64_LIST: "int64"}

# The most dimensions of a tensor, as in TensorFlow. The product of more sizes could take very long.
_MAX_RANK = 254


@dataclass
class CommonShape:
    """The shape that some arrays have in common.

    Attributes:
        count: The number of arrays.
        shape: Holds None for a size that differs; is None if ranks differ or there is no array.
    """

    count: int = 0
    shape: Shape | None = None

    def add(self, shape: Shape) -> None:
        """Adds an array."""
        self.merge(CommonShape(1, shape))

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

    def add(self, value: memoryview) -> None:
        """Adds a byte string.

        Raises:
            UsageError: It is a tensor whose dtype needs a package that is not installed.
        """
        found, tensor = image_format(value), tensor_type(value)
        self.utf8 = self.utf8 and is_utf8(value)
        self.formats.add(found)
        self.gray = self.gray and (not found or is_gray(value))
        self.dtypes.add(tensor[0] if tensor else "")
        if tensor:
            self.shape.add(tensor[1])

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

    def add(self, sizes: list[int], found: ValueList | None) -> None:
        """Compares the list `<name>/shape` of a record, which is not empty, with `<name>`, if it has that."""
        count = found.size if found else 0
        whole = len(sizes) <= _MAX_RANK and min(sizes) >= 0
        self.of_list &= whole and math.prod(sizes) == count
        types = [tensor_type(value) for value in found.values] if found else []
        tensors = [one for one in types if one]
        of_all = 0 < len(tensors) == len(types)
        self.of_tensor &= of_all and [list(shape) for _, shape in tensors] == [sizes]
        self.of_sequence &= of_all and _rows_of(tensors) == sizes
        self.shape.add(tuple(sizes))
        self.filled += count > 0

    def merge(self, other: ShapesGuess) -> None:
        """Adds the facts of another instance."""
        self.of_list &= other.of_list
        self.of_tensor &= other.of_tensor
        self.of_sequence &= other.of_sequence
        self.shape.merge(other.shape)
        self.filled += other.filled


def _rows_of(tensors: list[tuple[str, tuple[int, ...]]]) -> list[int]:
    """What the encoding `sequence` stores of tensors: of each its bytes and its shape; nothing of texts."""
    return [
        number
        for dtype, shape in tensors
        if dtype != "string"
        for number in (math.prod(shape) * numpy_dtype(dtype).itemsize, *shape)
    ]


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

    def add(self, found: ValueList) -> None:
        """Adds a list that has a kind."""
        self.kinds[found.kind] += 1
        if found.size:
            self.size.add((found.size,))
        if found.kind == BYTES_LIST:
            for value in found.values:
                self.values.add(value)

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
