"""Conditions on the numbers in an index: the results of Python's own `eval`, and errors for everything else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.format.lookup.where import Where
from readers.format.schema import Schema

SCHEMA = Schema(
    {
        "label": ("int64", ()),
        "big": ("uint64", ()),
        "small": ("int8", ()),
        "x": ("float32", ()),
        "y": ("float64", ()),
        "flag": ("bool", ()),
        "image/class": ("int64", ()),
        "tokens": ("int64", (None,)),
        "key": ("string", ()),
        "vector": ("float32", (3,)),
    }
)
CLASSES = {"label": ("cat", "dog", "owl")}
COLUMNS = {name: f"value/{name}" for name in ("label", "big", "small", "x", "y", "flag")}

# Integers around the limits of the dtypes, where arithmetic of 64 bits or of floats is wrong.
EDGES = [0, 1, -1, 2, 3, 7, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.1, 0.5, 1.5, -2.5, 1e300, float("inf"), float("nan"), 2.0**53, 2.0**63]


def integers(low, high):
    near = [n + d for n in EDGES for d in (-1, 0, 1) if low <= n + d <= high]
    return st.sampled_from(near) | st.integers(low, high)


RECORD = st.fixed_dictionaries(
    {
        "label": integers(-(2**63), 2**63 - 1),
        "big": integers(0, 2**64 - 1),
        "small": integers(-128, 127),
        "x": st.sampled_from(FLOATS).map(lambda f: float(np.float32(min(f, 1e38))))
        | st.floats(width=32),
        "y": st.sampled_from(FLOATS) | st.floats(),
        "flag": st.booleans(),
        "tokens": st.integers(0, 2**32 - 1),
    }
)
CONSTANTS = st.sampled_from(EDGES).map(str) | st.sampled_from(
    ["0.5", "1e300", "1e999", "0.1", "3.0"]
)
ATOMS = st.sampled_from(["label", "big", "small", "x", "y", "flag", "len(tokens)"])
NUMBERS = st.recursive(
    ATOMS | CONSTANTS | st.just("True"),
    lambda inner: (
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner
        )
        | st.builds("(-{})".format, inner)
    ),
    max_leaves=5,
)
OPERATORS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
LISTS = st.lists(CONSTANTS, max_size=4).map(lambda found: f"[{', '.join(found)}]")
CONDITIONS = st.recursive(
    st.builds("({} {} {})".format, NUMBERS, OPERATORS, NUMBERS)
    | st.builds("({} {} {} {} {})".format, NUMBERS, OPERATORS, NUMBERS, OPERATORS, NUMBERS)
    | st.builds("({} {} {})".format, NUMBERS, st.sampled_from(["in", "not in"]), LISTS)
    | ATOMS
    | NUMBERS,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("(not {})".format, inner)
    ),
    max_leaves=4,
)


def columns_of(records):
    found = {}
    for name in SCHEMA:
        values = [record.get(name, 0) for record in records]
        if name == "tokens":
            found["length/tokens"] = np.array(values, np.uint32)
        elif SCHEMA[name].shape == () and name != "key":
            with np.errstate(over="ignore"):
                found[f"value/{name}"] = np.array(values, SCHEMA[name].dtype)
    return found


def plainly(text, record):
    """The result of Python, true or not; None where Python divides by zero, or has no float that is large enough."""
    names = {**record, "tokens": record["tokens"], "len": int}
    try:
        return eval(text, {"__builtins__": {}}, names)
    except (ZeroDivisionError, OverflowError):
        return None


@given(CONDITIONS, st.lists(RECORD, min_size=1, max_size=8))
@settings(deadline=None, max_examples=400)
@example(
    "label + 1 > label",
    [{**dict.fromkeys(("big", "small", "x", "y", "flag", "tokens"), 0), "label": 2**63 - 1}],
)
def test_each_record_has_the_result_of_python(text, records):
    text = f"(label == label) and {text}"  # Names a feature.
    expected = [plainly(text, record) for record in records]
    try:
        found = Where(text, SCHEMA)(columns_of(records))
    except ValueError as error:
        assert "fails for a record" in str(error)
        assert None in expected
    else:
        assert found.dtype == bool
        assert found.tolist() == list(map(bool, expected))


def rows_of(text, **columns):
    return Where(text, SCHEMA, CLASSES)({n: np.array(c) for n, c in columns.items()}).tolist()


def test_a_float_equals_no_integer_that_it_only_rounds_to():
    assert rows_of("y == 9007199254740993", **{"value/y": [2.0**53]}) == [False]
    assert rows_of("y in [9007199254740993, 1]", **{"value/y": [2.0**53, 1.0]}) == [False, True]


def test_classes_and_names_of_any_kind():
    labels = {"value/label": [0, 1, 2, 1]}
    assert rows_of("label == 'dog'", **labels) == [False, True, False, True]
    assert rows_of("'dog' != label", **labels) == [True, False, True, False]
    assert rows_of("label in ['cat', 'owl', 7]", **labels) == [True, False, True, False]
    assert rows_of("label not in ('cat', -1)", **labels) == [False, True, True, True]
    where = Where('value("image/class") > 1 and len("tokens") < 3', SCHEMA)
    assert where.sections == ["value/image/class", "length/tokens"]
    found = where({"value/image/class": np.array([1, 2]), "length/tokens": np.array([0, 2], "u4")})
    assert found.tolist() == [False, True]


def test_what_follows_and_is_computed_only_where_it_matters():
    columns = {"value/label": [0, 2, 0, 5], "value/small": np.array([1, 1, 1, 1], np.int8)}
    assert rows_of("label != 0 and 10 // label > 3", **columns) == [False, True, False, False]
    assert rows_of("label == 0 or 10 // label < 3", **columns) == [True, False, True, True]
    assert rows_of("0 < label < 10 / label", **columns) == [False, True, False, False]
    with pytest.raises(
        ValueError,
        match=r"'10 // label > 3' fails for a record \(integer division or modulo by zero\); test",
    ):
        rows_of("10 // label > 3", **columns)


POSSIBLE = "is not possible; use features, len"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labl == 1", r"'labl' is not a number in the index; the index has big, .* mean label\?"),
        ("key == 1", "'key' is not a number in the index; the index has big, flag"),
        ("vector > 1", "'vector' is not a number in the index"),
        ("len(label) > 1", r"'len\(label\)' is not a number in the index; .*, len\(tokens\), x"),
        ("tokens > 1", r"'tokens' is not a number .*value\(.image/class.\).* mean len\(tokens\)"),
        (
            "label == 'dgo'",
            r"'dgo'.* is not a class of label; it has cat, dog, owl; did you mean dog",
        ),
        ("small == 'cat'", "'cat'.* is not a class of small; it has no names of classes"),
        ("label + 1 == 'cat'", r"'cat'.* is not a class of label \+ 1"),
        ("label < 'cat'", f"'cat'.* {POSSIBLE}"),
        ("label in x", "'x' is not a list of numbers or names of classes"),
        ("label in [x]", r"'\[x\]' is not a list of numbers or names of classes"),
        ("label in [[1]]", f"'.1.' {POSSIBLE}"),
        ("label in [1] * 3", "'.1. . 3' is not a list"),
        ("label == [1]", POSSIBLE),
        ("1 < 2", "names no feature; the index has big"),
        ("", "is not a condition"),
        ("label = 1", "is not a condition .*expected one such as"),
        ("label == 1; flag", "is not a condition"),
        ("image/class == 1", r"is not a condition .*write a name such as image/class as value"),
        ("label ** 2 > 1", POSSIBLE),
        ("label is 1", POSSIBLE),
        ("label & 1 == 1", POSSIBLE),
        ("(lambda: flag)()", POSSIBLE),
        ("label.real == 1", f"'label.real' {POSSIBLE}"),
        ("__import__('os').getcwd() == 1", POSSIBLE),
        ("[flag for _ in ()]", POSSIBLE),
        ("flag if flag else flag", POSSIBLE),
        ("f'{label}' == 1", POSSIBLE),
        ("(flag := True)", POSSIBLE),
        ("len(tokens, 1) == 1", POSSIBLE),
        ("len(*tokens) == 1", POSSIBLE),
        ("len(tokens, key=1) == 1", POSSIBLE),
        ("label == None", f"'None' {POSSIBLE}"),
        ("label == b'a'", POSSIBLE),
        ("label == 1j", POSSIBLE),
        ("label == ...", POSSIBLE),
        ("flag\0", "is not a condition"),
        ("flag == '\udcff'", "is not a condition"),
        ("_0 == 1", "'_0' is not a number in the index"),
        ("1" * 5000 + " == label", "is not a condition"),
        ("label == " + "1" * 10_000, "has 10,009 characters, expected at most 10,000"),
        ("-" * 9000 + "label == 1", "nested|is not a condition"),
        ("(" * 4000 + "label" + ")" * 4000 + " == 1", "is not a condition"),
        ("not " * 101 + "flag", "is nested in more than 100 levels"),
        ("label == 1" + " + 1" * 2400, "is nested in more than 100 levels"),
        ("label in [" + "-" * 9000 + "1]", "is not a condition|nested"),
        ("y + 1" + "0" * 400 + " > 1 or flag", r"fails for a record \(int too large"),
    ],
)
def test_anything_else_is_an_error_that_shows_the_part(text, message):
    with pytest.raises(ValueError, match=message):
        Where(text, SCHEMA, CLASSES)(
            {name: values[:1] for name, values in columns_of([{}]).items()}
        )


def test_a_long_condition_is_no_deep_one():
    text = " or ".join(f"label == {n}" for n in range(600))
    assert rows_of(text, **{"value/label": [-1, 0, 599, 600]}) == [False, True, True, False]
