"""Arrays that tests compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from readers.format.dtypes import FLOATS_IN_A_LIST, numpy_dtype
from readers.format.protobuf.tensor import tensor_parts


def assert_same(found: Any, expected: Any) -> None:
    """Asserts that two arrays have one dtype, one shape and the same bytes (or objects)."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype == object:
        assert found.tolist() == expected.tolist()
    elif found.tobytes() != expected.tobytes():  # NaNs with the same bits are the same
        np.testing.assert_array_equal(found, expected)
        raise AssertionError("the values are equal, their bits are not (-0.0 or a NaN)")


def ids(batches: Iterable[Mapping[str, Any]]) -> list[int]:
    """The feature `id` of all records, in the order of the batches."""
    return [number for batch in batches for number in np.asarray(batch["id"]).tolist()]


def random_array(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Random bits of a feature's dtype: any integers, NaNs, or texts.

    Floats that the lists of an Example can hold are numbers: lists do not keep all bits of a NaN.
    """
    count = math.prod(shape)
    if dtype == "string":
        texts = np.empty(count, object)
        texts[:] = [rng.bytes(length) for length in rng.integers(0, 9, count)]
        return texts.reshape(shape)
    if dtype in FLOATS_IN_A_LIST:
        return np.asarray(rng.normal(size=shape)).astype(numpy_dtype(dtype))
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    target = numpy_dtype(dtype)
    return np.frombuffer(rng.bytes(count * target.itemsize), target).reshape(shape)


def nested(value: Any) -> Any:
    """The values of a batch, dense or ragged, as nested lists."""
    if hasattr(value, "to_list"):  # a RaggedTensor
        return value.to_list()
    array = np.asarray(value)
    is_ragged = array.dtype == object and array.ndim > 0
    return [nested(item) for item in array] if is_ragged else array.tolist()


def as_lists(batches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Batches as dicts of nested lists."""
    return [{name: nested(value) for name, value in batch.items()} for batch in batches]


def serialize_tensor(array) -> bytes:
    """The TensorProto of anything that `np.asarray` accepts."""
    return b"".join(tensor_parts(np.asarray(array)))
