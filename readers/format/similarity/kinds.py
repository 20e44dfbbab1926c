"""What a feature holds, as far as records can be compared by it."""

from __future__ import annotations

from readers.format.schema import Feature

_SMALL_INTEGERS = ("uint8", "uint16", "int8", "int16")


def kind_of(feature: Feature, is_class: bool) -> str:
    """`picture`, `text`, `signal`, `floats`, `integers`, or empty for what is not measured.

    Pictures and signals have levels, which are floats, or integers of 8 or 16 bits without names of classes.
    """
    shape, dtype = feature.shape, feature.dtype
    if (feature.is_sequence and not feature.step) or dtype.startswith("complex"):
        return ""
    if dtype == "string":
        return "text" if shape == () else ""
    is_float = dtype.startswith(("float", "bfloat"))
    if is_class or not (is_float or dtype in _SMALL_INTEGERS):
        return "integers"
    if (feature.is_image and not feature.step) or (len(shape) == 3 and shape[2] in (1, 3, 4)):
        return "picture"
    if len(shape) in (1, 2):
        return "signal"
    return "floats" if is_float else "integers"
