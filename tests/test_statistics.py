import json
import math
from fractions import Fraction

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.statistics import MAX_COUNTED, Numbers, Statistics, exact
from readers.format.example import Encoder
from readers.format.schema import Feature, Schema

INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64"]
finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.one_of(
    st.floats(),
    st.floats(-100, 100),
    st.sampled_from([0.1, 1e200, -1e200, 5e-324, 1.7e308, -1.7e308, math.nan, math.inf]),
)
float_arrays = hnp.arrays(np.float64, st.integers(0, 12), elements=anything)
integer_arrays = st.sampled_from(INTEGERS).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def numbers_of(*arrays) -> Numbers:
    numbers = Numbers()
    for array in arrays:
        numbers.add(np.asarray(array))
    return numbers


def figures(*arrays) -> dict:
    found = numbers_of(*arrays).to_json()
    json.dumps(found, allow_nan=False)
    return found


def exact_figures(items: list) -> tuple[float, float]:
    """Mean and population standard deviation, without any rounding on the way."""
    values = [Fraction(item) for item in items]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    scale = 1 << 800
    root = Fraction(math.isqrt(int(variance * scale * scale)), scale)
    return float(mean), float(root)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_is_an_exact_number_of_units(value):
    assert Fraction(exact(value), 1 << 1074) == Fraction(value)


@given(integer_arrays)
@settings(max_examples=300, deadline=None)
def test_integers_are_exact(array):
    found = figures(array)
    items = [int(item) for item in array.reshape(-1).tolist()]
    if not items:
        assert found == {"count": 0}
        return
    mean, std = exact_figures(items)
    assert found["count"] == len(items)
    assert (found["min"], found["max"]) == (min(items), max(items))
    assert found["mean"] == mean
    assert found["std"] == pytest.approx(std, rel=1e-15)
    assert all(type(found[name]) is int for name in ("count", "min", "max"))


@given(st.lists(finite, min_size=1, max_size=30))
@settings(max_examples=300, deadline=None)
def test_floats_agree_with_exact_fractions(items):
    found = figures(np.array(items))
    mean, std = exact_figures(items)
    spread = max(items) / 2 - min(items) / 2
    assert (found["count"], found["min"], found["max"]) == (len(items), min(items), max(items))
    assert found["mean"] == pytest.approx(mean, rel=1e-12, abs=1e-13 * max(map(abs, items)))
    # Squares below the smallest float64 are lost: 1e-150 is nothing to anybody.
    assert found["std"] == pytest.approx(std, rel=1e-6, abs=max(1e-13 * spread, 1e-150))


@pytest.mark.parametrize("name", FLOATS)
def test_floats_agree_with_numpy(name):
    array = np.random.default_rng(0).normal(3, 2, (200, 6)).astype(name)
    found = figures(array)
    wide = array.astype(np.float64)
    assert found["min"] == wide.min()
    assert found["max"] == wide.max()
    assert found["mean"] == pytest.approx(wide.mean(), rel=1e-12)
    assert found["std"] == pytest.approx(wide.std(), rel=1e-12)


def test_a_picture_agrees_with_numpy():
    picture = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    found = figures(picture)
    assert found["count"] == picture.size
    assert found["mean"] == picture.mean()
    assert found["std"] == pytest.approx(picture.std(), rel=1e-12)


def test_bfloat16_counts_as_a_float():
    found = figures(np.array([1.5, -2], ml_dtypes.bfloat16))
    assert found == {"count": 2, "min": -2.0, "max": 1.5, "mean": -0.25, "std": 1.75}


@pytest.mark.parametrize("value", [0.1, -0.3, 1e200, 1e308, 5e-324, 123456.789, 1e-200])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_a_constant_signal_has_no_deviation(value, count):
    found = figures(np.full(count, value), np.full(3, value))
    assert found["std"] == 0
    assert found["mean"] == found["min"] == found["max"] == value


