"""What the features of a dataset hold, as far as it is measured."""

from __future__ import annotations

from readers.describe import class_names
from readers.format.manifest import Manifest
from readers.format.schema import IMAGE_ENCODINGS, Feature

# The feature that names the input of a record.
KEY = "key"

_SMALL_INTEGERS = ("uint8", "uint16", "int8", "int16")


def kinds_of(manifest: Manifest) -> dict[str, str]:
    """Feature -> `picture`, `text`, `signal`, `floats` or `integers`, of those that are measured.

    Pictures and signals have levels, which are floats, or integers of 8 or 16 bits without names of classes.
    """
    names = class_names(manifest)
    kinds = {
        name: _kind(feature, name in names)
        for name, feature in manifest.schema.items()
        if name != KEY
    }
    return {name: kind for name, kind in kinds.items() if kind}


def _kind(feature: Feature, is_class: bool) -> str:
    shape, dtype = feature.shape, feature.dtype
    if feature.encoding == "sequence" or dtype.startswith("complex"):
        return ""
    if dtype == "string":
        return "text" if shape == () else ""
    is_float = dtype.startswith(("float", "bfloat"))
    if is_class or not (is_float or dtype in _SMALL_INTEGERS):
        return "integers"
    if feature.encoding in IMAGE_ENCODINGS or (len(shape) == 3 and shape[2] in (1, 3, 4)):
        return "picture"
    if len(shape) in (1, 2):
        return "signal"
    return "floats" if is_float else "integers"
