import json
import math
import re
import struct
from collections.abc import Iterable
from fractions import Fraction

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.records.numbers import Numbers, exact, exact_of, exact_text, sums_exactly
from beam_jobs.records.statistics import MAX_COUNTED, FeatureStatistics, Statistics
from readers.format.decode.column import column_of
from readers.format.dtypes import numpy_dtype
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from tests.support.memory import peak_below

INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64"]
finite = st.floats(allow_nan=False, allow_infinity=False)
anything = st.one_of(
    st.floats(),
    st.floats(-100, 100),
    st.sampled_from([0.1, 1e200, -1e200, 5e-324, 1.7e308, -1.7e308, math.nan, math.inf]),
)
integer_arrays = st.sampled_from(INTEGERS).flatmap(
    lambda name: hnp.arrays(name, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


def numbers_of(*arrays) -> Numbers:
    numbers = Numbers()
    for array in arrays:
        numbers.add([np.asarray(array)])
    return numbers


def figures(*arrays) -> dict:
    found = numbers_of(*arrays).to_json()
    json.dumps(found, allow_nan=False)
    return found


@given(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=0), elements=finite)
)
def test_floats_add_up_exactly(rows):
    assert sums_exactly(rows) == [sum(map(exact, row)) for row in rows.tolist()]


def fraction_of(text: str) -> Fraction:
    """The value of a hexadecimal float of any length."""
    sign, digits, power = re.fullmatch(r"(-?)0x([0-9a-f]+)p([+-]\d+)", text).groups()
    return int(f"{sign}{digits}", 16) * Fraction(2) ** int(power)


@given(finite, finite)
@settings(max_examples=30, deadline=None)
def test_sums_are_hexadecimal_floats_that_can_be_added(one, other):
    assert float.fromhex(exact_text(exact(one))) == one
    assert fraction_of(exact_text(exact(one))) == Fraction(one)
    total = fraction_of(figures([one])["sum"]) + fraction_of(figures([other])["sum"])
    assert total == fraction_of(figures([one], [other])["sum"])


def exact_figures(items: list) -> tuple[float, float]:
    """Mean and population standard deviation, rounded once at the end."""
    values = [Fraction(item) for item in items]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / len(values)
    scale = 1 << 800
    root = Fraction(math.isqrt(int(variance * scale * scale)), scale)
    return float(mean), float(root)


@given(integer_arrays)
@settings(max_examples=30, deadline=None)
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
    assert fraction_of(found["sum"]) == sum(items)
    assert fraction_of(found["squares"]) == sum(item * item for item in items)
    assert all(type(found[name]) is int for name in ("count", "min", "max"))


@given(st.lists(finite, min_size=1, max_size=30))
@settings(max_examples=30, deadline=None)
def test_floats_agree_with_exact_fractions(items):
    found = figures(np.array(items))
    mean, std = exact_figures(items)
    spread = max(items) / 2 - min(items) / 2
    assert (found["count"], found["min"], found["max"]) == (len(items), min(items), max(items))
    assert found["mean"] == pytest.approx(mean, rel=1e-12, abs=1e-13 * max(map(abs, items)))
    # Squares below the smallest float64 are lost; 1e-150 matters to nobody.
    assert found["std"] == pytest.approx(std, rel=1e-6, abs=max(1e-13 * spread, 1e-150))


@pytest.mark.parametrize("size", [1, 257, 150_528])
@pytest.mark.parametrize(("dtype", "value"), [("uint8", 255), ("int8", -128), ("bool", True)])
def test_the_sums_of_bytes_are_exact_where_they_are_largest(dtype, value, size):
    array = np.full(size, value, dtype)
    array[-1] = 1
    numbers = Numbers()
    numbers.add([array])
    items = [int(item) for item in array.tolist()]
    assert numbers.total == sum(items) << 1074
    assert numbers.squares == sum(item * item for item in items) << 1074


def test_bfloat16_counts_as_a_float():
    found = figures(np.array([1.5, -2], ml_dtypes.bfloat16))
    sums = {"sum": "-0x1p-1", "squares": "0x19p-2"}
    assert found == {"count": 2, "min": -2.0, "max": 1.5, "mean": -0.25, "std": 1.75, **sums}


@given(st.lists(anything, max_size=20))
@settings(max_examples=30, deadline=None)
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