def test_a_small_deviation_beside_a_large_mean_is_found():
    seconds = 1.7e9 + np.arange(1000) * 0.01
    assert figures(seconds)["std"] == pytest.approx(seconds.std(), rel=1e-6)
    assert figures(seconds[:100], seconds[100:])["std"] == pytest.approx(seconds.std(), rel=1e-6)


def test_huge_values_overflow_nothing():
    assert figures([1e200, -1e200])["std"] == pytest.approx(1e200)
    assert figures([1.7e308, -1.7e308]) == {
        "count": 2,
        "min": -1.7e308,
        "max": 1.7e308,
        "mean": 0.0,
        "std": pytest.approx(1.7e308),
    }
    assert figures([1e200], [1.0])["mean"] == 5e199


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", 0, 2**64 - 1),
        ("int8", -128, 127),
    ],
)
def test_the_extremes_of_integers_are_exact(name, low, high):
    found = figures(np.array([low, high], name))
    assert found["min"] == low
    assert found["max"] == high
    assert found["mean"] == float(Fraction(low + high, 2))
    assert found["std"] == pytest.approx((high - low) / 2)


def test_booleans_count_as_zero_and_one():
    assert figures([True, False, True, True]) == {
        "count": 4,
        "min": 0,
        "max": 1,
        "mean": 0.75,
        "std": math.sqrt(3) / 4,
    }


@given(st.lists(anything, max_size=20))
@settings(max_examples=200, deadline=None)
def test_nan_and_infinities_are_counted_apart_and_change_nothing_else(items):
    good = [item for item in items if math.isfinite(item)]
    found = figures(items)
    assert found["count"] == len(good)
    assert found.get("nan", 0) == len(items) - len(good)
    if good:
        assert (found["min"], found["max"]) == (min(good), max(good))
        without = figures(good)
        assert found["mean"] == pytest.approx(
            without["mean"], rel=1e-12, abs=1e-13 * max(map(abs, good))
        )


def test_an_array_of_nothing_but_nan_has_no_extremes():
    assert figures([math.nan, math.inf, -math.inf]) == {"count": 0, "nan": 3}
    assert figures([math.nan], [2.0]) == {
        "count": 1,
        "nan": 1,
        "min": 2.0,
        "max": 2.0,
        "mean": 2.0,
        "std": 0.0,
    }


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), np.zeros(0, np.int16), np.zeros((2, 0), bool)])
def test_empty_arrays_add_nothing(empty):
    assert figures(empty) == {"count": 0}
    assert figures([1.0, 3.0], empty) == figures([1.0, 3.0])


@given(st.lists(st.one_of(float_arrays, integer_arrays), min_size=1, max_size=7), st.data())
@settings(max_examples=300, deadline=None)
def test_merging_in_any_order_and_grouping_gives_the_same_text(arrays, data):
    one_by_one = json.dumps(figures(*arrays))
    parts = [numbers_of(array) for array in data.draw(st.permutations(arrays))]
    while len(parts) > 1:
        first = parts.pop(data.draw(st.integers(0, len(parts) - 1)))
        second = data.draw(st.integers(0, len(parts) - 1))
        parts[second].merge(first)
    # 1 == 1.0, so which of them is the least may depend on the order; a feature has one dtype.
    assert json.loads(one_by_one) == parts[0].to_json()
    if len({array.dtype.kind == "f" for array in arrays}) == 1:
        assert one_by_one == json.dumps(parts[0].to_json())


SCHEMA = Schema(
    {
        "key": Feature("string"),
        "label": Feature("int64"),
        "signal": Feature("float32", (None, 2)),
        "spectrum": Feature("complex64", (2,)),
        "picture": Feature("uint8", (None, None, 3), "png"),
        "parts": Feature("float32", (None, None), "sequence"),
        "parts_c": Feature("complex64", (None, None), "sequence"),
        "words": Feature("string", (2,)),
        "small": Feature("uint8", (3,), "list"),
    }
)


