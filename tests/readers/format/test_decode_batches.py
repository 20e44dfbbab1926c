"""Decoding of batches into columns, compared with `Decoder`, which defines the result."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.compiled.fields import stored_features
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import column_of, merged
from readers.format.decode.records import Decoder, owned_value
from readers.format.dtypes import numpy_dtype
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.readers.format.mutations import mutated
from tests.readers.format.random_examples import FEATURES, examples_of
from tests.support.plain import example, sequence_example, tensor

SCHEMA = Schema(FEATURES)


def decoded(schema, examples):
    """What is found in framed Examples with other bytes between them."""
    gap, framed = b"\xff" * 5, list(map(frame, examples))
    stops = np.cumsum([len(data) + len(gap) for data in framed], dtype=np.int64)
    data = np.frombuffer(b"".join(gap + data for data in framed), np.uint8)
    return ColumnDecoder(schema).decode(
        data, stops - np.array(list(map(len, framed)), np.int64), stops
    )


def same(feature, column, examples, name):
    """Asserts that a column holds the values that `Decoder` finds one by one."""
    schema = Schema({name: feature})
    expected = [Decoder(schema).decode(data)[name] for data in examples]
    assert len(column.arrays()) == len(examples)
    for found, value in zip(column.arrays(), expected, strict=True):
        if isinstance(value, (bytes, list)):
            np.testing.assert_equal(bytes(found) if feature.is_image else found, value)
        else:
            np.testing.assert_array_equal(np.asarray(found, value.dtype), value)
    if feature.is_fixed and feature.dtype != "string":
        assert column.values.dtype == numpy_dtype(feature.dtype)
        assert column.values.shape == (len(examples), *feature.shape)


def check(schema, examples, alike=None):
    """The columns of Examples, compared with `Decoder`.

    Args:
        alike: The records that must be decoded together; None for any.
    """
    columns, errors, rows = decoded(schema, examples)
    if alike is not None:
        assert rows.tolist() == alike
    good = []
    for row, data in enumerate(examples):
        try:
            Decoder(schema).decode(data)
            good.append(data)
        except ValueError as error:
            assert errors.pop(row) == str(error)
    assert not errors
    for name, column in columns.items():
        same(schema[name], column, good, name)
    return columns


def test_the_kernel_reads_all_but_several_values():
    several = {
        "a": ("float32", (None, None), "sequence"),
        "b": ("string", (2,)),
        "c": ("string", (None,), "list"),
    }
    schema = Schema({**several, "e": ("int64", ()), "f": ("uint8", (None, None, 3), "jpeg")})
    value = {"a": [np.ones((2,), np.float32)], "b": ["x", "y"], "c": ["z"], "e": 7, "f": b"\xff"}
    regular = Encoder(schema).encode(value)
    # With another feature, in two messages that protobuf merges.
    odd = regular + example(extra=1)
    check(schema, [regular, odd, regular, b"no Example", regular], [0, 2, 4])
    assert stored_features(schema).keys() == {"e", "f"}
    assert stored_features(SCHEMA).keys() == SCHEMA.keys()


def test_records_without_a_feature_that_makes_a_column_are_decoded_once():
    schema = Schema({"steps": Feature("int64", (None, 2), "list steps")})
    columns = check(schema, [sequence_example(steps=[[n, n]] * n) for n in range(3)], [])
    assert [len(value) for value in columns["steps"].arrays()] == [0, 1, 2]


def test_no_records_have_no_values():
    columns, errors, alike = decoded(SCHEMA, [])
    assert [column.arrays() for column in columns.values()] == [[]] * len(SCHEMA)
    assert not errors and not len(alike)


def test_a_feature_that_all_records_lack_leaves_the_others_to_the_kernel():
    schema = Schema({"n": ("int64", ()), "x": ("int64", (None,), "list")})
    columns = check(schema, [example(n=n) for n in range(4)], [0, 1, 2, 3])
    assert [value.tolist() for value in columns["x"].arrays()] == [[]] * 4


def test_a_feature_without_values_leaves_no_record_to_the_decoder():
    sizes = {"raw": (2, 0), "tensor": (0, 3)}
    features = {name: ("float32", shape, name) for name, shape in sizes.items()}
    schema = Schema({"n": ("int64", ()), **features})
    value = {name: np.empty(shape, np.float32) for name, shape in sizes.items()}
    examples = [Encoder(schema).encode({"n": n, **value}) for n in range(4)]
    columns = check(schema, examples, [0, 1, 2, 3])
    assert {name: columns[name].flat().shape for name in sizes} == {
        name: (4, *shape) for name, shape in sizes.items()
    }


@pytest.mark.parametrize("at", [0, 3, 9])
def test_irregular_records_are_set_aside(at):
    schema = Schema({"x": ("float32", (None,)), "n": ("int64", ())})
    regular = Encoder(schema).encode({"x": np.ones(3, np.float32), "n": 5})
    other = example(**{"x/shape": [3]}, x=tensor(np.ones(3, np.float32)), n=5, extra=1)
    cut, extended = regular[:-1], regular + b"\x0a\x00"
    for irregular in (other, b"", b"\x0a\x02", cut, extended, b"\xff" * 40):
        examples = [regular] * 10
        examples[at] = irregular
        check(schema, examples, [row for row in range(10) if row != at])


@given(st.integers(0, 99), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_mutated_records_are_decoded_as_one_by_one(seed, count, draw):
    examples, randoms = examples_of(SCHEMA, 6, seed), random.Random(draw)
    for _ in range(count):
        row = randoms.randrange(6)
        examples[row] = mutated(randoms, examples[row])
    check(SCHEMA, examples)


def test_a_mutated_record_hardly_ever_sets_intact_ones_aside():
    """The property above would also hold if every record were left to `Decoder`."""
    lost = 0
    for seed in range(25):
        examples, randoms = examples_of(SCHEMA, 6, seed), random.Random(seed)
        row = randoms.randrange(6)
        examples[row] = mutated(randoms, examples[row])
        lost += len({*range(6)} - {row} - {*decoded(SCHEMA, examples).alike.tolist()})
    assert lost < 0.02 * 25 * 5


def test_a_split_column_holds_the_values_of_its_records():
    examples = examples_of(SCHEMA, 9)
    for name, column in check(SCHEMA, examples).items():
        before, part, none, after = column.split([0, 2, 7, 7, 9])
        same(SCHEMA[name], before, examples[:2], name)
        same(SCHEMA[name], part, examples[2:7], name)
        assert len(none.arrays()) == 0
        same(SCHEMA[name], after, examples[7:], name)


def test_columns_are_merged_by_rows():
    for feature, values in [
        (Feature("float32", (2,)), [np.full(2, n, np.float32) for n in range(5)]),
        (Feature("float32", (None,)), [np.full(n, n, np.float32) for n in range(5)]),
        (Feature("uint8", (None, None, 3), "png"), [bytes([n]) for n in range(5)]),
    ]:
        rows = np.array([3, 0]), np.array([1, 4, 2])
        parts = [(r, column_of(feature, [values[row] for row in r])) for r in rows]
        for found, value in zip(merged(feature, parts).arrays(), values, strict=True):
            np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("shape", [b"3", 3.0, [b"3", b"4"]])
@pytest.mark.parametrize("first", [True, False])
def test_a_shape_that_is_no_list_of_integers_is_left_to_the_decoder(shape, first):
    schema = Schema({"x": ("int64", (None,), "list")})
    odd = example(**{"x": [5, 6, 7], "x/shape": shape})
    good = [example(**{"x": [number, 6, 7], "x/shape": [3]}) for number in range(5)]
    found = decoded(schema, [odd, *good] if first else [*good, odd])
    (error,) = found.errors.values()
    assert "x/shape is not a list of integers" in error
    assert len(found.alike) == 5
    assert [value.tolist() for value in found.columns["x"].arrays()] == [
        [n, 6, 7] for n in range(5)
    ]


def test_an_owned_value_can_be_changed_and_keeps_little_memory():
    buffer = np.arange(6, dtype=np.uint8)
    lent = np.frombuffer(bytearray(b"abc"), np.uint8)
    for value in (buffer[5:], np.frombuffer(b"abc", np.uint8), lent, lent.reshape(1, 3)):
        found = owned_value(value)
        assert found.flags.writeable and not np.shares_memory(found, value)
        np.testing.assert_array_equal(found, value)
    whole = buffer.reshape(2, 3)
    assert owned_value(whole) is whole
    assert owned_value(memoryview(b"abc")[1:]) == b"bc"
    assert owned_value([buffer[:1]])[0].base is None
    assert owned_value(np.array(b"x", object)) == b"x"
    assert type(owned_value(np.array(3, np.int16))) is np.int16


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", 300), ("uint16", -1), ("bool", 2), ("float16", 7e4), ("bfloat16", 3.4e38)],
)
@pytest.mark.parametrize("shape", [(1,), (None,)])
def test_a_value_that_a_narrow_dtype_cannot_hold_is_an_error_of_its_record(dtype, value, shape):
    fits = [1, 0] if isinstance(value, int) else [1.0, float("inf")]
    examples = [example(x=[number]) for number in (*fits, value, *fits)]
    _, errors, _ = decoded(Schema({"x": (dtype, shape, "list")}), examples)
    assert list(errors) == [2] and f"which is not a valid {dtype}" in errors[2]
    check(Schema({"x": (dtype, shape, "list")}), examples)