@pytest.mark.parametrize("empty", [np.zeros((0, 3)), np.zeros(0, np.int16), np.zeros((2, 0), bool)])
def test_empty_arrays_add_nothing(empty):
    assert figures(empty) == {"count": 0}
    assert figures([1.0, 3.0], empty) == figures([1.0, 3.0])


# Counting many records at once gives the same bits as one by one.

# NumPy adds up to 8 values in order, up to 128 by eights, and more by halves, 8,192 at a time.
LENGTHS = [0, 1, 2, 7, 8, 9, 15, 16, 17, 127, 128, 129, 130, 255, 256, 257, 1000, 1024, 4095, 4097]
LENGTHS += [8191, 8192, 8193, 16_384, 20_011]
NUMBERS = [*INTEGERS, *FLOATS, "bfloat16"]


def long_array(rng: np.random.Generator, dtype: str, length: int, kind: str) -> np.ndarray:
    """Values whose float64 sums are rounded; `odd` ones are not all finite."""
    target = numpy_dtype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, length).astype(bool)
    if target.kind in "iu":
        low, high = np.iinfo(target).min, np.iinfo(target).max
        if kind == "small":
            low, high = max(low, -100), min(high, 100)
        return rng.integers(low, high, length, target, endpoint=True)
    values = rng.normal(1e3, 1, length) * (1 if kind == "small" else 10.0 ** rng.integers(0, 5))
    with np.errstate(over="ignore"):
        array = values.astype(target)
    if kind == "odd" and length:
        array[rng.integers(0, length)] = rng.choice([np.nan, np.inf, -np.inf])
    return array


@pytest.mark.parametrize("dtype", NUMBERS)
def test_many_long_arrays_at_once_count_as_one_by_one(dtype):
    kind = "odd" if dtype in FLOATS else "large"
    rng = np.random.default_rng(len(dtype))
    arrays = [long_array(rng, dtype, int(n), kind) for n in rng.permutation(LENGTHS)]
    together = Numbers()
    together.add(arrays)
    assert together == numbers_of(*arrays)
    assert together.count + together.nan == sum(LENGTHS)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("uint8", "large"), ("int64", "large"), ("float32", "odd"), ("bfloat16", "small")],
)
def test_records_of_many_parts_have_exact_figures(monkeypatch, dtype, kind):
    monkeypatch.setattr("beam_jobs.records.numbers._VALUES_AT_ONCE", 7)
    monkeypatch.setattr("beam_jobs.records.numbers._EXACT_AT_ONCE", 3)
    rng = np.random.default_rng(len(dtype))
    arrays = [long_array(rng, dtype, size, kind) for size in (1, 6, 7, 8, 90, 2, 2, 2, 2, 31)]
    together = Numbers()
    together.add(arrays)
    assert together == numbers_of(*arrays)
    found = together.to_json()
    values = np.concatenate(arrays)
    values = values[np.isfinite(values.astype(np.float64))].tolist()
    mean, std = exact_figures(values)
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert found["mean"] == pytest.approx(mean, rel=1e-12)
    assert found["std"] == pytest.approx(std, rel=1e-9)


@pytest.mark.parametrize(("dtype", "value"), [("int16", 0), ("float32", 0), ("float32", np.nan)])
def test_a_long_record_is_summed_in_memory_of_bounded_size(monkeypatch, dtype, value):
    monkeypatch.setattr("beam_jobs.records.numbers._VALUES_AT_ONCE", 1 << 13)
    monkeypatch.setattr("beam_jobs.records.numbers._parts.__defaults__", (1 << 13,))
    monkeypatch.setattr("beam_jobs.records.numbers._BYTES_AT_ONCE", 1 << 13)
    array = np.full((100_000, 4), 1, dtype)
    array[0, 0] = value
    feature = Feature(dtype, (None, 4))
    found = FeatureStatistics([Numbers() for _ in range(4)], {})
    with peak_below(2 << 20):
        found.add(feature, [array])
    assert found.channels[1].count == 100_000


