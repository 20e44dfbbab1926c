"""Decoding of batches into columns, compared with `Decoder`, which defines the result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import column_of, merged
from readers.format.decode.records import Decoder
from readers.format.decode.scanner import MARGIN
from readers.format.dtypes import numpy_dtype
from readers.format.encode import Encoder
from readers.format.encodings.bytes_values import TextEncoding
from readers.format.protobuf.wire import varint
from readers.format.schema import Feature, Schema
from tests.support.plain import example, tensor

SCHEMA = Schema(
    {
        "image": ("uint8", (2, 3, 1)),
        "label": ("int64", ()),
        "key": ("string", ()),
        "signal": ("float32", (None, 2)),
        "grid": ("int16", (None, None)),
        "tokens": ("int64", (None,), "list"),
        "floats": ("float32", (None,), "list"),
        "plane": ("int32", (None, None), "list"),
        "cube": ("float32", (None, 2, None), "raw"),
        "halves": ("float16", (3,), "list"),
        "pair": ("int32", (2,), "list"),
        "flag": ("bool", (), "list"),
        "raw": ("float64", (2,), "raw"),
        "rawer": ("int16", (None, 2), "raw"),
        "photo": ("uint8", (None, None, 3), "jpeg"),
        "scalar": ("float64", ()),
        "wide": ("complex64", (3,)),
    }
)


def record(rng, number):
    length = int(rng.integers(1, 300))
    return {
        "image": rng.integers(0, 255, (2, 3, 1), np.uint8),
        "label": int(rng.choice([0, 1, 127, 128, -1, 2**40, -(2**63), 2**63 - 1])),
        "key": "k" * int(rng.integers(0, 200)) + str(number),
        "signal": rng.standard_normal((length, 2)).astype(np.float32),
        "grid": rng.integers(-9, 9, (int(rng.integers(1, 4)), length)).astype(np.int16),
        "tokens": rng.integers(-5, 300, length),
        "floats": rng.standard_normal(length).astype(np.float32),
        "plane": rng.integers(-9, 300, (length, 2)).astype(np.int32),
        "cube": rng.standard_normal((1, 2, length)).astype(np.float32),
        "halves": rng.standard_normal(3).astype(np.float16),
        "pair": rng.integers(-9, 9, 2).astype(np.int32),
        "flag": bool(rng.integers(2)),
        "raw": rng.standard_normal(2),
        "rawer": rng.integers(-9, 9, (length, 2)).astype(np.int16),
        "photo": rng.bytes(length),
        "scalar": np.float64(rng.standard_normal()),
        "wide": rng.standard_normal(3).astype(np.complex64),
    }


def encoded(count, seed=3):
    """The Examples of some random records."""
    rng = np.random.default_rng(seed)
    return [Encoder(SCHEMA).encode(record(rng, number)) for number in range(count)]


def laid_out(examples, after=b"\xff"):
    """The Examples in one buffer, with other bytes between and after them."""
    gap = b"\xff" * 5
    lengths = np.array([len(data) for data in examples], np.int64)
    stops = np.cumsum(lengths + len(gap))
    data = b"".join(gap + data for data in examples) + after * MARGIN
    return np.frombuffer(data, np.uint8), stops - lengths, stops


def same(feature, column, examples, name):
    """Asserts that a column holds the values that `Decoder` finds one by one."""
    schema = Schema({name: feature})
    expected = [Decoder(schema).decode(data)[name] for data in examples]
    for found, value in zip(column.arrays(), expected, strict=True):
        if isinstance(value, bytes):
            assert found == value
        else:
            np.testing.assert_array_equal(np.asarray(found, value.dtype), value)
    if feature.is_fixed and feature.dtype != "string":
        assert column.values.dtype == numpy_dtype(feature.dtype)
        assert column.values.shape == (len(examples), *feature.shape)


def check(schema, examples, regular=None):
    """The columns of Examples, compared with `Decoder`.

    Args:
        regular: The records that must be decoded together; None for any.
    """
    data, starts, stops = laid_out(examples)
    decoder = ColumnDecoder(schema)
    columns, rows = decoder.regular(data, starts, stops)
    if regular is not None:
        assert rows.tolist() == regular
    for name, column in columns.items():
        same(schema[name], column, [examples[row] for row in rows], name)
    return columns


def test_every_encoding_is_decoded_as_one_by_one():
    columns = check(SCHEMA, encoded(200), list(range(200)))
    assert set(columns) == set(SCHEMA)


def test_a_feature_without_values_leaves_no_record_to_the_decoder():
    sizes = {"raw": (2, 0), "tensor": (0, 3)}
    features = {name: ("float32", shape, name) for name, shape in sizes.items()}
    schema = Schema({"n": ("int64", ()), **features})
    value = {name: np.empty(shape, np.float32) for name, shape in sizes.items()}
    examples = [Encoder(schema).encode({"n": n, **value}) for n in range(4)]
    decoder = ColumnDecoder(schema)
    columns, rows = decoder.regular(*laid_out(examples))
    assert (sorted(columns), rows.tolist()) == (sorted(schema), [0, 1, 2, 3])
    assert {name: columns[name].flat().shape for name in sizes} == {
        name: (4, *shape) for name, shape in sizes.items()
    }
    check(schema, examples, [0, 1, 2, 3])


def test_an_error_that_is_no_damage_is_not_taken_for_one(monkeypatch):
    def fail(*arguments):
        raise ValueError("a fault of the decoder")

    monkeypatch.setattr(TextEncoding, "column", fail)
    with pytest.raises(ValueError, match="a fault of the decoder"):
        ColumnDecoder(SCHEMA).regular(*laid_out(encoded(3)))


def test_features_of_several_values_are_left_to_the_decoder():
    schema = Schema(
        {
            "a": ("float32", (None, None), "sequence"),
            "b": ("string", (2,)),
            "c": ("string", (None,), "list"),
            "e": ("int64", ()),
        }
    )
    value = {"a": [np.ones((2,), np.float32)], "b": ["x", "y"], "c": ["z"], "e": 7}
    assert list(check(schema, [Encoder(schema).encode(value)] * 3)) == ["e"]


def regular_and_irregular_examples():
    """A schema, a regular Example, one with an empty array, and one with another feature."""
    schema = Schema({"x": ("float32", (None,)), "n": ("int64", ())})
    regular = Encoder(schema).encode({"x": np.ones(3, np.float32), "n": 5})
    empty = Encoder(schema).encode({"x": np.ones(0, np.float32), "n": 5})
    other = example(**{"x/shape": [3]}, x=tensor(np.ones(3, np.float32)), n=5, extra=1)
    return schema, regular, empty, other


@pytest.mark.parametrize("at", [0, 3, 9])
def test_irregular_records_are_set_aside(at):
    schema, regular, empty, other = regular_and_irregular_examples()
    cut, extended = regular[:-1], regular + b"\x0a\x00"
    for irregular in (empty, other, b"", b"\x0a\x02", cut, extended, b"\xff" * 40):
        examples = [regular] * 10
        examples[at] = irregular
        check(schema, examples, [row for row in range(10) if row != at])


def test_a_name_is_not_read_past_the_end_of_a_record():
    schema = Schema({"n": ("int64", ())})
    first = example(**{"a" * 6000: 1}, n=3)
    # It claims to have an equally long name, and ends with the beginning of that name.
    cut = b"\x0a" + varint(63) + b"\x0a" + varint(61) + b"\x0a" + varint(6000) + b"a" * 58
    data, starts, stops = laid_out([first, first, cut], after=b"a")
    assert ColumnDecoder(schema).regular(data, starts, stops)[1].tolist() == [0, 1]


@given(st.data())
@settings(max_examples=30)
def test_mutated_records_are_decoded_as_one_by_one(data):
    """Whatever a record contains, it is decoded as by `Decoder`, or left to it."""
    examples = encoded(6, seed=data.draw(st.integers(0, 99)))
    for _ in range(data.draw(st.integers(1, 3))):
        row = data.draw(st.integers(0, 5))
        place = data.draw(st.integers(0, len(examples[row]) - 1))
        octet = data.draw(st.integers(0, 255))
        examples[row] = examples[row][:place] + bytes([octet]) + examples[row][place + 1 :]
    check(SCHEMA, examples)


def test_a_mutated_record_hardly_ever_sets_intact_ones_aside():
    """The property above would also hold if every record were left to `Decoder`."""
    lost = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        examples = encoded(6, seed)
        mutated = int(rng.integers(6))
        octets = bytearray(examples[mutated])
        octets[rng.integers(len(octets))] ^= int(rng.integers(1, 256))
        examples[mutated] = bytes(octets)
        columns, rows = ColumnDecoder(SCHEMA).regular(*laid_out(examples))
        found = set(rows.tolist()) if set(columns) == set(SCHEMA) else set()
        lost += len(set(range(6)) - {mutated} - found)
    assert lost < 0.02 * 25 * 5


def test_a_split_column_holds_the_values_of_its_records():
    examples = encoded(9)
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
    examples = [odd, *good] if first else [*good, odd]
    columns, rows = ColumnDecoder(schema).regular(*laid_out(examples))
    with pytest.raises(ValueError, match="x/shape is not a list of integers"):
        Decoder(schema).decode(odd)
    assert [examples[row] for row in rows] == good
    assert [value.tolist() for value in columns["x"].arrays()] == [[n, 6, 7] for n in range(5)]
