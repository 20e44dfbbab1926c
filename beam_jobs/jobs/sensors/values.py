"""The arrays of a record: converted to their dtype, and compared with the schema of the dataset."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.schema import Feature, fits, format_shape

# Integers up to this one are different numbers in float32.
_EXACT_IN_FLOAT32 = 1 << 24


def prepare_array(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the array [time, ...] in a dtype of tensors; a single channel becomes [time, 1].

    Args:
        dtype: The dtype to convert to; "" keeps the array's own.

    Raises:
        RejectError: tensors cannot have the dtype, or the array cannot be converted to it.
    """
    if dtype:
        array = convert_array(array, dtype)
    if not _is_tensor_dtype(array.dtype):
        raise no_tensor(array.dtype)
    return array[:, None] if array.ndim == 1 else array


def no_tensor(dtype: np.dtype) -> RejectError:
    """Returns the error about an array that no tensor can hold."""
    what = f"text ({dtype})" if dtype.kind in "US" else f"dtype {dtype}"
    return RejectError(f"{what} cannot be stored as a tensor")


@functools.cache
def _is_tensor_dtype(dtype: np.dtype) -> bool:
    return dtype.name in TENSORFLOW_DTYPES


def convert_array(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns the array in another dtype; rounding to a shorter float is allowed.

    Raises:
        RejectError: a value is out of the dtype's range, or the dtype is of another kind.
    """
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise RejectError(f"{array.dtype.name} cannot be converted to {dtype}")
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if result.dtype.kind in "iu":
        kept = np.array_equal(result, array)
    else:
        kept = np.array_equal(np.isfinite(result), np.isfinite(array))
    if not kept:
        raise RejectError(f"a {array.dtype.name} value is out of the range of {dtype}")
    return result


def note_rounded(array: np.ndarray) -> tuple[str, ...]:
    """Returns a remark about a float64 array if float32 makes neighbours equal that differ."""
    if not (abs(array) > _EXACT_IN_FLOAT32).any():
        return ()
    with np.errstate(over="ignore", invalid="ignore"):
        lost = (np.diff(array.astype(np.float32), axis=0) == 0) & (np.diff(array, axis=0) != 0)
    lost &= abs(array[1:]) > _EXACT_IN_FLOAT32
    if not lost.any():
        return ()
    example = array[1:][lost][0]
    return (
        f"{example:.0f} and the value before it are equal in float32: add "
        "--dtype float64, or leave the column out with --drop_columns",
    )


def count_bytes(value: Any) -> int:
    """Returns the bytes of an array, or of a list of arrays."""
    return sum(array.nbytes for array in (value if isinstance(value, list) else [value]))


def fits_feature(value: Any, feature: Feature) -> bool:
    """Whether an array, or a list of arrays, has the dtype and shape of a feature."""
    if value is None:
        return False
    if isinstance(value, list):
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        return feature.encoding == "sequence" and all(fits_feature(array, part) for array in value)
    array: np.ndarray = value
    # The name of a dtype takes ten times as long as the comparison that nearly always decides.
    same = array.dtype == numpy_dtype(feature.dtype) or array.dtype.name == feature.dtype
    return same and fits(feature.shape, array.shape)


def describe(name: str, value: Any, whole: bool = False) -> str:
    """Describes an array, a list of arrays or a feature in an error; None is missing.

    Args:
        whole: Whether the first axis of an array is not time, and its length matters.
    """
    if value is None:
        return f"no {name}"
    if isinstance(value, list):
        shapes = sorted({f"{array.dtype.name} {format_shape(array.shape)}" for array in value})
        return f"{name} of {', '.join(shapes[:3])}"
    whole |= isinstance(value, Feature)
    shape = value.shape if whole else (None, *value.shape[1:])
    dtype = value.dtype if isinstance(value, Feature) else value.dtype.name
    return f"{name} {dtype} {format_shape(shape)}"
