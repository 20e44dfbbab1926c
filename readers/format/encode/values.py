"""Whether the values of a record fit the schema, and the form in which they are encoded."""

from __future__ import annotations

from typing import Any

import numpy as np

from readers.format.dtypes import dtype_name, numpy_dtype
from readers.format.protobuf.tensor import string_values
from readers.format.schema import IMAGE_ENCODINGS, Feature, fits, format_found, format_shape

_INTEGER = Feature("int64", (), "list")


def is_integer(feature: Feature) -> bool:
    """Whether a feature is a single int64 in a list, as labels are."""
    return feature == _INTEGER


def checked(name: str, feature: Feature, value: Any) -> Any:
    """The checked value of one feature, in the form that `Encoder.check` returns.

    Args:
        name: The feature's name, for error messages.
        feature: The feature.
        value: Its value in a record, in a form that `Encoder.encode` takes.

    Raises:
        ValueError: The value does not fit; the message names the feature, what was expected and
            what was found.
    """
    if feature.encoding in IMAGE_ENCODINGS:
        if not isinstance(value, (bytes, bytearray, memoryview)) or not value:
            raise ValueError(
                f"feature {name!r}: expected the bytes of an image ({feature.encoding}), "
                f"got {type(value).__name__}"
            )
        return bytes(value)
    if feature.encoding == "sequence":
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        try:
            items = list(value)
        except TypeError:
            raise ValueError(
                f"feature {name!r}: expected a list of arrays, got {type(value).__name__}"
            ) from None
        parts = [_checked_array(f"{name}[{i}]", part, item) for i, item in enumerate(items)]
        if feature.shape[0] not in (None, len(parts)):
            raise ValueError(
                f"feature {name!r}: expected {feature.shape[0]} arrays, got {len(parts)}"
            )
        return parts
    array = _checked_array(name, feature, value)
    if is_integer(feature):
        return array.item()
    if feature.encoding != "text":
        return array
    try:
        (text,) = string_values(array)
        text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"feature {name!r}: expected UTF-8 ({error})") from None
    except ValueError as error:
        raise ValueError(f"feature {name!r} ({feature}): {error}") from None
    return text


def _checked_array(name: str, feature: Feature, value: Any) -> np.ndarray:
    """The value as an array of the feature's dtype, whose shape fits."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    else:
        array = _from_python(name, feature, value)
    # Finding the name of a dtype takes ten times as long as comparing dtypes, which nearly always
    # decides.
    same = array.dtype == numpy_dtype(feature.dtype)
    found = feature.dtype if same else dtype_name(array.dtype)
    if found != feature.dtype or not fits(feature.shape, array.shape):
        raise ValueError(
            f"feature {name!r}: expected {feature.dtype} {format_shape(feature.shape)}, "
            f"got {found} {format_found(array.shape)}"
        )
    return array


def _from_python(name: str, feature: Feature, value: Any) -> np.ndarray:
    """An array of Python numbers, text or nested lists, if the dtype can hold them.

    A float may be rounded.
    """
    target = numpy_dtype(feature.dtype)
    try:
        if target.kind == "O":
            return np.array(value, object)
        natural = np.asarray(value)
        if not natural.size:
            return np.asarray(value, target)
        if natural.dtype == target:
            return natural
        if natural.dtype.kind not in ("biufc" if target.kind == "c" else "biuf"):
            raise TypeError
        # NumPy turns integers into floats if they lie on both sides of 2**63 or next to a float.
        inexact = natural.dtype.kind == "f" and target.kind in "iu"
        with np.errstate(all="ignore"):
            array = np.asarray(value, target) if inexact else natural.astype(target)
            if target.kind in "biu":
                held = np.array_equal(natural, array)
            else:
                held = np.array_equal(np.isfinite(natural), np.isfinite(array))
        if not held:
            raise OverflowError
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"feature {name!r}: expected {feature.dtype} {format_shape(feature.shape)}, "
            f"got {str(value)[:80]!r}"
        ) from None
    return array
