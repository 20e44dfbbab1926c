"""Decoding of many records at once, of which some do not fit the schema."""

from __future__ import annotations

import numpy as np
import pytest

from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder, owned_value
from readers.format.decode.scanner import MARGIN
from readers.format.schema import Feature, Schema
from tests.support.plain import example, sequence_example

SCHEMA = Schema(
    {
        "id": Feature("int64"),
        "name": Feature("string"),
        "image": Feature("uint8", (None, None, 3), "jpeg"),
        "many": Feature("string", (None,), "list"),
    }
)


def decoded(schema, examples):
    lengths = np.array([len(one) for one in examples], np.int64)
    data = np.frombuffer(b"".join(examples) + bytes(MARGIN), np.uint8)
    return ColumnDecoder(schema).decode(data, np.cumsum(lengths) - lengths, np.cumsum(lengths))


def of(n, **more):
    return example(id=n, name=f"n{n}", image=b"\xff\xd8", many=[b"a", b"b"], **more)


def test_values_are_those_of_the_decoder_in_records_of_any_form():
    examples = [of(0), of(1), of(2, other=7), of(3), example(name="", id=4, image=b""), of(5)]
    rows = decoded(SCHEMA, examples)
    assert (rows.errors, rows.alike.tolist()) == ({}, [0, 1, 3, 5])
    values = {name: column.arrays() for name, column in rows.columns.items()}
    for row, one in enumerate(examples):
        found = {name: owned_value(values[name][row]) for name in values}
        expected = {name: owned_value(v) for name, v in Decoder(SCHEMA).decode(one).items()}
        assert found == expected
        assert all(type(found[name]) is type(expected[name]) for name in SCHEMA)


def test_a_record_that_does_not_fit_has_the_error_of_the_decoder_and_costs_no_other():
    examples = [of(0), b"no Example", of(2), example(id=[1, 2]), of(4)]
    rows = decoded(SCHEMA, examples)
    assert sorted(rows.errors) == [1, 3]
    for row, error in rows.errors.items():
        with pytest.raises(ValueError) as caught:
            Decoder(SCHEMA).decode(examples[row])
        assert str(caught.value) == error
    assert rows.columns["id"].arrays() == [0, 2, 4]


def test_records_without_a_feature_that_makes_a_column_are_decoded_once():
    schema = Schema({"steps": Feature("int64", (None, 2), "list steps")})
    rows = decoded(schema, [sequence_example(steps=[[n, n]] * n) for n in range(3)])
    assert (rows.errors, rows.alike.tolist()) == ({}, [])
    assert [len(value) for value in rows.columns["steps"].arrays()] == [0, 1, 2]


def test_no_records_have_no_values():
    columns, errors, alike = decoded(SCHEMA, [])
    assert ([column.arrays() for column in columns.values()], errors) == ([[]] * len(SCHEMA), {})
    assert not len(alike)


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
