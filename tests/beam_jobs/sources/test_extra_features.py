import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.extra_features import (
    DTYPES,
    ExtraFeature,
    extra_values,
    feature_value,
    parse_extra_features,
    parse_target,
)
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema

INTEGERS = [name for name in DTYPES if "int" in name]
FLOATS = [name for name in DTYPES if "float" in name]


def value_of(spec: str, value):
    (extra,) = parse_extra_features(f"x:{spec}")
    return feature_value(extra, value)


def refused(spec: str, value) -> str:
    with pytest.raises(RejectError) as caught:
        value_of(spec, value)
    return str(caught.value)


def test_features_are_columns_with_a_dtype_and_perhaps_a_length():
    text = "age:float32,site:string,tags:string[], scores:float32[3],id:uint64,ids:uint64[2]"
    assert parse_extra_features(text) == (
        ExtraFeature("age", Feature("float32", (), "list")),
        ExtraFeature("site", Feature("string", (), "text")),
        ExtraFeature("tags", Feature("string", (None,), "list")),
        ExtraFeature("scores", Feature("float32", (3,), "list")),
        ExtraFeature("id", Feature("uint64", (), "tensor")),
        ExtraFeature("ids", Feature("uint64", (2,), "tensor")),
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "''"),
        ("age", "'age'"),
        (":int64", "':int64'"),
        ("a:int64,,b:int64", "''"),
        ("a:int64,b:int65", "'b:int65'"),
        ("b:bfloat16", "'b:bfloat16'"),
        ("a:int64[0]", "'a:int64[0]'"),
        ("a:int64[2][3]", "'a:int64[2][3]'"),
        ("a:int64[1234567890]", "'a:int64[1234567890]'"),
        ("a:int64[٣]", "'a:int64[٣]'"),
    ],
)
def test_a_part_that_is_not_a_feature_is_refused(text, wrong):
    with pytest.raises(UsageError) as caught:
        parse_extra_features(text)
    assert caught.value.message == (
        f"--extra_features {text}: got {wrong}, expected NAME:DTYPE, or for lists NAME:DTYPE[] or "
        f"NAME:DTYPE[COUNT]; dtypes are {', '.join(DTYPES)}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:int8,b:int8,a:string", "'a' is repeated, drop one"),
        ("a\\b:int8", r"feature name 'a\\b': expected text of 1 to 255 characters, without"),
        ("a\0:int8", r"feature name 'a\x00': expected text of 1 to 255 characters, without"),
        ("a:int8[],a/shape:int64", "'a/shape': this name is taken by the shapes of 'a'; rename"),
        ("x" * 300 + ":int8", "expected text of 1 to 255 characters, without"),
    ],
)
def test_invalid_names_of_features_are_refused(text, message):
    with pytest.raises(UsageError) as caught:
        parse_extra_features(text)
    assert message in caught.value.message
    assert caught.value.message.startswith("--extra_features ")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_have_exactly_the_range_of_their_dtype(dtype):
    info = np.iinfo(dtype)
    for number in (int(info.min), 0, int(info.max)):
        for value in (number, str(number)):
            found = value_of(dtype, value)
            assert found == number
            assert np.asarray(found).dtype == dtype
        assert value_of(f"{dtype}[]", [number, number]).tolist() == [number, number]
    for number in (int(info.min) - 1, int(info.max) + 1):
        expected = f"expected {dtype}: a whole number from {info.min} to {info.max}"
        assert refused(dtype, number) == f"column 'x' holds {number}, {expected}"
        assert refused(dtype, str(number)) == f"column 'x' holds '{number}', {expected}"
        assert refused(f"{dtype}[]", [1, number]) == f"column 'x[1]' holds {number}, {expected}"