@pytest.mark.parametrize("top", [1 << 20, 2**31, 3_000_000_000, 2**62, 2**63 - 1])
def test_sums_of_many_integers_are_exact_beyond_what_a_float_holds(top):
    array = np.random.default_rng(top).integers(top // 2, top, 9_999) | 1
    numbers = numbers_of(array)
    assert numbers.total == sum(array.tolist()) << 1074
    assert numbers.squares == sum(item * item for item in array.tolist()) << 1074


def test_zeros_of_both_signs_are_one_number_in_any_order():
    zeros = [np.array([0.0]), np.array([-0.0])]
    found = {json.dumps(figures(*order)) for order in (zeros, zeros[::-1], zeros[:1] * 2)}
    found.add(json.dumps(figures(np.concatenate(zeros[::-1]))))
    found.add(json.dumps(figures(*zeros[1:] * 2)))
    assert len(found) == 1
    assert "-" not in found.pop()


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


def picture(height: int, width: int) -> bytes:
    """The start of a PNG; of height 0, no reader would read it."""
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">2I", width, height)


def record(length: int, label: int, value: float) -> dict:
    return {
        "key": "é" * length,
        "label": label,
        "signal": np.full((length, 2), value, np.float32),
        "spectrum": np.array([1 + 2j, 3], np.complex64),
        "picture": picture(length, 9) + bytes(length),
        "parts": [np.full(i, value, np.float32) for i in range(length)],
        "parts_c": [np.full(i, 1j, np.complex64) for i in range(length)],
        "words": ["a", "bé"],
        "small": np.array([0, 1, length], np.uint8),
    }


def statistics_of(records: list[dict], schema: Schema = SCHEMA) -> Statistics:
    statistics = Statistics(schema)
    encoder = Encoder(schema)
    for item in records:
        statistics.add([encoder.check(item)])
    return statistics


def channels_of_all(records: list[np.ndarray], feature: Feature) -> dict | None:
    schema = Schema({"x": feature})
    found = statistics_of([{"x": array} for array in records], schema).to_json()["x"]
    # Values of all channels are counted once, and as without channels.
    whole = numbers_of(*records).to_json()
    assert in_floats(found, whole) == pytest.approx(in_floats(whole, whole), rel=1e-12)
    return found.get("channels")


def in_floats(found: dict, names: Iterable[str]) -> dict:
    """Some figures, with rounded sums."""
    return {
        name: float(fraction_of(found[name])) if name in ("sum", "squares") else found[name]
        for name in names
    }


@pytest.mark.parametrize(
    ("dtype", "encoding"), [("uint8", "tensor"), ("int16", "raw"), ("float32", "list")]
)
def test_each_channel_has_a_mean_and_a_deviation(dtype, encoding):
    rng = np.random.default_rng(0)
    records = [(rng.normal([5, 50, 100], [1, 10, 20], (n, 4, 3))).astype(dtype) for n in (1, 9, 0)]
    found = channels_of_all(records, Feature(dtype, (None, 4, 3), encoding))
    values = np.concatenate(records).reshape(-1, 3).astype(np.float64)
    for name in ("sum", "squares"):
        found[name] = [float(fraction_of(text)) for text in found[name]]
    expected = {
        "count": [40] * 3,
        "mean": values.mean(axis=0),
        "std": values.std(axis=0),
        "sum": values.sum(axis=0),
        "squares": np.square(values).sum(axis=0),
    }
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        assert found[name] == pytest.approx(list(numbers), rel=1e-12)


@pytest.mark.parametrize("shape", [(3,), (5, 1), (5, None), (2, 65), (None, None)])
def test_other_dimensions_are_counted_together(shape):
    array = np.arange(np.prod([size or 4 for size in shape]), dtype=np.float32)
    records = [array.reshape([size or 4 for size in shape])]
    assert channels_of_all(records, Feature("float32", shape)) is None


def test_a_channel_without_a_number_has_no_mean():
    records = [np.array([[1.0, np.nan], [3.0, np.inf]])]
    found = channels_of_all(records, Feature("float64", (None, 2)))
    sums = {"sum": ["0x1p+2", None], "squares": ["0x5p+1", None]}
    assert found == {"count": [2, 0], "mean": [2.0, None], "std": [1.0, None], **sums}
    empty = [{"x": np.zeros((0, 2))}]
    found = statistics_of(empty, Schema({"x": Feature("float64", (None, 2))})).to_json()
    assert list(found["x"]) == ["lengths"]


