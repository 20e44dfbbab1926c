"""What byte strings are: tensors, pictures or text."""

from __future__ import annotations

import math

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.example_walk import Walk
from readers.format.decode.batches import MARGIN
from readers.format.decode.column import Pieces
from readers.format.schema import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.tensor import parse_tensor, tensor_header

_DTYPES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

_JPEG = np.frombuffer(b"\xff\xd8\xff", np.uint8)

_PNG = np.frombuffer(b"\x89PNG\r\n\x1a\n", np.uint8)

# Where a PNG has its type of colours, and which are gray.
_PNG_COLOURS, _PNG_GRAY = 25, (0, 4)

# Segments of a JPEG before its frame: a large colour profile takes up to 255.
_MAX_SEGMENTS = 1000

# Of the markers from C0 to CF those that begin no frame.
_NO_FRAME = (0xC4, 0xC8, 0xCC)


def tensor_shapes(values: Pieces) -> tuple[str, np.ndarray] | None:
    """The dtype of TensorProtos, and their shapes, int64 [n, rank].

    None where there is no value, one is no TensorProto as `serialize_tensor` writes it, or they
    differ in dtype or rank.

    Raises:
        UsageError: A dtype needs a package that is not installed.
    """
    each = zip(values.starts.tolist(), values.stops.tolist(), strict=True)
    view = values.data.data
    first = next((_tensor(view[start:stop]) for start, stop in each), None)
    if first is None:
        return None
    dtype, shape = first
    shapes = np.tile(np.array(shape, np.int64), (len(values.starts), 1))
    if dtype != "string":
        usual = _walked_shapes(values, dtype, shape, shapes)
    else:
        usual = np.zeros(len(shapes), bool)
    for row in np.flatnonzero(~usual).tolist():
        found = _tensor(view[values.starts[row] : values.stops[row]])
        if found is None or found[0] != dtype or len(found[1]) != len(shape):
            return None
        shapes[row] = found[1]
    return dtype, shapes


def _tensor(value: memoryview) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and shape of a TensorProto; None where it is no whole one."""
    dtype = _DTYPES.get(value[1]) if len(value) > 1 and value[0] == 8 else None
    if dtype is None:
        return None
    try:
        return dtype, parse_tensor(value, dtype).shape
    except ValueError:
        return None
    except ImportError as error:
        raise UsageError(str(error)) from None


def _walked_shapes(
    values: Pieces, dtype: str, shape: tuple[int, ...], shapes: np.ndarray
) -> np.ndarray:
    """Which of some byte strings are TensorProtos in the usual form, bool [n].

    Args:
        values: The first is a TensorProto.
        dtype, shape: Of the first.
        shapes: int64 [n, rank], all of them that of the first; those of others are written to it.
    """
    header, itemsize = tensor_header(dtype, shape), numpy_dtype(dtype).itemsize
    if (values.lengths == len(header) + math.prod(shape) * itemsize).all():
        octets = np.frombuffer(header, np.uint8)
        same = (values.stacked(len(header)) == octets).all(axis=1)
        if same.all():
            return same
    walk = Walk(values.data, values.starts)
    stops = values.stops
    walk.require(walk.number(8) == TENSORFLOW_DTYPES[dtype])
    shape_ends = walk.enter(0x12, stops)
    for axis in range(len(shape)):
        ends = walk.enter(0x12, shape_ends)
        shapes[:, axis] = walk.number(8)
        walk.require(walk.at == ends)
    walk.require(walk.at == shape_ends)
    walk.require(walk.enter(0x22, stops) == stops)
    nbytes = value_counts(shapes) * itemsize
    walk.require((nbytes == stops - walk.at) & (nbytes > 0))
    return walk.usual


def value_counts(shapes: np.ndarray) -> np.ndarray:
    """How many values arrays of these shapes have, float64 [n]; NaN where nobody could tell.

    Args:
        shapes: int64 [n, rank], of any numbers.
    """
    # Reals do not wrap around as a product of integers would.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.prod(shapes.astype(np.float64), axis=1)


def picture_formats(values: Pieces) -> tuple[set[str], bool]:
    """The formats of some byte strings, "" for those of no picture; whether all pictures are gray."""
    is_jpeg, is_png = _begin_with(values, _JPEG), _begin_with(values, _PNG)
    kinds = {"jpeg": is_jpeg, "png": is_png, "": ~(is_jpeg | is_png)}
    view = values.data.data
    jpegs = zip(values.starts[is_jpeg].tolist(), values.stops[is_jpeg].tolist(), strict=True)
    whole = is_png & (values.lengths > _PNG_COLOURS)
    colours = values.data[values.starts[whole] + _PNG_COLOURS]
    gray = (
        np.array_equal(is_png, whole)
        and bool(np.isin(colours, _PNG_GRAY).all())
        and all(_components(view[start:stop]) == 1 for start, stop in jpegs)
    )
    return {name for name, found in kinds.items() if found.any()}, gray


def _begin_with(values: Pieces, octets: np.ndarray) -> np.ndarray:
    """Which byte strings begin so, bool [n]."""
    same = (values.stacked(len(octets)) == octets).all(axis=1)
    return same & (values.lengths >= len(octets))


def _components(jpeg: memoryview) -> int:
    """How many components a JPEG's frame has; 0 where it has none.

    Source: ITU T.81, annex B.
    """
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if at + 10 > len(jpeg) or jpeg[at] != 0xFF:
            return 0
        marker = jpeg[at + 1]
        if marker == 0xFF:  # A marker may have any number of these before it.
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in _NO_FRAME:
            return jpeg[at + 9]
        else:
            at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return 0


def are_utf8(values: Pieces) -> bool:
    """Whether all byte strings are UTF-8."""
    width = int(values.lengths.max())
    if width <= MARGIN:  # Behind a short one so many bytes are left that all can be cut as one.
        inside = np.arange(width) < values.lengths[:, None]
        if not ((values.stacked(width) > 127) & inside).any():
            return True
    view = values.data.data
    each = zip(values.starts.tolist(), values.stops.tolist(), strict=True)
    try:
        for start, stop in each:  # The first tells of nearly all that are none.
            str(view[start:stop], "utf-8")
            break
        # No character runs on over a line's end, so all lines are UTF-8 where their text is.
        b"\n".join([view[start:stop] for start, stop in each]).decode()
    except UnicodeDecodeError:
        return False
    return True