@pytest.mark.parametrize(
    "value", ["3.5", 3.5, 1e30, "1e3", "x", "1_000", "٣", "3 4", "0x1", b"3", [3]]
)
def test_other_values_than_integers_are_rejected(value):
    assert refused("int8", value).startswith(f"column 'x' holds {value!r}, expected int8: ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[("+3", 3), (" 3\n", 3), ("-0", 0), ("007", 7), (True, 1), (False, 0)],
        *[("3.0", 3), (" -3.0 ", -3), (3.0, 3)],  # as pandas writes a column with gaps
    ],
)
def test_integers_are_written_in_the_usual_ways(value, expected):
    for dtype in ("int64", "int16"):
        assert value_of(dtype, value) == expected
        assert value_of(f"{dtype}[]", [value]).tolist() == [expected]
    assert type(value_of("int64", value)) is int


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_float_is_rejected_where_numpy_rounds_it_to_infinity(dtype):
    info = np.finfo(dtype)
    largest = float(info.max)
    values = [largest, 1.5, math.inf, 0.0]
    # Numbers within half a unit of the last place are rounded to the largest number.
    if dtype != "float64":
        limit = largest + 2.0 ** (info.maxexp - info.nmant - 2)
        values.append(np.nextafter(limit, 0).item())
        for value in (limit, -limit):
            with np.errstate(over="ignore"):
                assert np.isinf(np.array(value).astype(dtype))
            shown = f"holds {value!r}, expected {dtype}: a number up to {largest:.6g}"
            assert refused(dtype, value) == f"column 'x' {shown}"
            assert refused(f"{dtype}[]", [1.0, value]) == f"column 'x[1]' {shown}"
    for number in (*values, *(-value for value in values)):
        expected = np.array(number).astype(dtype)
        for value in (number, str(number)):
            found = value_of(dtype, value)
            assert type(found) is expected.dtype.type
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(value_of(f"{dtype}[]", [number]), expected[None])
        np.testing.assert_array_equal(value_of(f"{dtype}[]", [1, number])[1], expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", ["1e400", "-1e400", 10**400, -(10**400), "1_0", "٣", "x", b"1"])
def test_other_values_than_floats_are_rejected(dtype, value):
    assert refused(dtype, value).startswith(f"column 'x' holds {value!r:.60}")
    assert refused(f"{dtype}[]", [0.5, value]).startswith("column 'x[1]' holds ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true", 1),
        ("True", 1),
        ("FALSE", 0),
        (" 1", 1),
        ("0", 0),
        (1, 1),
        (0, 0),
        (True, 1),
        ("1.0", 1),
        (0.0, 0),
    ],
)
def test_booleans_are_true_false_one_and_zero(value, expected):
    assert value_of("bool", value) == bool(expected)
    assert type(value_of("bool", value)) is np.bool_
    assert value_of("bool[]", [value, True]).tolist() == [bool(expected), True]


@pytest.mark.parametrize("value", ["yes", "2", 2, 1.5, "1.5", -1, [True], {}])
def test_other_values_than_booleans_are_rejected(value):
    expected = f"column 'x' holds {value!r}, expected bool: true, false, 1 or 0"
    assert refused("bool", value) == expected


@pytest.mark.parametrize("value", ["abc", "é🎉", "nul\0", " ", "é".encode()])
def test_strings_are_utf8_text(value):
    expected = value.decode() if isinstance(value, bytes) else value
    assert value_of("string", value) == expected
    assert value_of("string[]", [value]) == [expected]


@pytest.mark.parametrize("value", ["\ud800", b"\xff", 3, 1.5, True, ["a"], {"a": 1}])
def test_other_values_than_text_are_rejected(value):
    assert refused("string", value) == f"column 'x' holds {value!r}, expected UTF-8 text"
    assert refused("string[2]", ["a", value]).startswith("column 'x[1]' holds ")


@pytest.mark.parametrize("nothing", [None, ""])
def test_missing_values_are_nan_or_empty_text_or_rejected(nothing):
    for dtype in FLOATS:
        assert math.isnan(value_of(dtype, nothing))
        assert np.isnan(value_of(f"{dtype}[]", [nothing, 1.0])).tolist() == [True, False]
    assert value_of("string", nothing) == ""
    assert value_of("string[]", [nothing, "a"]) == ["", "a"]
    for dtype in (*INTEGERS, "bool"):
        assert refused(dtype, nothing) == "column 'x' is empty"
        assert refused(f"{dtype}[]", [0, nothing]) == "column 'x[1]' is empty"
    for spec in ("float32[]", "string[]", "int64[1]"):
        assert refused(spec, nothing) == "column 'x' is empty"