def test_every_kind_of_feature_has_its_figures():
    found = statistics_of([record(1, 7, 0.5), record(3, -1, 0.25)]).to_json()
    lengths = figures([1, 3])
    assert lengths == {
        **{"count": 2, "min": 1, "max": 3, "mean": 2.0, "std": 1.0},
        **{"sum": "0x1p+2", "squares": "0x5p+1"},
    }
    assert found["key"] == {"lengths": {"bytes": figures([2, 6])}}
    assert found["label"] == {**figures([7, -1]), "values": {"-1": 1, "7": 1}}
    assert found["signal"]["count"] == 8
    assert found["signal"]["mean"] == 0.3125
    assert found["signal"]["lengths"] == {"0": lengths}
    assert found["picture"] == {
        "lengths": {"0": lengths, "1": figures([9, 9]), "bytes": figures([25, 27])}
    }
    assert found["parts"]["count"] == 3
    assert found["parts"]["lengths"] == {"0": lengths}
    assert found["words"]["lengths"]["bytes"]["max"] == 3
    assert found["words"]["lengths"]["bytes"]["count"] == 4
    assert found["small"]["max"] == 3
    assert list(found) == sorted(found)


@pytest.mark.parametrize("other", [b"GIF89a", picture(0, 5), b""])
def test_sizes_of_pictures_are_left_out_unless_all_are_known(other):
    schema = Schema({"x": Feature("uint8", (None, None, 1), "png")})
    pictures, more = [picture(2, 3), picture(4, 3)], [picture(1, 8)]
    whole, part = Statistics(schema), Statistics(schema)
    whole.add([{"x": data} for data in (*pictures, *more)])
    part.add([{"x": data} for data in (*pictures, other)])
    sizes = {"0": figures([2, 4, 1]), "1": figures([3, 3, 8])}
    assert whole.to_json()["x"]["lengths"].items() >= sizes.items()
    assert [*part.to_json()["x"]["lengths"]] == ["bytes"]
    # Also if an earlier version, which counts no sizes, has counted a part of the records.
    old = json.loads(json.dumps(whole.to_json()))
    old["x"]["lengths"] = {"bytes": old["x"]["lengths"]["bytes"]}
    whole.add_json(old, 3, whole.remarks)
    assert [*whole.to_json()["x"]["lengths"]] == ["bytes"]


def test_only_the_sizes_that_a_feature_leaves_open_are_counted():
    schema = Schema({"x": Feature("uint8", (2, None, 1), "png")})
    found = statistics_of([{"x": picture(2, 3)}, {"x": picture(2, 5)}], schema).to_json()
    assert found["x"]["lengths"] == {"1": figures([3, 5]), "bytes": figures([24, 24])}


def test_complex_numbers_have_no_figures(recwarn):
    found = statistics_of([record(3, 0, 1.0)]).to_json()
    assert found["spectrum"] == {}
    assert set(found["parts_c"]) == {"lengths"}
    assert not recwarn.list


def test_no_records_give_no_figures():
    assert statistics_of([]).to_json() == {name: {} for name in SCHEMA}


drawn_records = st.lists(
    st.builds(record, st.integers(0, 4), st.integers(-3, 3), st.floats(width=32)), max_size=6
)


@given(drawn_records, st.data())
@settings(max_examples=15, deadline=None)
def test_statistics_merge_in_any_order(records, data):
    whole = statistics_of(records)
    shuffled = data.draw(st.permutations(records))
    cut = data.draw(st.integers(0, len(records)))
    left, right = statistics_of(shuffled[:cut]), statistics_of(shuffled[cut:])
    right.merge(left)
    assert right.records == whole.records == len(records)
    assert json.dumps(right.to_json()) == json.dumps(whole.to_json())


def test_only_labels_that_are_a_single_int64_are_counted():
    for feature in (Feature("int64", (2,)), Feature("int32")):
        schema = Schema({"label": feature})
        value = np.zeros(feature.shape, feature.dtype)
        assert "values" not in statistics_of([{"label": value}], schema).to_json()["label"]


