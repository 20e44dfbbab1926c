import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.format.protobuf.wire import (
    fields,
    packed_varints,
    read_varint,
    unpacked_varints,
    varint,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
EDGES = sorted(
    {sign * (1 << bit) + step for bit in range(63) for sign in (1, -1) for step in (-1, 0, 1)}
    | {0, 2**63 - 1, -(2**63)}
)


def packed_by_protobuf(values: list[int]) -> bytes:
    message = tf.train.Int64List(value=values).SerializeToString()
    if not values:
        return b""
    (_, _, packed) = next(fields(memoryview(message)))
    return bytes(packed)


@settings(max_examples=500)
@given(st.lists(INT64, max_size=60))
@example([])
@example([0])
@example([127] * 13)
@example([128] * 13)
@example([-1] * 13)
@example([5] * 300)
@example([127] * 300)
@example([128] * 300)
@example([*range(200, 0, -1)] * 2)
@example([0] * 12 + [-(2**63)])
def test_packed_varints_match_protobuf(values):
    packed = packed_varints(np.array(values, np.int64))
    assert packed == packed_by_protobuf(values)
    assert unpacked_varints(packed).tolist() == values


@pytest.mark.parametrize("count", [1, 12, 13, len(EDGES)])
def test_powers_of_two_and_their_neighbours_round_trip_in_lists_of_any_length(count):
    for start in range(0, len(EDGES), count):
        values = EDGES[start : start + count]
        packed = packed_varints(np.array(values, np.int64))
        assert packed == packed_by_protobuf(values)
        assert unpacked_varints(packed).tolist() == values


def test_an_overlong_varint_is_read_as_by_protobuf():
    packed = b"\x81\x80\x00" + b"\xff" * 9 + b"\x7f"
    message = tf.train.Int64List.FromString(b"\x0a" + varint(len(packed)) + packed)
    assert unpacked_varints(packed).tolist() == list(message.value) == [1, -1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80", "cut off"),
        (b"\x01\xff\xff", "cut off"),
        (b"\x80" * 10 + b"\x01", "longer than ten bytes"),
    ],
)
def test_packed_varints_that_protobuf_refuses_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        unpacked_varints(data)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_read_varint_reverses_varint_and_stops_after_it(value, tail):
    written = varint(value)
    assert read_varint(memoryview(written + tail), 0) == (value, len(written))


@given(st.binary(max_size=40))
def test_random_bytes_give_fields_or_a_value_error(data):
    try:
        found = list(fields(memoryview(data)))
    except ValueError:
        return
    assert all(kind in (0, 1, 2, 5) for _, kind, _ in found)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a\x05abc", "field 1 runs past the end"),
        (b"\x0a" + varint(2**63) + b"abc", "field 1 runs past the end"),
        (b"\x0d\x00\x00", "field 1 runs past the end"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0a", "cut off"),
        (b"\x00\x00", "0 is not the number of a field"),
        (varint(1 << 32) + b"\x00", "536870912 is not the number of a field"),
    ],
)
def test_a_broken_message_is_refused_with_the_reason(data, message):
    with pytest.raises(ValueError, match=message):
        list(fields(memoryview(data)))
