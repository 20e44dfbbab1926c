"""Specs: the dtype and shape of an array in each record, and which arrays fit."""

from __future__ import annotations

import functools
from dataclasses import dataclass

# An array without values takes no bytes, whatever its sizes, but a batch of such arrays does.
MAX_EMPTY_SIZE = 1 << 20


@dataclass(frozen=True)
class Spec:
    """The dtype of an array, a key of `TENSORFLOW_DTYPES`, and its shape in one record; None is a size that varies."""

    dtype: str
    shape: tuple[int | None, ...] = ()

    @functools.cached_property
    def is_sequence(self) -> bool:
        """Whether the value in a record is a list of arrays, rather than one array."""
        return False

    @functools.cached_property
    def is_fixed(self) -> bool:
        """Whether the shape is the same in every record."""
        return None not in self.shape

    @functools.cached_property
    def known_sizes(self) -> tuple[int, ...]:
        """The known sizes in the shape: all of them if the shape is fixed."""
        return tuple(size for size in self.shape if size is not None)


def format_shape(shape: tuple[int | None, ...]) -> str:
    """A shape as shown in error messages and reports: `[224, 224, 3]`, `[None, 6]` or `[]`."""
    return "[" + ", ".join(str(d) for d in shape) + "]"


def format_found(shape: tuple[int, ...]) -> str:
    """A shape that does not fit, as shown in error messages; with the reason if a size is too large."""
    if not _is_long_and_empty(shape):
        return format_shape(shape)
    return f"{format_shape(shape)}: with a size of 0, others may be at most {MAX_EMPTY_SIZE}"


def fits(expected: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    """Whether a shape has the expected rank and the expected size in every known dimension.

    A shape with a size of 0 and another above `MAX_EMPTY_SIZE` never fits.
    """
    if _is_long_and_empty(found):
        return False
    if expected == found:
        return True
    if len(expected) != len(found):
        return False
    for size, actual in zip(expected, found, strict=True):  # `all` takes twice as long.
        if size is not None and size != actual:
            return False
    return True


def _is_long_and_empty(shape: tuple[int, ...]) -> bool:
    return 0 in shape and max(shape) > MAX_EMPTY_SIZE