@given(drawn_records, st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_records_added_at_once_count_as_one_by_one(records, cut):
    encoder = Encoder(SCHEMA)
    checked = [encoder.check(item) for item in records]
    together = Statistics(SCHEMA)
    together.add(checked[:cut])
    together.add(checked[cut:])
    assert together.state() == statistics_of(records).state()


TOKENS = Schema({"tokens": Feature("int64", (None,), "list"), "label": Feature("int64")})


@given(st.data(), st.sampled_from([*INTEGERS, *FLOATS, "bfloat16"]))
def test_decoded_columns_count_as_their_records(data, dtype):
    shape = data.draw(st.lists(st.sampled_from([None, 0, 1, 2, 3]), max_size=3))
    feature = Feature(dtype, tuple(shape), "tensor")
    sizes = st.tuples(*(st.integers(0, 3) if size is None else st.just(size) for size in shape))
    seeds = data.draw(st.lists(st.tuples(st.integers(0, 99), sizes), min_size=1, max_size=9))
    values = [
        (np.random.default_rng(seed).normal(size=size) * 50).astype(numpy_dtype(dtype))
        for seed, size in seeds
    ]
    one, other = Statistics(Schema({"x": feature})), Statistics(Schema({"x": feature}))
    for value in values:
        one.add([{"x": value}])
    other.add_decoded(len(values), {"x": column_of(feature, values)})
    assert one.state() == other.state()


@given(drawn_records)
@settings(max_examples=15, deadline=None)
def test_statistics_are_restored_from_their_state_in_json(records):
    statistics = statistics_of(records)
    again = Statistics.of_state(SCHEMA, json.loads(json.dumps(statistics.state())))
    assert again.state() == statistics.state()
    assert again.records == len(records)
    assert json.dumps(again.to_json()) == json.dumps(statistics.to_json())
    again.merge(statistics)
    assert again.state() == statistics_of(records * 2).state()


def test_each_token_is_counted():
    records = [{"tokens": tokens, "label": 7} for tokens in ([], [5, 5, 2], [5, 1000], [2])]
    found = statistics_of(records, TOKENS)
    assert found.to_json()["tokens"] == {
        **figures(np.array([5, 5, 2, 5, 1000, 2])),
        "lengths": {"0": figures(np.array([0, 3, 2, 1]))},
        "values": {"2": 2, "5": 3, "1000": 1},
    }
    assert found.to_json()["label"]["values"] == {"7": 4}
    again = Statistics.of_state(TOKENS, json.loads(json.dumps(found.state())))
    assert again.to_json() == found.to_json()
    again.merge(found)
    assert again.to_json()["tokens"]["values"] == {"2": 4, "5": 6, "1000": 2}


def test_tokens_of_other_kinds_and_too_many_of_them_are_not_counted():
    for dtype, value in (("string", "a"), ("int32", 1), ("float32", 1.0)):
        schema = Schema({"tokens": Feature(dtype, (None,), "list")})
        assert "values" not in statistics_of([{"tokens": [value]}], schema).to_json()["tokens"]
    most = statistics_of([{"tokens": np.arange(MAX_COUNTED), "label": 0}], TOKENS)
    assert len(most.to_json()["tokens"]["values"]) == MAX_COUNTED
    again = Statistics.of_state(TOKENS, json.loads(json.dumps(most.state())))
    assert again.state() == most.state()
    more = statistics_of([{"tokens": [-1], "label": 0}], TOKENS)
    more.merge(most)
    assert "values" not in more.to_json()["tokens"]
    assert more.to_json()["label"]["values"] == {"0": 2}
    again = Statistics.of_state(TOKENS, json.loads(json.dumps(more.state())))
    assert again.state() == more.state()
    again.merge(most)
    assert "values" not in again.to_json()["tokens"]
    at_once = statistics_of([{"tokens": np.arange(MAX_COUNTED + 1), "label": 0}], TOKENS)
    assert "values" not in at_once.to_json()["tokens"]


@given(drawn_records, st.integers(0, 6))
def test_statistics_in_a_manifest_are_added_exactly(records, cut):
    first, whole = statistics_of(records[:cut]), statistics_of(records)
    added = statistics_of(records[cut:])
    value = json.loads(json.dumps(first.to_json()))
    added.add_json(value, first.records, first.remarks)
    assert added.to_json() == whole.to_json()
    assert added.records == whole.records
    assert all(statistics.missing == 0 for statistics in added.features.values())


@given(finite | st.integers(-(2**70), 2**70).map(float))
def test_a_sum_is_read_exactly(value):
    assert exact_of(exact_text(exact(value))) == exact(value)
    total = exact(value) ** 2 * 3 + 1
    assert exact_of(exact_text(total)) == total


@pytest.mark.parametrize("text", ["", "1.5", "0x1", "0x1p-1075", "0x1p+9999", "0x1.8p+1", "nan"])
def test_a_text_that_is_no_exact_sum_is_an_error(text):
    with pytest.raises(ValueError, match="expected a hexadecimal number such as"):
        exact_of(text)
