"""The base class of encodings, and the parts shared by encodings of a single bytes value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from readers.format.encodings.spec import Spec, format_shape
from readers.format.encodings.values import all_fit, checked_array
from readers.format.protobuf.wire import BYTES_LIST, Parts, varint


@dataclass(frozen=True)
class Stored:
    """How records store an array of numbers, or a bytes value, for the kernel.

    Attributes:
        form: The form, as in `compiled/library.py`.
        dtype: The dtype to copy the values in; they are converted if the feature has another one.
        shape: The shape; sizes may be None. A bytes value has none.
        header: The bytes before the values, or before the shape.
        may_store_shape: Whether a record may store the shape in a separate feature, `<name>/shape`.
    """

    form: int
    kind: int
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None
    header: bytes = b""
    may_store_shape: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether the values have the same size in all records."""
        return self.shape is not None and None not in self.shape


@dataclass(frozen=True)
class Encoding:
    """How an Example stores the values of a feature.

    A spec is the dtype and shape of the feature, and must fit the encoding: `problem` is None. A new encoding
    is a subclass, and a line in `table.py`.

    Attributes:
        is_image: Whether a value, or each step of it, is an encoded image.
        is_text: Whether a value, or each step of it, is one text in UTF-8.
        is_bytes: Whether `checked` returns bytes that are stored unchanged.
        is_one_value: Whether an Example holds the feature as a single bytes value.
        is_packed: Whether this value is compressed.
        may_be_missing: Whether an Example without the feature means an empty value, if the shape is unknown.
    """

    name: str
    is_image: bool = False
    is_text: bool = False
    is_bytes: bool = False
    is_one_value: bool = False
    is_packed: bool = False
    may_be_missing: bool = False

    def described(self, spec: Spec) -> str:
        """A feature as shown in error messages."""
        return f"{spec.dtype} {format_shape(spec.shape)}, {self.name}"

    def problem(self, spec: Spec) -> str | None:
        """The reason why a feature cannot have this encoding; None if it can."""
        return None

    def is_sequence(self, spec: Spec) -> bool:
        """Whether the value in a record is a list of arrays."""
        return False

    def stores_shape(self, spec: Spec) -> bool:
        """Whether an Example stores an int64 list `<name>/shape` next to the value."""
        return False

    def reads_shape(self, spec: Spec) -> bool:
        """Whether readers take the shape from `<name>/shape`, if an Example has it."""
        return False

    def checked(self, name: str, spec: Spec, value: Any) -> Any:
        """Checks a value that `Encoder.encode` takes, and converts it to the form that is encoded.

        Raises:
            ValueError: The value does not fit; the message names the feature, what was expected and what was found.
        """
        return checked_array(name, spec, value)

    def checked_all(self, name: str, spec: Spec, values: Sequence[Any]) -> Sequence[Any]:
        """`checked` of many values, in a tenth of the time for arrays that are as they must be."""
        is_array = spec.shape and spec.dtype != "string" and not self.is_image
        if is_array and not self.is_sequence(spec) and all_fit(spec, values):
            return values
        return [self.checked(name, spec, value) for value in values]

    def shape_of(self, value: Any) -> np.ndarray:
        """The content of `<name>/shape` for a checked value, int64 [n]."""
        return np.array(value.shape, np.int64)

    def parts(self, spec: Spec, value: Any) -> Parts:
        """The serialized `tf.train.Feature` of a checked value, in parts; feature lists have none."""
        raise NotImplementedError

    def layout(self, spec: Spec, value: Any) -> tuple[Any, bytes | np.ndarray]:
        """The layout that determines the bytes of `parts` before the content, and the content; None if the whole value does."""
        return None, b""

    def value(
        self, spec: Spec, kind: int, chunks: list[memoryview], shape: list[memoryview]
    ) -> Any:
        """Decodes the value of a feature in one record, which defines the result; ValueError if it does not fit the spec.

        Args:
            kind: The kind of the Example's list; 0 for none.
            chunks: Its bytes values, or runs of packed numbers.
            shape: The runs of packed numbers in `<name>/shape`; empty if the Example lacks it.
        """
        raise NotImplementedError

    def stored(self, spec: Spec) -> Stored | None:
        """How the kernel finds the values; None if it cannot."""
        return None


def bytes_values(kind: int, chunks: list[memoryview]) -> list[memoryview]:
    """The bytes values of a feature; ValueError if it holds numbers."""
    if kind not in (0, BYTES_LIST):
        raise ValueError(
            "the Example holds numbers, but bytes were expected; numbers have the encoding list"
        )
    return chunks


def one_value(kind: int, chunks: list[memoryview]) -> memoryview:
    """The single bytes value of a feature; ValueError if it holds numbers, or not exactly one value."""
    if len(bytes_values(kind, chunks)) != 1:
        raise ValueError(f"expected one bytes value, found {len(chunks)}")
    return chunks[0]


def size_of(parts: Parts) -> int:
    """The total length of some parts, in bytes."""
    return sum(map(len, parts))


def bytes_list(values: list[Parts]) -> Parts:
    """A serialized list of bytes values, in parts, so that large values are not copied twice."""
    body: Parts = []
    for parts in values:
        body += (b"\x0a" + varint(size_of(parts)), *parts)
    return [b"\x0a" + varint(size_of(body)), *body]
