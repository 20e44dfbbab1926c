"""Parses any Example, checks whether it fits a schema, and finds a schema that fits."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_jobs.errors import UsageError
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import FeatureColumn
from readers.format.decode.records import (
    Decoder,
    RawList,
    parse_example,
    parse_feature_lists,
)
from readers.format.dtypes import TENSORFLOW_DTYPES
from readers.format.protobuf.tensor import parse_tensor
from readers.format.protobuf.wire import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    fields,
    unpacked_varints,
    varint,
)
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES

# The kind of a list of values -> the dtype that holds them.
DTYPES = {"bytes": "string", "float": "float32", "int64": "int64"}

_KINDS = {0: "", INT64_LIST: "int64"}

_TENSOR_DTYPES = {number: name for name, number in TENSORFLOW_DTYPES.items()}

# Format -> the bytes that its images begin with.
_IMAGES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

# Pillow's modes of gray images, with or without alpha, from 1 to 16 bits.
_GRAY_MODES = ("1", "L", "LA", "I", "I;16")

# The end of the name of a list with the shapes of another feature.
SHAPE = "/shape"

# The advice if no schema fits all records.
_AGREE = "; all records of a dataset must agree: leave out the files that differ"

# The kind of a list in one record, empty for none, and its values: views of
# byte strings, integers, or an array of floats.
Values = tuple[str, Any]

# The name of a feature -> whether it is written.
Keeps = Callable[[str], bool]


def lists_of(record: memoryview) -> tuple[dict[str, Values], dict[str, list[Values]]]:
    """The features of a serialized record, and the steps of its feature lists, both by name.

    Raises:
        ValueError: The bytes are neither an Example nor a SequenceExample.
    """
    features = {name: _values(raw) for name, raw in parse_example(record).items()}
    steps = parse_feature_lists(record).items()
    return features, {name: list(map(_values, every)) for name, every in steps}


def _values(raw: RawList) -> Values:
    kind, chunks = raw
    if kind == BYTES_LIST:
        return "bytes", chunks
    packed = b"".join(chunks)
    if kind != FLOAT_LIST:
        return _KINDS[kind], unpacked_varints(packed).tolist()
    if len(packed) % 4:
        raise ValueError("the floats are cut off")
    return "float", np.frombuffer(packed, "<f4")


def tensor_type(value: memoryview) -> tuple[str, tuple[int, ...]] | None:
    """The dtype and shape of a TensorProto; None if the value is not one of `serialize_tensor`.

    Raises:
        UsageError: The dtype needs a package that is not installed.
    """
    dtype = _TENSOR_DTYPES.get(value[1]) if len(value) > 1 and value[0] == 8 else None
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


def _names_in(record: memoryview) -> Iterator[tuple[int, str]]:
    """Yields (1, name) of each feature of a record, and (2, name) of each feature list."""
    for number, _, message in fields(record):
        for _, _, entry in fields(message):
            yield number, _name_of(entry)


def _name_of(entry: memoryview) -> str:
    return next((str(part, "utf-8") for number, _, part in fields(entry) if number == 1), "")


def with_features(record: memoryview, keeps: Keeps) -> bytes:
    """A serialized record with some of its features, unchanged."""
    messages = []
    for number, _, message in fields(record):
        entries = [
            b"\x0a" + varint(len(entry)) + bytes(entry)
            for _, _, entry in fields(message)
            if keeps(_name_of(entry))
        ]
        body = b"".join(entries)
        messages.append(bytes([number << 3 | 2]) + varint(len(body)) + body)
    return b"".join(messages)


class RecordFit:
    """Decodes records, and explains why one does not fit the schema.

    Args:
        schema: The features that are written.
        keeps: Which features of a record are written.
        learned: Whether the schema was learned from other records. Then texts and images are checked, a record may
            not have other features, and the reason names a `--schema` that would fit all records.
    """

    def __init__(self, schema: Schema, keeps: Keeps, learned: bool) -> None:
        self._schema, self._keeps, self._learned = schema, keeps, learned
        self._decoder = ColumnDecoder(schema)
        lists = {name for name, feature in schema.items() if feature.step}
        shapes = {name + SHAPE for name, feature in schema.items() if feature.has_companion}
        # As `_names_in` numbers them.
        self._names = {1: {*schema} - lists | shapes, 2: lists}
        looked_at = {n: f for n, f in schema.items() if f.codec.is_text or f.is_image}
        self._looked_at = looked_at if learned else {}

    def check(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, FeatureColumn], np.ndarray, dict[int, str]]:
        """The columns of the records that can be decoded, their rows, int64 [n], and why some records do not fit, by row.

        Args:
            data: uint8 [n], the records with their framing.
            starts, stops: int64 [B], where each record begins and ends, without its framing.
        """
        frames = starts - HEADER_BYTES, stops + FOOTER_BYTES
        columns, errors, alike = self._decoder.decode(data, *frames)
        good = np.delete(np.arange(len(starts)), list(errors))

        def record(row: int) -> memoryview:
            return data.data[int(starts[row]) : int(stops[row])]

        doubtful = set(errors)
        for name, feature in self._looked_at.items():
            # No text can continue behind a NUL, so all of them are checked at once.
            is_one_text = feature.codec.is_text and not feature.step
            if is_one_text and is_utf8(b"\0".join(columns[name].flat().tolist())):
                continue
            pairs = zip(good.tolist(), columns[name].arrays(), strict=True)
            doubtful |= {row for row, value in pairs if value_error(feature, value)}
        # One record shows the names of those of one form.
        odd = np.setdiff1d(good, alike).tolist() if len(alike) < len(good) else []
        for some in [*([row] for row in odd), alike.tolist()]:
            if some and not all(
                name in self._names[number] or not self._keeps(name)
                for number, name in _names_in(record(some[0]))
            ):
                doubtful.update(some)
        reasons = {row: self._misfit(record(row)) or errors.get(row, "") for row in doubtful}
        return columns, good, {row: reason for row, reason in reasons.items() if reason}

    def _misfit(self, record: memoryview) -> str:
        """Why a record does not fit; empty if it does."""
        try:
            features, lists = lists_of(record)
        except ValueError as error:
            return f"not an Example: {error}"
        for name, feature in self._schema.items():
            if wrong := self._feature_error(name, feature, record):
                return wrong + (self._cure(name, feature, record) if self._learned else "")
        return self._other_feature(features, lists) if self._learned else ""

    def _feature_error(self, name: str, feature: Feature, record: memoryview) -> str:
        try:
            value = Decoder(Schema({name: feature})).decode(record)[name]
        except ValueError as error:
            return str(error)
        wrong = value_error(feature, value) if self._learned else ""
        return f"feature {name!r} ({feature}): {wrong}" if wrong else ""

    def _cure(self, name: str, feature: Feature, record: memoryview) -> str:
        """The advice for a record that does not fit a feature of others."""
        fitting = (one for one in _wider(feature) if not self._feature_error(name, one, record))
        wider = next(fitting, None)
        return _give(name, wider) if wider else _AGREE

    def _other_feature(self, features: dict[str, Values], lists: dict[str, list[Values]]) -> str:
        """The error about features of a record that are not in the schema; empty if all are."""
        for name, (kind, items) in features.items():
            if not kind or name in self._names[1] or not self._keeps(name):
                continue
            of = name.endswith(SHAPE) and self._schema.get(name.removesuffix(SHAPE))
            if not of:
                return _missing(name, Feature(DTYPES[kind], (None,), "list"))
            # All of the first records have this shape, so that readers do not look at it.
            sizes = items if kind == "int64" else []
            if len(items) and sizes != list(of.shape):
                return f"feature {name!r}: expected {list(of.shape)}, found {sizes}{_AGREE}"
        for name, steps in lists.items():
            kinds = [kind for kind, _ in steps if kind]
            if kinds and name not in self._names[2] and self._keeps(name):
                return _missing(name, Feature(DTYPES[kinds[0]], (None, None), "list steps"))
        return ""


def value_error(feature: Feature, value: Any) -> str:
    """Why a decoded value is not the text or image of its feature, which decoding does not check; else empty."""
    one = feature.step or feature
    if one.codec.is_text:
        texts = [value] if isinstance(value, bytes) else np.ravel(value).tolist()
        return "" if all(map(is_utf8, texts)) else "expected UTF-8, found other bytes"
    for image in (value if feature.step else [value]) if one.is_image else ():
        format_ = image_format(image)
        if not format_ or one.encoding not in ("source", format_):
            return f"found {format_ or 'neither JPEG nor PNG'}"
        if one.shape[2] == 1 and not is_gray(image):
            return "found an image with colours"
    return ""


def _missing(name: str, feature: Feature) -> str:
    return f"feature {name!r}: the first records of all files lack it{_give(name, feature)}"


def _give(name: str, feature: Feature) -> str:
    entry = json.dumps({name: feature.to_json()}, ensure_ascii=False)
    return f"; to keep such records, give a --schema with {entry}"


def _wider(feature: Feature) -> Iterator[Feature]:
    """Yields wider features, which fit all values of a feature, and more."""
    one = feature.step or feature
    wider: list[tuple[str, tuple[int | None, ...], str]]
    wider = [(one.dtype, (None,) * len(one.shape), one.encoding)]
    if one.is_image:
        wider = [("uint8", (None, None, 3), encoding) for encoding in (one.encoding, "source")]
    stored = one.codec.stored(one)
    if stored is None or stored.kind == BYTES_LIST:
        wider += [("string", (), "list"), ("string", (None,), "list")]
    else:
        wider.append((one.dtype, (None,), "list"))
    for dtype, shape, encoding in wider:
        with contextlib.suppress(ValueError):
            if feature.step:
                yield Feature(dtype, (None, *shape), f"{encoding} steps")
            else:
                yield Feature(dtype, shape, encoding)