def record(length: int, label: int, value: float) -> dict:
    return {
        "key": "é" * length,
        "label": label,
        "signal": np.full((length, 2), value, np.float32),
        "spectrum": np.array([1 + 2j, 3], np.complex64),
        "picture": b"\x89PNG" + bytes(length),
        "parts": [np.full(i, value, np.float32) for i in range(length)],
        "parts_c": [np.full(i, 1j, np.complex64) for i in range(length)],
        "words": ["a", "bé"],
        "small": np.array([0, 1, length], np.uint8),
    }


def statistics_of(records: list[dict], schema: Schema = SCHEMA) -> Statistics:
    statistics = Statistics(schema)
    encoder = Encoder(schema)
    for item in records:
        statistics.add(encoder.check(item))
    return statistics


def test_every_kind_of_feature_has_its_figures():
    found = statistics_of([record(1, 7, 0.5), record(3, -1, 0.25)]).to_json()
    lengths = {"count": 2, "min": 1, "max": 3, "mean": 2.0, "std": 1.0}
    bytes_of_key = {"count": 2, "min": 2, "max": 6, "mean": 4.0, "std": 2.0}
    assert found["key"] == {"lengths": {"bytes": bytes_of_key}}
    assert found["label"] == {
        "count": 2,
        "min": -1,
        "max": 7,
        "mean": 3.0,
        "std": 4.0,
        "values": {"-1": 1, "7": 1},
    }
    assert found["signal"]["count"] == 8
    assert found["signal"]["mean"] == 0.3125
    assert found["signal"]["lengths"] == {"0": lengths}
    assert found["picture"] == {
        "lengths": {"bytes": {"count": 2, "min": 5, "max": 7, "mean": 6.0, "std": 1.0}}
    }
    assert found["parts"]["count"] == 3
    assert found["parts"]["lengths"] == {"0": lengths}
    assert found["words"]["lengths"]["bytes"]["max"] == 3
    assert found["words"]["lengths"]["bytes"]["count"] == 4
    assert found["small"]["max"] == 3
    assert list(found) == sorted(found)


def test_complex_numbers_have_no_figures(recwarn):
    found = statistics_of([record(3, 0, 1.0)]).to_json()
    assert found["spectrum"] == {}
    assert set(found["parts_c"]) == {"lengths"}
    assert not recwarn.list


def test_no_records_give_no_figures():
    assert statistics_of([]).to_json() == {name: {} for name in SCHEMA}


@given(
    st.lists(
        st.builds(record, st.integers(0, 4), st.integers(-3, 3), st.floats(width=32)), max_size=6
    ),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_statistics_merge_in_any_order(records, data):
    whole = json.dumps(statistics_of(records).to_json())
    shuffled = data.draw(st.permutations(records))
    cut = data.draw(st.integers(0, len(records)))
    left, right = statistics_of(shuffled[:cut]), statistics_of(shuffled[cut:])
    right.merge(left)
    assert json.dumps(right.to_json()) == whole


def test_labels_are_counted_in_the_order_of_their_numbers():
    found = statistics_of([record(1, label, 0.0) for label in (10, 9, 10, -2)]).to_json()
    assert list(found["label"]["values"].items()) == [("-2", 1), ("9", 1), ("10", 2)]


def test_more_labels_than_any_classification_has_are_not_counted():
    schema = Schema({"label": Feature("int64")})
    most = statistics_of([{"label": i} for i in range(MAX_COUNTED)], schema)
    assert len(most.to_json()["label"]["values"]) == MAX_COUNTED
    most.merge(statistics_of([{"label": 0}], schema))
    assert most.to_json()["label"]["values"]["0"] == 2
    most.merge(statistics_of([{"label": -1}], schema))
    assert "values" not in most.to_json()["label"]
    fresh = statistics_of([{"label": 0}], schema)
    fresh.merge(most)
    assert "values" not in fresh.to_json()["label"]


def test_labels_that_are_no_single_int64_are_not_counted():
    for feature in (Feature("int64", (2,)), Feature("int32")):
        schema = Schema({"label": feature})
        value = np.zeros(feature.shape, feature.dtype)
        assert "values" not in statistics_of([{"label": value}], schema).to_json()["label"]
