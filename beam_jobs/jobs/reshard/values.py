"""The values of an Example or SequenceExample of any form, and the kinds of its byte strings."""

from __future__ import annotations

import io
from typing import NamedTuple

from beam_jobs.errors import UsageError
from readers.format.decode.records import RawList, parse_example, parse_feature_lists
from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.protobuf.tensor import parse_tensor
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, INT64_LIST, unpacked_varints

_DTYPES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

# Format -> the bytes that its images begin with.
_IMAGES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

# Pillow's modes of gray images, with or without alpha, from 1 to 16 bits.
_GRAY_MODES = ("1", "L", "LA", "I", "I;16")


class ValueList(NamedTuple):
    """The values of a feature, or of a step of a feature list, in one record.

    Attributes:
        kind: BYTES_LIST, FLOAT_LIST or INT64_LIST; 0 for none of them.
        size: The number of values.
        values: The byte strings; empty for numbers.
        numbers: The integers; empty for others.
    """

    kind: int
    size: int
    values: list[memoryview]
    numbers: list[int]


class _AllNames:
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


def lists_of(record: memoryview) -> tuple[dict[str, ValueList], dict[str, list[ValueList]]]:
    """The features of a serialized record, and the steps of its feature lists, both by name.

    Raises:
        ValueError: The bytes are neither an Example nor a SequenceExample.
    """
    features = {name: _values(raw) for name, raw in parse_example(record).items()}
    steps = parse_feature_lists(record, _AllNames()).items()
    return features, {name: list(map(_values, every)) for name, every in steps}


def _values(raw: RawList) -> ValueList:
    kind, chunks = raw
    if kind == BYTES_LIST:
        return ValueList(kind, len(chunks), chunks, [])
    packed = b"".join(chunks)
    if kind == INT64_LIST:
        numbers = unpacked_varints(packed).tolist()
        return ValueList(kind, len(numbers), [], numbers)
    if kind == FLOAT_LIST and len(packed) % 4:
        raise ValueError("the floats are cut off")
    return ValueList(kind, len(packed) // 4, [], [])


def tensor_type(value: memoryview) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and shape of a TensorProto; None if the value is not one of `serialize_tensor`.

    Raises:
        UsageError: The dtype needs a package that is not installed.
    """
    dtype = _DTYPES.get(value[1]) if len(value) > 1 and value[0] == 8 else None
    if dtype is None:
        return None
    try:
        return dtype, parse_tensor(value, dtype).shape
    except ValueError:
        return None
    except ImportError as error:
        raise UsageError(str(error)) from None


def image_format(value: bytes | memoryview) -> str:
    """ "jpeg" or "png" by the first bytes of an image; "" for anything else."""
    return next((name for name, first in _IMAGES.items() if value[: len(first)] == first), "")


def is_gray(image: bytes | memoryview) -> bool:
    """Whether a JPEG or PNG is gray; one whose header is damaged is not."""
    from PIL import Image

    try:
        # Pillow would also try formats that are unsafe: it hands EPS to Ghostscript.
        with Image.open(io.BytesIO(image), formats=("JPEG", "PNG")) as opened:
            return opened.mode in _GRAY_MODES
    except Exception:  # Pillow's plugins raise nearly everything on damaged input.
        return False


def is_utf8(value: bytes | memoryview) -> bool:
    """Whether a byte string is UTF-8."""
    try:
        str(value, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
