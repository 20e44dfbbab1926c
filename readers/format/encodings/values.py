"""Checks whether arrays to encode, and decoded arrays, fit a spec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.format.dtypes import dtype_name, numpy_dtype
from readers.format.encodings.spec import Spec, fits, format_found, format_shape


def checked_array(name: str, spec: Spec, value: Any) -> np.ndarray:
    """Converts a value to an array of the spec's dtype and shape; ValueError, which names the feature, if it does not fit."""
    # `numpy.bytes_` is bytes, too, and loses NULs at its end in an array.
    if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, (bytes, str)):
        array = np.asarray(value)
    else:
        array = _from_python(name, spec, value)
    if type(value) is not np.ndarray and _has_masked(value, array.ndim):
        raise ValueError(f"feature {name!r}: some values are masked: replace them with .filled()")
    # Finding the name of a dtype takes ten times as long as comparing dtypes, which is nearly always
    # enough.
    same = array.dtype == numpy_dtype(spec.dtype)
    found = spec.dtype if same else dtype_name(array.dtype)
    if found != spec.dtype or not fits(spec.shape, array.shape):
        raise ValueError(
            f"feature {name!r}: expected {spec.dtype} {format_shape(spec.shape)}, "
            f"got {found} {format_found(array.shape)}"
        )
    return array


def all_fit(spec: Spec, values: Sequence[Any]) -> bool:
    """Whether all values are arrays for which `checked_array` has nothing to convert or to refuse."""
    if {*map(type, values)} != {np.ndarray}:
        return False
    dtypes, shapes = {value.dtype for value in values}, {value.shape for value in values}
    return dtypes == {numpy_dtype(spec.dtype)} and all(fits(spec.shape, shape) for shape in shapes)


def _from_python(name: str, spec: Spec, value: Any) -> np.ndarray:
    """Makes an array from Python numbers, text or nested lists, if the dtype can hold them; floats may be rounded."""
    target = numpy_dtype(spec.dtype)
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
    except Exception as error:  # Tensors of other libraries raise nearly everything.
        why = f": {error}" if str(error) and type(value).__module__ != "builtins" else ""
        raise ValueError(
            f"feature {name!r}: expected {spec.dtype} {format_shape(spec.shape)}, "
            f"got {str(value)[:80]!r}{why}"
        ) from None
    return array


def _has_masked(value: Any, rank: int) -> bool:
    """Whether an array, or one in nested lists, has masked values."""
    if rank > 1 and isinstance(value, (list, tuple)):
        return any(_has_masked(item, rank - 1) for item in value)
    return bool(np.ma.is_masked(value))


def narrowed(values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers of an Example in the dtype of a feature; ValueError if it cannot hold one. Floats are rounded."""
    with np.errstate(over="ignore"):
        narrow = values.astype(dtype, copy=False)
    if narrow is values:
        return values
    is_whole = dtype.kind in "iub"
    lost = narrow != values if is_whole else np.isfinite(values) & ~np.isfinite(narrow)
    if lost.any():
        raise ValueError(f"the Example holds {values[lost][0]}, which is not a valid {dtype.name}")
    return narrow


def fitting(spec: Spec, array: np.ndarray) -> np.ndarray:
    """Returns a decoded array; ValueError if its shape does not fit the spec."""
    if not fits(spec.shape, array.shape):
        raise ValueError(f"expected {format_shape(spec.shape)}, found {format_found(array.shape)}")
    return array


def shaped(spec: Spec, values: np.ndarray, shape: list[int]) -> np.ndarray:
    """Reshapes flat values; ValueError if they do not fill the shape, or it does not fit the spec."""
    if math.prod(shape) != values.size or any(d < 0 for d in shape):
        raise ValueError(f"{values.size} values do not fill shape {format_shape(tuple(shape))}")
    return fitting(spec, values.reshape(shape))


def inferred_shape(spec: Spec, size: int) -> list[int]:
    """The shape of `size` values; ValueError if the spec has several unknown dimensions, or they do not fill it."""
    known = math.prod(spec.known_sizes)
    if spec.shape.count(None) > 1:
        raise ValueError("several unknown dimensions need the companion list <name>/shape")
    if known == 0 or size % known:
        raise ValueError(f"{size} values do not fill shape {format_shape(spec.shape)}")
    return [size // known if d is None else d for d in spec.shape]
