"""Feature lists record by record, in every form that protobuf takes, and in none that it refuses."""

import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError

from readers.format.decode.records import Decoder, parse_example, parse_feature_lists
from readers.format.protobuf.wire import varint
from readers.format.schema import Feature, Schema
from tests.readers.format.mutations import field
from tests.support.plain import sequence_example


def number(value: int) -> bytes:
    """A `tf.train.Feature` of one integer."""
    return field(3, field(1, varint(value)))


def steps(*features: bytes, name: bytes = b"x") -> bytes:
    """An entry in the map of feature lists."""
    return field(1, field(1, name) + field(2, b"".join(field(1, each) for each in features)))


def read(feature: Feature, data: bytes):
    return Decoder(Schema({"x": feature})).decode(data)["x"]


ONES = Feature("int64", (None, 1), "list steps")

# Of 11 bytes, one more than an integer has.
TOO_LONG = field(3, field(1, b"\x80" * 10 + b"\x01"))


def test_lists_that_are_not_wanted_are_passed_over():
    data = sequence_example(a=[[1]], x=[[2]], z=[[3]])
    assert list(parse_feature_lists(data, {"x"})) == ["x"]
    schema = Schema({"x": ONES, "z": Feature("int64")})
    found = Decoder(schema).decode(sequence_example({"z": 5}, a=[[1]], x=[[2]]))
    assert (found["z"], found["x"].tolist()) == (5, [[2]])


@pytest.mark.parametrize(
    ("feature", "data", "reason"),
    [
        (Feature("int64", (3, 1), "list steps"), sequence_example(x=[[1], [2]]),
         r"feature 'x' .*: expected 3 steps, found 2"),
        (ONES, sequence_example(x=[[1], [2, 3]]), r"feature 'x' .*: step 1: "),
        (ONES, field(2, field(1, field(1, b"x") + field(2, field(2, b"")))),
         "field 2 is not one of tf.train.FeatureList"),
        (ONES, field(2, field(1, field(1, b"x") + field(2, b"\x08\x01"))),
         "field 1 is not one of tf.train.FeatureList"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(feature, data, reason):
    with pytest.raises(ValueError, match=reason):
        read(feature, data)


def test_the_last_of_two_lists_of_one_name_wins_as_in_protobuf():
    data = field(2, steps(number(1), number(2)) + steps(number(3)))
    found = tf.train.SequenceExample.FromString(data).feature_lists.feature_list["x"].feature
    assert [list(each.int64_list.value) for each in found] == read(ONES, data).tolist() == [[3]]


@pytest.mark.parametrize(
    "wrong",
    [field(2, field(1, b"\0\0")), field(3, field(1, b"\x81")), TOO_LONG],
    ids=["floats that are cut off", "an integer that is cut off", "an integer that is too long"],
)
def test_what_is_replaced_must_be_whole_as_in_protobuf(wrong):
    whole = number(1)
    entries = [field(1, field(1, b"x") + field(2, each)) for each in (wrong, whole)]
    for refused in (
        field(1, b"".join(entries)),
        field(1, entries[0]) + field(1, entries[1]),
        field(1, field(1, field(1, b"x") + field(2, wrong + field(1, b"")))),
    ):
        with pytest.raises(DecodeError):
            tf.train.Example.FromString(refused)
        with pytest.raises(ValueError, match=r"cut off|longer than ten bytes"):
            parse_example(refused)
        # What nobody wants is not looked at.
        assert parse_example(refused, ()) == {"x": (0, [])}
    lists = field(2, steps(whole, wrong) + steps(whole))
    with pytest.raises(DecodeError):
        tf.train.SequenceExample.FromString(lists)
    with pytest.raises(ValueError):
        parse_feature_lists(lists, {"x"})
    assert parse_feature_lists(lists, {"y"}) == {}


def test_runs_of_a_list_may_be_empty_and_end_with_any_whole_number():
    data = field(
        1, field(1, field(1, b"x") + field(2, field(3, field(1, b"") + field(1, b"\x7f"))))
    )
    assert tf.train.Example.FromString(data).features.feature["x"].int64_list.value == [127]
    assert read(Feature("int64", (None,), "list"), data).tolist() == [127]


def test_an_entry_without_a_name_has_an_empty_one_as_in_protobuf():
    data = field(1, field(1, field(2, number(7))))
    assert list(tf.train.Example.FromString(data).features.feature) == [""]
    assert list(parse_example(data)) == [""]


def test_a_list_is_a_message():
    with pytest.raises(ValueError, match=r"field 3 is not one of tf\.train\.Feature"):
        parse_example(field(1, field(1, field(1, b"x") + field(2, b"\x18\x01"))))
