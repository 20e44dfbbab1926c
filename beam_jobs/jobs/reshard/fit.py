"""Checks records against the schema of the first ones, and suggests a schema that fits all."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_jobs.jobs.reshard.values import ValueList, image_format, is_gray, is_utf8, lists_of
from readers.format.decode.records import Decoder, list_kind
from readers.format.protobuf.wire import BYTES_LIST, FLOAT_LIST, fields
from readers.format.schema import IMAGE_ENCODINGS, Feature, Schema

_COMPANION = "/shape"

# The name of a feature -> whether it is written.
Keeps = Callable[[str], bool]


class Names:
    """The names of the features that records of a schema have.

    Attributes:
        features: Those of features, and of the lists that hold their shapes.
        lists: Those of feature lists.
    """

    def __init__(self, schema: Schema) -> None:
        self.lists = {name for name, feature in schema.items() if feature.step}
        self.features = {name for name in schema if name not in self.lists}
        self.features |= {name + _COMPANION for name, f in schema.items() if f.has_companion}

    def hold(self, record: memoryview, keeps: Keeps) -> bool:
        """Whether they hold those of a record, as far as it is written."""
        known = {1: self.features, 2: self.lists}
        return all(
            name in known[number] or not keeps(name)
            for number, _, message in fields(record)
            for name in (name_of(entry) for _, _, entry in fields(message))
        )


def name_of(entry: memoryview) -> str:
    """The name in a serialized entry of such a map."""
    return next((str(part, "utf-8") for number, _, part in fields(entry) if number == 1), "")


def value_error(feature: Feature, value: Any) -> str:
    """Why a value does not have the encoding of its feature, as far as decoding does not check that; else empty.

    Args:
        feature: The feature.
        value: The value from `Decoder`; a text may be bytes.
    """
    one = feature.step or feature
    if one.encoding == "text":
        texts = [value] if isinstance(value, bytes) else np.ravel(value).tolist()
        return "" if all(map(is_utf8, texts)) else "expected UTF-8, found other bytes"
    if one.encoding in IMAGE_ENCODINGS:
        for image in value if feature.step else [value]:
            found = image_format(image)
            if not found or one.encoding not in ("source", found):
                return f"found {found or 'no JPEG or PNG'}"
            if one.shape[2] == 1 and not is_gray(image):
                return "found an image with colours"
    return ""


def misfit(schema: Schema, record: memoryview, keeps: Keeps, learned: bool) -> str:
    """Why a record does not fit a schema; empty if it does.

    Args:
        schema: The features that are written.
        record: The serialized record.
        keeps: Which features are written.
        learned: Whether the schema was learned from other records. Then a record may have no other
            features, and the reason says which `--schema` would hold all records.
    """
    try:
        features, lists = lists_of(record)
    except ValueError as error:
        return f"not an Example: {error}"
    for name, feature in schema.items():
        if wrong := _feature_error(name, feature, record, learned):
            return wrong + (_cure(name, feature, record) if learned else "")
    return _other_feature(schema, features, lists, keeps) if learned else ""


def _other_feature(
    schema: Schema,
    features: dict[str, ValueList],
    lists: dict[str, list[ValueList]],
    keeps: Keeps,
) -> str:
    """The error about features of a record that are not in the schema; empty if all are."""
    names = Names(schema)
    for name, found in features.items():
        if not found.kind or name in names.features or not keeps(name):
            continue
        of = schema.get(name.removesuffix(_COMPANION)) if name.endswith(_COMPANION) else None
        if not of:
            return _missing(name, Feature(_dtype_of(found.kind), (None,), "list"))
        # All of the first records have this shape, so that readers do not look at it.
        if found.size and found.numbers != list(of.shape):
            return f"feature {name!r}: expected {list(of.shape)}, found {found.numbers}{_AGREE}"
    for name, steps in lists.items():
        kinds = {step.kind for step in steps if step.kind}
        if kinds and name not in names.lists and keeps(name):
            return _missing(name, Feature(_dtype_of(min(kinds)), (None, None), "list steps"))
    return ""


def _feature_error(name: str, feature: Feature, record: memoryview, learned: bool) -> str:
    try:
        value = Decoder(Schema({name: feature})).decode(record)[name]
    except ValueError as error:
        return str(error)
    wrong = value_error(feature, value) if learned else ""
    return f"feature {name!r} ({feature}): {wrong}" if wrong else ""


def _dtype_of(kind: int) -> str:
    return {BYTES_LIST: "string", FLOAT_LIST: "float32"}.get(kind, "int64")


def _missing(name: str, feature: Feature) -> str:
    return f"feature {name!r}: the first records of all files lack it{_give(name, feature)}"


# What to do with records for which no schema is wide enough.
_AGREE = "; all records of a dataset must agree: narrow --input"


def _give(name: str, feature: Feature) -> str:
    entry = json.dumps({name: feature.to_json()}, ensure_ascii=False)
    return f"; to keep such records, give a --schema with {entry}"


def _cure(name: str, feature: Feature, record: memoryview) -> str:
    """What to do if a record does not fit a feature that others have."""
    wider = (one for one in _wider(feature) if not _feature_error(name, one, record, True))
    found = next(wider, None)
    return _give(name, found) if found else _AGREE


def _wider(feature: Feature) -> Iterator[Feature]:
    """Yields features that hold all values of a feature, and more."""
    one = feature.step or feature
    wider: list[tuple[str, tuple[int | None, ...], str]] = []
    if one.encoding in IMAGE_ENCODINGS:
        wider += [("uint8", (None, None, 3), encoding) for encoding in (one.encoding, "source")]
    else:
        wider.append((one.dtype, (None,) * len(one.shape), one.encoding))
    if list_kind(one.dtype) == BYTES_LIST or one.encoding != "list":
        wider += [("string", (), "list"), ("string", (None,), "list")]
    elif not one.has_companion:
        wider.append((one.dtype, (None,), "list"))
    for dtype, shape, encoding in wider:
        with contextlib.suppress(ValueError):
            if feature.step:
                yield Feature(dtype, (None, *shape), f"{encoding} steps")
            else:
                yield Feature(dtype, shape, encoding)