@pytest.mark.parametrize(
    ("spec", "value", "expected"),
    [
        ("int32[]", [1, 2], [1, 2]),
        ("int32[]", "[1, 2]", [1, 2]),
        ("int32[]", ' ["1", true]', [1, 1]),
        ("int32[]", [], []),
        ("int32[1]", 7, [7]),
        ("int32[]", "7", [7]),
        ("float32[3]", "[1, 2.5, NaN]", [1, 2.5, math.nan]),
        ("bool[]", "[true, 0]", [True, False]),
        ("string[]", '["a", "é"]', ["a", "é"]),
        ("string[]", "['a', 'é']", ["a", "é"]),
        ("string[]", "a", ["a"]),
        ("uint64[2]", [2**64 - 1, 1], [2**64 - 1, 1]),
    ],
)
def test_lists_are_lists_or_json_or_one_value(spec, value, expected):
    found = value_of(spec, value)
    dtype = spec.partition("[")[0]
    if dtype == "string":
        assert found == expected
    else:
        assert (found.dtype, found.ndim) == (np.dtype(dtype), 1)
        np.testing.assert_array_equal(found, np.array(expected, dtype))


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        ("int64[3]", [1, 2], "column 'x' has 2 values, expected 3"),
        ("int64[2]", 1, "column 'x' has 1 values, expected 2"),
        ("string[]", "[draft", "column 'x' holds '[draft', expected a JSON list"),
        ("string[]", "[1] 2", "column 'x' holds '[1] 2', expected a JSON list"),
        ("string[]", "[\ud800", "column 'x' holds '[\\ud800', expected a JSON list"),
        ("int64[]", "[" * 100_000, "expected a JSON list"),
        ("int64[]", [[1], [2]], "column 'x[0]' holds [1], expected int64"),
        ("float32[]", [0.5, "a"], "column 'x[1]' holds 'a', expected float32"),
        ("float32[]", {"a": 1}, "column 'x[0]' holds {'a': 1}, expected float32"),
        ("float32[]", '{"a": 1}', "column 'x[0]' holds '{\"a\": 1}', expected float32"),
    ],
)
def test_lists_that_do_not_fit_are_rejected(spec, value, message):
    assert message in refused(spec, value)


@pytest.mark.parametrize("value", ["x" * 10_000_000, b"\xff" * 10_000_000, [0.5] * 1_000_000])
def test_a_message_shows_the_beginning_of_a_value(value):
    message = refused("int64", value)
    assert repr(value[:10])[:-1] in message
    assert len(message) < 200


ROW = {"age": "34", "site": "A", "tags": '["x"]', "other": None}
EXTRAS = parse_extra_features("age:float32,tags:string[]")


def test_values_are_taken_from_the_columns_of_a_row():
    assert extra_values(EXTRAS, ROW) == {"age": np.float32(34), "tags": ["x"]}
    assert extra_values((), ROW) == {}


def test_a_row_without_the_column_is_rejected():
    with pytest.raises(RejectError, match=r"^no column 'tags', the row has age, b$"):
        extra_values(EXTRAS, {"age": 1, "b": 2})
    with pytest.raises(RejectError, match=r"^no column 'age', the row has none$"):
        extra_values(EXTRAS, {})


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
JSON = st.recursive(
    SCALARS | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)


@given(st.sampled_from(DTYPES), st.sampled_from(["", "[]", "[2]"]), JSON)
@settings(max_examples=80, deadline=None)
def test_the_encoder_accepts_every_value_that_is_not_rejected(dtype, end, value):
    try:
        found = value_of(dtype + end, value)
    except RejectError as error:
        assert str(error).startswith("column 'x")
        return
    (extra,) = parse_extra_features(f"x:{dtype}{end}")
    assert Encoder(Schema({"x": extra.feature})).check({"x": found}).keys() == {"x"}


@given(
    st.sampled_from([name for name in DTYPES if name not in ("string", "bool")]),
    st.lists(st.integers(-300, 70_000) | st.floats(width=32) | st.booleans(), max_size=5),
)
@settings(max_examples=80, deadline=None)
def test_a_list_has_the_values_of_its_items_one_by_one(dtype, items):
    def outcome(make):
        try:
            return np.array(make(), dtype).tobytes()
        except RejectError:
            return None

    together = outcome(lambda: value_of(f"{dtype}[]", items))
    assert together == outcome(lambda: [value_of(dtype, item) for item in items])


def test_a_target_is_the_number_in_a_column_of_any_name():
    target = parse_target("column:price")
    assert (target.name, target.column, target.feature) == ("target", "price", Feature("float32"))
    for value, number in (("0.5", 0.5), (3, 3.0), (-1.5, -1.5)):
        values = extra_values((target,), {"price": value, "target": "another"})
        assert values == {"target": np.float32(number)}
    for value, reason in (
        ("", "--target column:price: it is empty, NaN or infinite"),
        (None, "--target column:price: it is empty, NaN or infinite"),
        ("nan", "--target column:price: it is empty, NaN or infinite"),
        ("-inf", "--target column:price: it is empty, NaN or infinite"),
        ("much", "column 'price' holds 'much', expected float32: a number"),
    ):
        with pytest.raises(RejectError, match=reason):
            extra_values((target,), {"price": value})
