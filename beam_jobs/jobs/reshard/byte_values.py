"""Recognises tensors, images and text in byte strings."""

from __future__ import annotations

import io
import math

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.reshard.example_walk import Walk
from readers.format.decode.column import Spans
from readers.format.decode.scanner import MARGIN
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.protobuf.tensor import parse_tensor, tensor_header

_DTYPES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

_JPEG = np.frombuffer(b"\xff\xd8\xff", np.uint8)

_PNG = np.frombuffer(b"\x89PNG\r\n\x1a\n", np.uint8)

# Pillow's modes of gray images, with or without alpha, from 1 to 16 bits.
_GRAY_MODES = ("1", "L", "LA", "I", "I;16")


def tensor_shapes(values: Spans) -> tuple[str, np.ndarray] | None:
    """The dtype of TensorProtos and their shapes, int64 [n, rank].

    None if there is no value, if one is not a TensorProto in the form of `serialize_tensor`, or if
    they differ in dtype or rank.

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
    """The dtype and shape of a TensorProto; None if the value is not a complete one."""
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
    values: Spans, dtype: str, shape: tuple[int, ...], shapes: np.ndarray
) -> np.ndarray:
    """Finds the byte strings that are TensorProtos in the usual form, bool [n].

    Args:
        values: Byte strings, of which the first is a TensorProto.
        dtype, shape: Those of the first.
        shapes: int64 [n, rank], filled with the first shape; the other shapes are written to it.
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
    """The number of values in arrays of these shapes, float64 [n]; NaN if it cannot be computed.

    Args:
        shapes: int64 [n, rank], any numbers.
    """
    # Floats do not wrap around as a product of integers would.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.prod(shapes.astype(np.float64), axis=1)


def image_formats(values: Spans) -> tuple[set[str], bool]:
    """The formats of some byte strings, "" if one is not an image; whether all images are gray."""
    is_jpeg, is_png = _begin_with(values, _JPEG), _begin_with(values, _PNG)
    is_image = is_jpeg | is_png
    found = {"jpeg": is_jpeg.any(), "png": is_png.any(), "": not is_image.all()}
    view = values.data.data
    spans = zip(values.starts[is_image].tolist(), values.stops[is_image].tolist(), strict=True)
    gray = all(_is_gray(view[start:stop]) for start, stop in spans)
    return {name for name, any_has_it in found.items() if any_has_it}, gray


def _begin_with(values: Spans, octets: np.ndarray) -> np.ndarray:
    """Which byte strings begin with these bytes, bool [n]."""
    same = (values.stacked(len(octets)) == octets).all(axis=1)
    return same & (values.lengths >= len(octets))


def _is_gray(image: memoryview) -> bool:
    """Whether a JPEG or PNG is gray; one whose header is damaged is not."""
    from PIL import Image

    try:
        # Pillow would also try formats that are unsafe: it hands EPS to Ghostscript.
        with Image.open(io.BytesIO(image), formats=("JPEG", "PNG")) as opened:
            return opened.mode in _GRAY_MODES
    except Exception:  # Pillow's plugins raise nearly everything on damaged input.
        return False


def are_utf8(values: Spans) -> bool:
    """Whether all byte strings are UTF-8."""
    width = int(values.lengths.max())
    if width <= MARGIN:  # The margin after the last one lets all be cut to one length.
        inside = np.arange(width) < values.lengths[:, None]
        if not ((values.stacked(width) > 127) & inside).any():
            return True
    view = values.data.data
    each = zip(values.starts.tolist(), values.stops.tolist(), strict=True)
    try:
        for start, stop in each:  # If any is not text, it is nearly always the first one, too.
            str(view[start:stop], "utf-8")
            break
        # No character crosses a line end, so all are UTF-8 if they are when joined.
        b"\n".join([view[start:stop] for start, stop in each]).decode()
    except UnicodeDecodeError:
        return False
    return True
