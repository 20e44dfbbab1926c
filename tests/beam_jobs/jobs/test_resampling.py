"""Arrays on one grid, compared with SciPy and definitions that compute one point after another."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors import resampling
from beam_jobs.jobs.sensors.resampling import resample_arrays
from tests.support.arrays import assert_same

NAN, INF = np.nan, np.inf


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# A common clock.


def resample_one(array: np.ndarray, times: np.ndarray, rate: float, max_gap: float = 1e9):
    return resample_arrays({"x": array}, {"x": np.asarray(times, np.float64)}, rate, max_gap)


@pytest.mark.parametrize("rate", [1, 7, 44.1, 44_100])
@pytest.mark.parametrize("length", [1, 2, 1001])
def test_a_recording_at_the_rate_is_unchanged_to_its_last_sample(rate, length):
    array = noise(length, 2)
    (segment,) = resample_one(array, np.arange(length) / rate, rate)
    assert_same(segment.arrays["x"], array)
    assert_same(segment.filled, np.zeros(length, bool))


@pytest.mark.parametrize("rate", [3, 1000])
@pytest.mark.parametrize("start", [-3.7, 0.1, 1_700_000_000.123])
@pytest.mark.parametrize("decimals", [6, 9])
def test_no_sample_is_lost_to_the_rounding_of_times(rate, start, decimals):
    array = noise(1000)
    times = np.round(start + np.arange(1000) / rate, decimals)
    (segment,) = resample_one(array, times, rate, 1 / rate)
    assert len(segment.filled) == 1000
    assert not segment.filled.any()
    np.testing.assert_allclose(segment.arrays["x"], array, atol=0.02)


def test_a_gap_splits_a_recording_and_its_points_belong_to_neither_side():
    times = np.array([0.0, 1, 2, 5, 6, 9.5, 10])
    found = resample_one(times * 10, times, 2, 1)
    assert len(found) == 3
    assert_same(found[0].arrays["x"], np.array([0.0, 5, 10, 15, 20]))
    assert_same(found[1].arrays["x"], np.array([50.0, 55, 60]))
    assert_same(found[2].arrays["x"], np.array([95.0, 100]))
    with pytest.raises(RejectError, match=r"^a gap of 3 s, 2 s after its start, is longer than"):
        resample_arrays({"x": times}, {"x": times}, 2, 1, whole=True)
    assert len(resample_one(times, times, 2, 3.5)) == 1


def test_a_gap_around_the_grid_leaves_no_segment():
    times = {"a": np.arange(5.0), "b": np.array([-10.0, 10])}
    with pytest.raises(RejectError, match=r"^a gap of 20 s, -10 s after its start, is longer than"):
        resample_arrays({"a": np.arange(5), "b": np.arange(2)}, times, 1, 3)


EIGHTHS = st.lists(st.integers(0, 60), min_size=1, max_size=15, unique=True).map(sorted)


def point_by_point(arrays, times, rate, max_gap):
    """The segments as (values of each array, filled), one point after the other."""
    start = max(clock[0] for clock in times.values())
    end = min(clock[-1] for clock in times.values())
    segments, inside = [], False
    for k in range(1 + math.floor((end - start) * rate)):
        now, row, far, missing = start + k / rate, {}, False, False
        for name, clock in times.items():
            before = max(i for i, t in enumerate(clock) if t <= now)
            after = min(i for i, t in enumerate(clock) if t >= now)
            width = clock[after] - clock[before]
            share = (now - clock[before]) / width if width else 0
            row[name] = arrays[name][before] + (arrays[name][after] - arrays[name][before]) * share
            missing |= width > max_gap
            own_step = np.median(np.diff(clock)) if len(clock) > 1 else 0
            far |= min(abs(now - t) for t in clock) > 0.5 * max(1 / rate, own_step) + 0.01 / rate
        if missing:
            inside = False
            continue
        if not inside:
            segments.append(({name: [] for name in times}, []))
        inside = True
        for name, value in row.items():
            segments[-1][0][name].append(value)
        segments[-1][1].append(far)
    return segments


@given(
    EIGHTHS, EIGHTHS, st.sampled_from([0.5, 1, 2, 8, 32]), st.sampled_from([0.0, 0.25, 0.5, 2, 9])
)
@settings(max_examples=30, deadline=None)
def test_segments_are_those_computed_point_by_point(a, b, rate, max_gap):
    # Eighths of a second are exact, so rounding plays no part.
    times = {"a": np.array(a) / 8, "b": np.array(b) / 8}
    arrays = {"a": noise(len(a), 2), "b": noise(len(b)).astype(np.float64)}
    if max(a[0], b[0]) > min(a[-1], b[-1]):
        with pytest.raises(RejectError, match="begins after the end of"):
            resample_arrays(arrays, times, rate, max_gap)
        return
    expected = point_by_point(arrays, times, rate, max_gap)
    if not expected:
        with pytest.raises(RejectError, match=r"^a gap of"):
            resample_arrays(arrays, times, rate, max_gap)
        return
    found = resample_arrays(arrays, times, rate, max_gap)
    for segment, (values, missing) in zip(found, expected, strict=True):
        assert_same(segment.filled, np.array(missing))
        for name, array in segment.arrays.items():
            np.testing.assert_allclose(array, np.array(values[name]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        *((d, "float32") for d in ("bool", "int8", "uint16", "float16")),
        *((d, "float64") for d in ("int32", "uint64", "float64")),
        ("complex64", "complex64"),
        ("complex128", "complex128"),
    ],
)
def test_points_are_floats_that_hold_the_measured_dtype(dtype, expected):
    array = np.array([[0, 1], [1, 0], [1, 1]]).astype(dtype)
    (segment,) = resample_one(array, [0, 1, 2], 1)
    assert_same(segment.arrays["x"], array.astype(expected))


@pytest.mark.parametrize("trailing", [(), (3,), (2, 3), (0,)])
def test_points_have_the_shape_of_measurements(trailing):
    (segment,) = resample_one(np.ones((3, *trailing)), [0, 1, 2], 4)
    assert segment.arrays["x"].shape == (9, *trailing)


def test_values_that_are_not_finite_stay_at_their_times():
    (segment,) = resample_one(np.array([0, NAN, 2, 3, INF]), np.arange(5), 1)
    assert_same(segment.arrays["x"], np.array([0, NAN, 2, 3, INF]))


def test_arrays_without_a_common_time_are_rejected():
    empty = np.empty(0)
    cases = [
        ({"a": np.array([0.0, 1]), "b": np.array([2.5])}, "b begins after the end of a, by 1.5 s"),
        ({"a": np.array([0.0, 1]), "b": empty}, "b has no samples"),
    ]
    for times, message in cases:
        with pytest.raises(RejectError, match=f"^{message}$"):
            resample_arrays(
                {name: np.zeros(len(clock)) for name, clock in times.items()}, times, 1, 1
            )


def test_arrays_need_a_time_for_each_row():
    with pytest.raises(RejectError, match=r"^x has 3 rows, but 2 times$"):
        resample_one(np.zeros(3), [0, 1], 1)


def test_a_grid_far_too_long_is_rejected():
    for times in ([0, 2.0**28], [0, 1e300], [-1e308, 1e308]):
        with pytest.raises(RejectError, match=r"samples: check the unit of the times$"):
            resample_one(np.zeros(2), times, 1)
    message = r"^1e\+12 s at 50 Hz are more than 268435456 samples"
    with pytest.raises(RejectError, match=message):
        resample_one(np.zeros(2), [0, 1e12], 50)


def test_a_result_larger_than_a_record_is_rejected_before_it_is_made():
    with pytest.raises(RejectError) as caught:
        resample_one(np.zeros((2, 1000), np.float32), [0, 1e6], 1)
    expected = "at 1 Hz it takes 4000004000 bytes, more than 268435456: raise --max_record_bytes to keep it"
    assert str(caught.value) == expected
    assert len(resample_one(np.zeros((2, 1000), np.float32), [0, 1e6], 1, 10)) == 2


# To a lower rate.


def tone(frequency: float, rate: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * frequency * np.arange(round(rate * seconds)) / rate)


def lowered(array: np.ndarray, found: float, rate: float) -> np.ndarray:
    (segment,) = resample_arrays({"x": array}, {"x": found}, rate, 1e9)
    assert not segment.filled.any()
    return segment.arrays["x"]


RATIOS = [(48_000, 16_000), (44_100, 16_000), (100, 7.5), (50, 49)]


@pytest.mark.parametrize(("found", "rate"), RATIOS)
def test_a_lower_rate_is_what_scipy_filters(found, rate):
    array = noise(2000, 2).astype(np.float64)
    up, down = Fraction(str(rate)), Fraction(str(found))
    up, down = (up / down).numerator, (up / down).denominator
    taps = scipy.signal.firwin(2 * 16 * down + 1, 1 / down, window=("kaiser", 8.0))
    expected = scipy.signal.resample_poly(array, up, down, window=taps, padtype="edge")
    result = lowered(array, found, rate)
    assert len(result) == math.floor(1999 / found * rate + 0.01) + 1
    np.testing.assert_allclose(result, expected[: len(result)], atol=5e-4)


def test_the_place_of_points_between_samples_follows_from_the_common_start():
    found, rate, late = 1000.0, 100.0, 0.01234
    clock = {"x": found, "y": late + np.arange(200) / 90}
    arrays = {"x": tone(3, found, 3.0), "y": np.zeros(200)}
    (segment,) = resample_arrays(arrays, clock, rate, 1e9)
    times = late + np.arange(len(segment.filled)) / rate
    inside = slice(16, -16)
    expected = np.sin(2 * np.pi * 3 * times)
    np.testing.assert_allclose(segment.arrays["x"][inside], expected[inside], atol=1e-4)


def test_only_the_parts_between_the_gaps_of_other_arrays_remain():
    times = {"x": 100.0, "y": np.array([0.0, 1, 2, 5, 6, 9.9])}
    arrays = {"x": noise(1000), "y": np.zeros(6)}
    found = resample_arrays(arrays, times, 10, 1)
    whole = lowered(arrays["x"], 100.0, 10)
    assert_same(found[0].arrays["x"], whole[:21])
    assert_same(found[1].arrays["x"], whole[50:61])


def test_a_missing_value_stays_missing_at_the_nearest_point_alone():
    array = tone(5, 3000).astype(np.float32)
    expected = lowered(array, 3000, 1000)
    array[[301, 601]] = NAN, INF
    result = lowered(array, 3000, 1000)
    assert np.flatnonzero(~np.isfinite(result)).tolist() == [100, 200]
    np.testing.assert_allclose(
        np.delete(result, [100, 200]), np.delete(expected, [100, 200]), atol=1e-5
    )
    assert np.isnan(lowered(np.full(90, NAN), 3000, 1000)).all()


UNEVEN = [(44_100, 15_999), (1000, 7.123456), (250.017, 250)]


@pytest.mark.parametrize(("found", "rate"), UNEVEN)
def test_the_table_of_the_filter_changes_no_sample_by_1e_7(found, rate):
    array = noise(700, 2).astype(np.float64)
    step = found / rate
    centers = np.arange(len(lowered(array, found, rate))) * step
    zeros = (np.arange(-17 * step, 700 + 17 * step).round() - centers[:, None]) / step
    window = np.i0(8 * np.sqrt(np.maximum(0, 1 - (zeros / 16) ** 2)))
    weights = np.sinc(zeros) * window * (abs(zeros) < 16)
    weights /= weights.sum(1, keepdims=True)
    samples = np.arange(-17 * step, 700 + 17 * step).round().astype(int).clip(0, 699)
    error = abs(lowered(array, found, rate) - weights @ array[samples]).max()
    assert error < 1e-7 * abs(array).max()


@pytest.mark.parametrize(
    ("rate", "length", "channels"), [(16, 60_000, 1), (16_000, 9_000, 4)], ids=str
)
def test_the_number_of_threads_changes_no_byte(rate, length, channels):
    array = noise(length, channels).astype(np.float64)
    with threadpool_limits(1):
        alone = lowered(array, 48_000, rate)
    with threadpool_limits(4):
        assert lowered(array, 48_000, rate).tobytes() == alone.tobytes()


def test_the_size_of_blocks_changes_no_sample(monkeypatch):
    found = 44_100.7
    array = noise(3000, 3).astype(np.float64)
    whole = lowered(array, found, 16_000)
    for block in (20_000, 1 << 30):
        monkeypatch.setattr(resampling, "_BLOCK", block)
        np.testing.assert_allclose(lowered(array, found, 16_000), whole, rtol=0, atol=1e-9)


def test_a_recording_shorter_than_a_sample_of_the_lower_rate_is_rejected():
    message = (
        r"^its 44100 samples are shorter than one sample of --resample, which takes 220500 of them"
    )
    with pytest.raises(RejectError, match=message):
        lowered(np.zeros(44_100, np.int16), 44_100, 0.2)
    assert len(lowered(np.zeros(44_100, np.int16), 44_100, 1)) == 2


def test_a_filter_that_takes_too_much_memory_is_rejected():
    with pytest.raises(RejectError, match=r"^the filter of --resample takes \d+ bytes, more than"):
        lowered(np.zeros((400_000, 64), np.int8), 48_000, 0.12)


def test_a_flawless_recording_at_a_higher_rate_has_nothing_filled():
    for clock in (np.arange(50) / 25, 25.0):
        (segment,) = resample_arrays({"x": noise(50)}, {"x": clock}, 50, 1)
        assert not segment.filled.any()
    times = np.delete(np.arange(50) / 25, [10, 11])
    (segment,) = resample_one(noise(48), times, 50, 1)
    assert np.flatnonzero(segment.filled).tolist() == [20, 21, 22]
