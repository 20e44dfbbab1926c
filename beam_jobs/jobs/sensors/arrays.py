"""The arrays of a record: their missing values, their dtypes, and the schema that they must fit."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import RejectError
from readers.format.dtypes import TENSORFLOW_DTYPES, numpy_dtype
from readers.format.encodings.spec import fits, format_shape
from readers.format.schema import Feature

NanPolicy = Literal["keep", "reject", "interpolate"]

# Integers up to this one are different numbers in float32.
_EXACT_IN_FLOAT32 = 1 << 24


def check_series(arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that arrays have a first axis.

    Raises:
        RejectError: An array is a single number.
    """
    if single := [name for name, array in arrays.items() if not array.ndim]:
        cure = "; choose others with --arrays" if len(arrays) > 1 else ""
        raise RejectError(f"array {single[0]!r} is a single number{cure}")


def fill_missing(array: np.ndarray, policy: NanPolicy) -> np.ndarray:
    """The array after NaN and infinite values are treated as the policy states.

    Args:
        array: [time, ...] of any dtype; all dimensions but the first are channels.
        policy: "keep", "reject", or "interpolate": each channel linearly over the rows between the
            nearest finite values; at its ends, the nearest one.

    Raises:
        RejectError: The policy is "reject" and a value is not finite, or it is "interpolate" and
            no value of a channel is. Rows and channels are counted from 1.
    """
    if policy == "keep" or array.dtype.kind not in "fc":
        return array
    good = np.isfinite(array)
    if good.all():
        return array
    if policy == "reject":
        row, *channel = np.unravel_index(int(np.argmin(good)), good.shape)
        raise RejectError(
            f"{np.count_nonzero(~good)} of {good.size} values are NaN or infinite, the first in "
            f"row {row + 1}{_channel(channel)}"
        )
    result, good = flat(array).copy(), flat(good)
    for place in np.flatnonzero(~good.all(0)):
        finite, missing = np.flatnonzero(good[:, place]), np.flatnonzero(~good[:, place])
        if not len(finite):
            channel = list(np.unravel_index(place, array.shape[1:]))
            raise RejectError(f"no finite value to interpolate from{_channel(channel)}")
        result[missing, place] = np.interp(missing, finite, result[finite, place])
    return result.reshape(array.shape)


def fill_rows(array: np.ndarray, policy: NanPolicy) -> tuple[np.ndarray, dict[int, str]]:
    """The array with `fill_missing` applied to each row by itself, and the errors of some rows."""
    if policy == "keep" or array.dtype.kind not in "fc":
        return array, {}
    good = np.isfinite(array).all(tuple(range(1, array.ndim)))
    errors = {}
    filled = array if good.all() else array.copy()
    for row in np.flatnonzero(~good).tolist():
        try:
            filled[row] = fill_missing(np.atleast_1d(array[row]), policy).reshape(array.shape[1:])
        except RejectError as error:
            errors[row] = str(error)
    return filled, errors


def _channel(place: Sequence[np.intp]) -> str:
    return f", channel {' '.join(str(index + 1) for index in place)}" if place else ""


def flat(array: np.ndarray) -> np.ndarray:
    """The array as [time, channels]."""
    return array.reshape(len(array), math.prod(array.shape[1:]))


def prepare_array(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array [time, ...] in a dtype of tensors; a single channel becomes [time, 1].

    Args:
        dtype: The dtype to convert to; "" keeps the array's own.

    Raises:
        RejectError: Tensors cannot have the dtype, or the array cannot be converted to it.
    """
    if dtype:
        array = convert_array(array, dtype)
    if not _is_tensor_dtype(array.dtype):
        raise no_tensor(array.dtype)
    return array[:, None] if array.ndim == 1 else array


def no_tensor(dtype: np.dtype) -> RejectError:
    """The error about an array that cannot be a tensor."""
    what = f"text ({dtype})" if dtype.kind in "US" else f"dtype {dtype}"
    return RejectError(f"{what} cannot be stored as a tensor")


@functools.cache
def _is_tensor_dtype(dtype: np.dtype) -> bool:
    return dtype.name in TENSORFLOW_DTYPES


def convert_array(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in another dtype; rounding to a shorter float is allowed.

    Raises:
        RejectError: A value is out of the dtype's range, or the dtype is of another kind.
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
    """A remark about a float64 array if different neighbours become equal in float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        lost = (np.diff(array.astype(np.float32), axis=0) == 0) & (np.diff(array, axis=0) != 0)
    lost &= abs(array[1:]) > _EXACT_IN_FLOAT32
    remark = "some values that differ are equal in float32: add --dtype float64, or --drop_columns"
    return (remark,) if lost.any() else ()


def fits_feature(value: Any, feature: Feature) -> bool:
    """Whether an array, or a list of arrays, has the dtype and shape of a feature."""
    if value is None:
        return False
    if isinstance(value, list):
        part = Feature(feature.dtype, feature.shape[1:], "tensor")
        return feature.is_sequence and all(fits_feature(array, part) for array in value)
    array: np.ndarray = value
    # Comparing names of dtypes takes ten times as long, and is rarely needed.
    same = array.dtype == numpy_dtype(feature.dtype) or array.dtype.name == feature.dtype
    return same and fits(feature.shape, array.shape)


def describe(name: str, value: Any, with_length: bool = False) -> str:
    """The dtype and shape of an array, a list of arrays or a feature, for an error; None is missing.

    Args:
        with_length: Whether the first axis of an array is not time, and its length matters.
    """
    if value is None:
        return f"no {name}"
    if isinstance(value, list):
        shapes = sorted({f"{array.dtype.name} {format_shape(array.shape)}" for array in value})
        return f"{name} of {', '.join(shapes[:3])}"
    with_length |= isinstance(value, Feature)
    shape = value.shape if with_length else (None, *value.shape[1:])
    dtype = value.dtype if isinstance(value, Feature) else value.dtype.name
    return f"{name} {dtype} {format_shape(shape)}"
