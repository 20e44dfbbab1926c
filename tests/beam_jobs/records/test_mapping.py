"""A function of the user's: what it gets, what it may return, and what is said of anything else."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.pixels import compressed
from beam_jobs.records.mapping import (
    Info,
    Mapper,
    feature_of,
    load_function,
    merged,
    parse_map_schema,
    stated,
)
from readers.format.schema import Feature, Schema
from tests.support.images import encoded

# What functions were called with.
calls = []


def record_of(features, info):
    calls.append((features, info))
    return dict(features)


def mean_of(features, info):
    return {"mean": features["signal"].mean(0)}


def fails(features, info):
    values = features["signal"]
    return {"mean": values[99]}


def writes(features, info):
    features["signal"][0] = 0
    return features


def nothing(features, info):
    pass


def none(features, info):
    return {"mean": None}


def too_quiet(features, info):
    raise RejectError("too quiet")


def other_label(features, info):
    return {"mean": features["signal"].mean(0), "label": np.int64(features["label"] + 1)}


def same_label(features, info):
    return {"mean": features["signal"].mean(0), "label": np.array(features["label"])}


def more(features, info):
    return {"mean": features["signal"].mean(0), "extra": [1, 2]}


FEATURES = Schema(
    {
        "key": Feature("string"),
        "label": Feature("int64"),
        "share": Feature("float32"),
        "signal": Feature("float32", (None, 2)),
        "words": Feature("string", (None,), "list"),
        "parts": Feature("int16", (None, None), "sequence"),
        "image": Feature("uint8", (None, None, 3), "jpeg"),
    }
)
KEPT = {name: FEATURES[name] for name in ("key", "label")}
SMALL = FEATURES.select(["key", "label", "signal"])


def record(**features):
    return {
        "key": "a.npy",
        "label": 3,
        "share": np.float32(0.5),
        "signal": np.arange(6, dtype=np.float32).reshape(3, 2),
        "words": ["one", "two"],
        "parts": [np.arange(2, dtype=np.int16), np.arange(3, dtype=np.int16)],
        "image": encoded(np.full((8, 8, 3), 200, np.uint8), "JPEG"),
    } | features


def mapper(function, schema=None, features=SMALL, **more):
    name = f"{__name__}:{function.__name__}"
    _, digest, _ = load_function(name)
    schema = Schema({**KEPT, "mean": Feature("float32", (2,))} if schema is None else schema)
    kept = frozenset(KEPT)
    return Mapper(name, digest, features, schema, kept, compressed, **more)


def small():
    return {name: value for name, value in record().items() if name in SMALL}


def reason(function, schema=None, **features):
    with pytest.raises(RejectError) as caught:
        mapper(function, schema).values(small() | features, "a.npy")
    return str(caught.value)


def test_a_function_gets_decoded_features_and_what_is_known_of_the_record():
    calls.clear()
    found = mapper(record_of, FEATURES, FEATURES, rate=50.0, channels=2)
    values = found.values(record(), "a.npy")
    ((given, info),) = calls
    assert info == Info("a.npy", 50.0, 2)
    assert (given["key"], given["label"], given["share"]) == ("a.npy", 3, 0.5)
    assert [type(given[name]) for name in ("key", "label", "share")] == [str, int, float]
    assert given["words"].tolist() == [b"one", b"two"]
    assert [part.tolist() for part in given["parts"]] == [[0, 1], [0, 1, 2]]
    assert given["image"].shape == (8, 8, 3) and abs(given["image"].astype(int) - 200).max() < 3
    # What is returned as it came is stored as it was, also a JPEG, which is not compressed again.
    assert values["image"] == record()["image"]
    np.testing.assert_array_equal(values["signal"], record()["signal"])


def test_what_is_returned_takes_the_place_of_the_features_but_key_and_label():
    values = mapper(mean_of).values(small(), "a.npy")
    assert values.keys() == {"key", "label", "mean"}
    assert (values["key"], values["label"], values["mean"].tolist()) == (b"a.npy", 3, [2, 3])
    assert mapper(same_label).values(small(), "a.npy").keys() == values.keys()


def test_a_function_may_not_change_the_label():
    with pytest.raises(UsageError) as caught:
        mapper(other_label).values(small(), "a.npy")
    assert re.fullmatch(
        r"--map \S+:other_label: changed 'label' of a\.npy from 3 to .*4.*; a function may "
        "not change it: do not return it",
        caught.value.message,
    )


def test_an_exception_is_a_reject_that_names_the_line():
    line = fails.__code__.co_firstlineno + 2
    expected = rf"--map \S+:fails: IndexError: index 99 .* \(test_mapping\.py, line {line}\)"
    assert re.fullmatch(expected, reason(fails))
    assert "read-only (test_mapping.py, line" in reason(writes)
    assert re.search(r":too_quiet: too quiet \(test_mapping", reason(too_quiet))
    assert reason(nothing).endswith("returned NoneType, expected a dict of features")
    assert "feature 'mean': " in reason(none)


@pytest.mark.parametrize(
    ("function", "feature", "message"),
    [
        (
            mean_of,
            ("float32", (3,)),
            r"feature 'mean': expected float32 \[3\], got float32 \[2\]; --map_schema "
            r"mean=float32\[None\] would fit",
        ),
        (
            more,
            ("float32", (2,)),
            r"feature 'extra' is missing in the first records: return it for every record, and add "
            r"--map_schema extra=int64\[2\]",
        ),
    ],
)
def test_a_record_that_does_not_fit_says_which_schema_to_state(function, feature, message):
    assert re.search(message, reason(function, {**KEPT, "mean": Feature(*feature)}))


def test_a_missing_feature_is_a_reject():
    schema = {**KEPT, "mean": Feature("float32", (2,)), "other": Feature("int64")}
    assert reason(mean_of, schema).endswith(
        "feature 'other' is missing: return it for every record"
    )


def flipped(features, info):
    return {"image": 255 - features["image"]}


@pytest.mark.parametrize(("dtype", "encoding"), [("uint8", "jpeg"), ("uint16", "png")])
def test_pixels_are_compressed_again(dtype, encoding):
    feature = Feature(dtype, (None, None, 3), encoding)
    features = Schema({"key": Feature("string"), "image": replace(feature, encoding="tensor")})
    schema = Schema({"key": Feature("string"), "image": feature})
    found = replace(mapper(flipped, schema, features), kept=frozenset({"key"}))
    pixels = np.full((8, 8, 3), 55, dtype)
    stored = found.values({"key": "a", "image": pixels}, "a")["image"]
    _, given = mapper(record_of, schema, schema).given({"key": "a", "image": stored})
    np.testing.assert_allclose(given["image"], 255 - pixels, atol=2)


def test_steps_of_a_sequence_are_given_as_arrays_and_stored_as_features():
    features = {
        "x": Feature("int64", (None, 2), "list steps"),
        "y": Feature("int8", (None, None), "raw steps"),
    }
    schema = {"x": Feature("int64", (None, 2)), "y": Feature("int8", (None, None), "sequence")}
    made = replace(mapper(record_of, schema, Schema(features)), kept=frozenset())
    x, y = np.arange(6).reshape(3, 2), [np.zeros(2, np.int8), np.ones(3, np.int8)]
    values = made.values({"x": x, "y": y}, "a")
    np.testing.assert_array_equal(values["x"], x)
    assert [part.tolist() for part in values["y"]] == [[0, 0], [1, 1, 1]]


# Features of values.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "x=string"),
        (b"\xff", "x=string:list"),
        (True, "x=bool"),
        (0.5, "x=float32"),
        (np.float64(0.5), "x=float64"),
        ([1, 2], "x=int64[2]"),
        (np.array(["a"]), "x=string[1]"),
        (np.zeros((2, 0), np.int8), "x=int8[2,0]"),
        ([np.zeros((2, 3)), np.zeros((4, 3))], "x=float64[None,None,3]:sequence"),
    ],
    ids=str,
)
def test_the_feature_of_a_value_is_what_map_schema_states(value, text):
    feature = feature_of(value)
    assert stated("x", feature) == text
    assert parse_map_schema(text) == {"x": feature}


@pytest.mark.parametrize("value", [[], {}, [[1], [1, 2]], [np.zeros(2), np.zeros((2, 2))]])
def test_values_without_a_dtype_and_a_shape_have_no_feature(value):
    assert feature_of(value) is None


def test_features_merge_if_only_sizes_differ():
    one = Feature("int8", (2, 3), "raw")
    assert merged(one, Feature("int8", (2, 4))) == Feature("int8", (2, None), "raw")
    assert merged(Feature("int8", (None, 3)), Feature("int8", (2, 3))).shape == (None, 3)
    assert merged(one, Feature("int8", (2,))) is None
    assert merged(one, Feature("int16", (2, 3))) is None
    assert merged(Feature("int8", (None, 3), "sequence"), Feature("int8", (2, 3))) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mel", "expected NAME=DTYPE[SIZES]"),
        ("a=int8,a=int8", "each name once; got 'a=int8'"),
        ("a=int8[x]", "--map_schema a=int8[x]: invalid literal"),
        ("a=float8", "--map_schema a=float8: unknown dtype 'float8'"),
        ("a=float32[2]:jpeg", "an encoded image must be uint8"),
    ],
)
def test_a_schema_that_makes_no_sense_is_refused(text, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        parse_map_schema(text)


# Modules.


def test_a_module_of_the_current_folder_is_found_and_hashed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = b"def one(features, info):\n    return {}\n"
    (tmp_path / "own_module.py").write_bytes(source)
    function, digest, file = load_function("own_module:one")
    assert function({}, None) == {}
    assert digest == hashlib.sha256(source).hexdigest() and file == str(tmp_path / "own_module.py")
    (tmp_path / "own_module.py").write_bytes(source.replace(b"{}", b"{'edited': 1}"))
    function, other, _ = load_function("own_module:one")
    assert function({}, None) == {"edited": 1} and other != digest
    made = replace(mapper(mean_of), function="own_module:one")
    with pytest.raises(UsageError, match="differs from the module where the job was started"):
        made.values(small(), "a.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("features", "expected MODULE:FUNCTION, such as features:log_mel"),
        ("no_such:f", "no_such cannot be imported (ModuleNotFoundError"),
        ("json:no_such", "has no function 'no_such'"),
        ("sys:exit", "sys cannot be imported (AttributeError"),
        ("faulty_module:f", "faulty_module cannot be imported (SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_imported_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "faulty_module.py").write_text("def (")
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        load_function(text)
    assert caught.value.exit_code == 2
