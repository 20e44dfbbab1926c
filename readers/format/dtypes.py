"""The dtypes of features: their names, NumPy's dtypes, and TensorFlow's numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

# NumPy's name of a dtype -> its number in TensorFlow's types.proto (enum DataType).
TENSORFLOW_DTYPES: dict[str, int] = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}

# The dtypes that the int64 and float lists of an Example can hold.
INTEGERS_IN_A_LIST = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "bool")
FLOATS_IN_A_LIST = ("float32", "float16", "bfloat16")


@functools.cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The little-endian NumPy dtype for a feature's dtype, a key of `TENSORFLOW_DTYPES`; `object` for "string".

    Raises:
        ValueError: TensorFlow's `serialize_tensor` does not support the dtype.
        ImportError: The dtype is "bfloat16", and the ml_dtypes package is not installed.
    """
    if name not in TENSORFLOW_DTYPES:
        raise ValueError(
            f"unknown dtype {name!r}: expected one of {', '.join(sorted(TENSORFLOW_DTYPES))}"
        )
    if name == "string":
        return np.dtype(object)
    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError("dtype bfloat16 needs ml_dtypes: pip install ml_dtypes") from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a NumPy dtype in a schema: "string" for text, bytes and object arrays."""
    return "string" if dtype.kind in "SUOT" else dtype.name
