"""The fast path, compared with `parse_example` and `parse_tensor`, which define the result."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.decode.records import parse_example
from readers.format.encode.records import Encoder
from readers.format.protobuf import tensor
from readers.format.protobuf.fast_path import fast_lists, fast_tensor
from readers.format.protobuf.tensor import parse_tensor
from readers.format.schema import Schema
from tests.readers.format.mutations import mutated
from tests.support import plain
from tests.support.arrays import assert_same, serialize_tensor
from tests.support.plain import example

SCHEMA = Schema(
    {
        "image": ("uint8", (2, 70, 1)),
        "label": ("int64", ()),
        "text": ("string", ()),
        "texts": ("string", (None,), "list"),
        "é": ("float32", (2,), "list"),
        "tokens": ("int64", (None,), "list"),
    }
)
NAMES = [*SCHEMA, "tokens/shape"]
EXAMPLE = Encoder(SCHEMA).encode(
    {
        "image": np.arange(140, dtype=np.uint8).reshape(2, 70, 1),
        "label": -1,
        "text": "t" * 200,
        "texts": ["a", "", "b" * 300],
        "é": [1, 2],
        "tokens": [3, 400, 5],
    }
)


def lists(data, names):
    return fast_lists(memoryview(data), {name.encode(): name for name in names})


def definition(data, names):
    found = parse_example(data, set(names))
    return {name: found[name] for name in names}


def parsed_tensor(data, dtype, monkeypatch):
    """The array that `parse_tensor` returns without the fast path; None if it raises an error."""
    with monkeypatch.context() as patch:
        patch.setattr(tensor, "fast_tensor", lambda data, dtype: None)
        try:
            return parse_tensor(data, dtype)
        except ValueError:
            return None


@pytest.mark.parametrize("names", [NAMES, ["label"], ["é"], ["image", "tokens"]])
def test_our_own_examples_are_in_the_common_form(names):
    assert lists(EXAMPLE, names) == definition(EXAMPLE, names)


def test_examples_of_tensorflow_are_in_the_common_form():
    data = example(a=[1, -2, 300], b=[0.5] * 99, c=b"x" * 5000)
    assert lists(data, ["a", "b", "c"]) == definition(data, ["a", "b", "c"])


@given(st.randoms(use_true_random=False), st.sampled_from([NAMES, ["label"], ["image", "text"]]))
@settings(max_examples=150)
def test_mutated_examples_are_parsed_the_same_or_left_to_parse_example(random, names):
    data = mutated(random, EXAMPLE)
    found = lists(data, names)
    assert found is None or found == definition(data, names)


TENSORS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(300, dtype=np.uint8).reshape(1, 300, 1),
    np.array(7, np.int64),
    np.array([1 + 2j]),
    np.array([True, False]),
]


@pytest.mark.parametrize("array", TENSORS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_tensors_of_tensorflow_are_in_the_common_form(array):
    assert_same(fast_tensor(memoryview(plain.tensor(array)), array.dtype.name), array)


@given(
    st.randoms(use_true_random=False),
    st.sampled_from(TENSORS),
    st.sampled_from(["float32", "int8", "string"]) | st.none(),
)
@settings(max_examples=200)
def test_mutated_tensors_are_parsed_the_same_or_left_to_parse_tensor(random, array, dtype):
    octets, dtype = mutated(random, serialize_tensor(array)), dtype or array.dtype.name
    found = fast_tensor(memoryview(octets), dtype)
    if found is not None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            expected = parsed_tensor(octets, dtype, monkeypatch)
        assert expected is not None
        assert_same(found, expected)


def test_more_dimensions_than_numpy_supports_are_never_multiplied(monkeypatch):
    dims = b"\x12\x02\x08\x7f" * 1_000
    data = b"\x08\x01\x12\xa0\x1f" + dims + b"\x22\x00"
    monkeypatch.setattr(math, "prod", lambda _: pytest.fail("a product that takes very long"))
    assert fast_tensor(memoryview(data), "float32") is None
