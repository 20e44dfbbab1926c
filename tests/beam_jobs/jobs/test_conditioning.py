"""From a recording to records, as the flags ask for it."""

from fractions import Fraction
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.cli.parser import parse_flags
from beam_jobs.cli.sensors import SensorFlags
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors import windows
from beam_jobs.jobs.sensors.arrays import NanPolicy
from beam_jobs.jobs.sensors.conditioning import FILLED, Conditioning, Span
from beam_jobs.jobs.sensors.recording import Recording
from tests.support.arrays import assert_same

NAN = np.nan


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def records_of(flags, arrays, clocks=None, rate=None):
    """The records of a recording, after checking that their number is known before."""
    recording = Recording(arrays, rate, clocks=clocks or {})
    records = windows.Windows(SensorFlags(**flags).conditioning(), recording, "")
    found = list(records)
    assert len(found) == len(records)
    return found


# Flags.


def test_without_flags_a_recording_is_unchanged():
    assert SensorFlags().conditioning() == Conditioning()
    arrays = {"x": noise(5, 3), "y": noise(9, 2)}
    (record,) = records_of({}, arrays)
    assert list(record) == ["x", "y"]
    for name, array in arrays.items():
        assert record[name] is array or record[name].base is array


def test_flags_are_parsed_with_their_units():
    found = SensorFlags(
        nan="reject",
        rate="16kHz",
        resample="50Hz",
        max_gap="500ms",
        window="2s",
        stride="1s",
        sequence=True,
    ).conditioning()
    assert found == Conditioning(
        nan="reject",
        rate=16_000.0,
        resample=50.0,
        max_gap=0.5,
        window=Span(2.0, True, "--window 2s"),
        stride=Span(1.0, True, "--stride 1s"),
        sequence=True,
    )
    assert SensorFlags(resample="50Hz", max_gap="10").conditioning().max_gap == 0.2
    assert (
        SensorFlags(window="7").conditioning().stride
        == SensorFlags(window="7").conditioning().window
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"stride": "5"}, "--stride 5: it has no effect without --window: add it"),
        (
            {"last_window": "pad"},
            "--last_window pad: it has no effect without --window: add it",
        ),
        (
            {"last_window": "pad", "window": "5", "sequence": True},
            "--sequence: it cannot be combined with --last_window pad: drop one",
        ),
        ({"window": "0"}, "--window 0: expected a number of samples"),
        ({"rate": "0Hz"}, "--rate 0Hz: expected a rate"),
        ({"max_gap": "1s"}, "--max_gap 1s: it has no effect without --resample: add it"),
        ({"resample": "5Hz", "max_gap": "long"}, "--max_gap long: expected a number of samples"),
    ],
)
def test_flags_that_make_no_sense_are_refused(flags, message):
    typed = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    with pytest.raises(UsageError) as caught:
        parse_flags(["sensors", *typed]).job.validate()
    assert caught.value.message.startswith(message)


# Windows.


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 25), st.integers(1, 3))
@settings(max_examples=40)
def test_windows_are_those_of_numpy(length, window, stride, channels):
    array = noise(length, channels)
    flags = {"window": str(window), "stride": str(stride)}
    if length < window:
        with pytest.raises(RejectError) as caught:
            records_of(flags, {"x": array})
        assert str(caught.value) == (
            f"it has {length} samples, expected at least {window}; --last_window pad keeps "
            "shorter recordings"
        )
        return
    expected = np.moveaxis(sliding_window_view(array, window, 0)[::stride], -1, 1)
    assert_same(np.stack([record["x"] for record in records_of(flags, {"x": array})]), expected)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 25))
@settings(max_examples=40)
def test_padded_windows_hold_every_sample_that_strides_do_not_skip(length, window, stride):
    array = noise(length, 2)
    flags = {"window": str(window), "stride": str(stride)}
    found = records_of({**flags, "last_window": "pad"}, {"x": array})
    held = set()
    for number, record in enumerate(found):
        start, count = number * stride, int(record["length"])
        assert_same(record["x"][:count], array[start : start + count])
        assert record["x"].shape == (window, 2) and not record["x"][count:].any()
        held.update(range(start, start + count))
    skipped = {n for n in range(length) if stride > window and n % stride >= window}
    assert held == set(range(length)) - skipped
    whole = records_of(flags, {"x": array}) if length >= window else []
    assert [record["length"] for record in found[: len(whole)]] == [window] * len(whole)
    assert len(found) - len(whole) in (0, 1)


def test_a_padded_window_tells_measured_samples_from_zeros():
    flags = {"window": "1s", "last_window": "pad", "rate": "10Hz"}
    arrays = {"x": np.arange(1, 14, dtype=np.int16)[:, None], "y": np.ones(13)}
    first, last = records_of(flags, arrays)
    assert (first["length"], last["length"]) == (10, 3)
    assert first["length"].dtype == np.int64
    assert_same(last["x"], np.array([[11], [12], [13], *[[0]] * 7], np.int16))
    assert_same(last["y"], np.array([[1.0]] * 3 + [[0.0]] * 7))
    (short,) = records_of(flags, {"x": noise(4)})
    assert (short["length"], short["x"].shape) == (4, (10, 1))
    with pytest.raises(RejectError, match=r"^it has 0 samples, expected at least 10$"):
        records_of(flags, {"x": noise(0)})
    with pytest.raises(RejectError, match=r"^a padded window takes 39999999960 bytes, more than"):
        records_of({**flags, "window": "999999999s"}, {"x": noise(4)})
    with pytest.raises(RejectError, match=r"^a padded window takes .* bytes, more than"):
        records_of({**flags, "rate": "999999999kHz", "window": "999999999999s"}, {"x": noise(4)})
    with pytest.raises(RejectError, match="may not be called 'length': --last_window pad adds"):
        records_of(flags, {"length": noise(4)})
    # The second window would begin after 10**24 samples.
    how = {**flags, "rate": "999999999kHz", "window": "1", "stride": "999999999999s"}
    assert len(list(records_of(how, {"x": noise(2)}))) == 1


def test_padding_adds_nothing_to_the_filled_share():
    flags = {"window": "20", "last_window": "pad", "resample": "10Hz", "max_gap": "1s"}
    found = records_of(flags, {"x": noise(50, 1)}, {"x": GAP})
    assert [record["length"] for record in found] == [20, 20, 10]
    assert {float(record[FILLED]) for record in found} == {0.0}


@pytest.mark.parametrize(("rate", "found"), [("", 100.0), ("100Hz", None), ("7Hz", 100.0)])
def test_times_become_samples_by_the_rate_of_the_file_before_that_of_the_flag(rate, found):
    flags = {"window": "500ms", "stride": "0.25s", "rate": rate}
    records = records_of(flags, {"x": noise(120, 2)}, rate=found)
    assert [record["x"].shape for record in records] == [(50, 2)] * 3


@pytest.mark.parametrize("pad", [False, True])
def test_windows_begin_at_the_samples_nearest_to_their_times(pad):
    flags = {"window": "25ms", "stride": "10ms", "last_window": "pad" if pad else "drop"}
    array = np.arange(441_001, dtype=np.int32)[:, None]
    records = records_of(flags, {"x": array}, rate=22_050.0)
    starts = [int(record["x"][0, 0]) for record in records]
    assert {len(record["x"]) for record in records} == {551}  # of 551.25
    assert starts[:4] == [0, 220, 441, 662] and starts[1000] == 220_500
    assert starts == [round(Fraction(441, 2) * number) for number in range(len(starts))]
    assert starts[-1] == round(Fraction(441, 2) * (1998 if pad else 1997))


def test_a_time_without_a_rate_is_refused_with_the_cure():
    for flags in ({"window": "1s"}, {"window": "5", "stride": "1s"}):
        with pytest.raises(UsageError, match="do not state their sampling rate; add"):
            records_of(flags, {"x": noise(50, 1)})


def test_arrays_of_different_lengths_have_no_common_windows():
    with pytest.raises(RejectError) as caught:
        records_of({"window": "5"}, {"x": noise(50, 1), "y": noise(40, 1)})
    assert str(caught.value) == (
        "'x' has 50 samples, 'y' 40: windows need arrays of one length; --resample brings them to one "
        "rate"
    )


def test_too_many_windows_are_refused_before_one_is_made(monkeypatch):
    monkeypatch.setattr(windows, "_MAX_WINDOWS", 100)
    assert len(records_of({"window": "1"}, {"x": noise(100, 1)})) == 100
    with pytest.raises(RejectError, match=r"101 windows are more than 100: is --stride correct\?"):
        records_of({"window": "1"}, {"x": noise(101, 1)})


# One clock.


def test_a_clock_follows_from_the_rate_of_the_file_or_of_the_flag():
    array = noise(40, 1)
    by_clock = records_of({"resample": "40Hz"}, {"x": array}, {"x": np.arange(40) / 20})
    for flags, rate in (({"rate": "20Hz"}, None), ({}, 20.0), ({"rate": "7Hz"}, 20.0)):
        found = records_of({"resample": "40Hz", **flags}, {"x": array}, rate=rate)
        assert_same(found[0]["x"], by_clock[0]["x"])
    with pytest.raises(UsageError) as caught:
        records_of({"resample": "10Hz"}, {"x": array})
    assert caught.value.message == (
        "--resample needs the times of the samples of 'x': add --time_column NAME, or --rate 50Hz "
        "if they are evenly spaced"
    )


def test_evenly_spaced_samples_are_filtered_and_timed_ones_interpolated():
    seconds = np.arange(1000) / 1000
    array = np.sin(2 * np.pi * 90 * seconds)  # 10 Hz too much for 100 samples a second
    flags = {"resample": "100Hz", "rate": "1kHz"}
    filtered = records_of(flags, {"x": array})[0]["x"]
    assert abs(filtered[16:-16]).max() < 1e-3
    assert_same(records_of({"resample": "100Hz"}, {"x": array}, {"x": 1000.0})[0]["x"], filtered)
    timed = records_of(flags, {"x": array}, {"x": seconds})[0]["x"]
    np.testing.assert_allclose(timed[:, 0], array[::10], atol=1e-9)


GAP = np.concatenate([np.arange(20) / 10, 5 + np.arange(30) / 10])


def test_a_gap_rejects_a_recording():
    with pytest.raises(RejectError) as caught:
        records_of({"resample": "10Hz"}, {"x": noise(50, 1)}, {"x": GAP})
    assert str(caught.value) == (
        "a gap of 3.1 s, 1.9 s after its start, is longer than --max_gap 1s; with --window or "
        "--sequence the parts between gaps are kept"
    )


def test_no_window_spans_a_gap():
    array = np.arange(50.0)[:, None]
    found = records_of({"resample": "10Hz", "window": "8", "stride": "4"}, {"x": array}, {"x": GAP})
    before, after = (
        sliding_window_view(part, 8)[::4] for part in (np.arange(20.0), np.arange(20.0, 50.0))
    )
    np.testing.assert_allclose(
        np.stack([record["x"][:, 0] for record in found]), [*before, *after], atol=1e-5
    )
    assert {float(record[FILLED]) for record in found} == {0.0}


def test_a_window_longer_than_every_segment_rejects_a_recording():
    with pytest.raises(RejectError) as caught:
        records_of({"resample": "10Hz", "window": "31"}, {"x": noise(50, 1)}, {"x": GAP})
    message = "it has 30 samples without a gap, expected at least 31; --last_window pad"
    assert str(caught.value).startswith(message)


def test_a_bridged_gap_counts_as_filled():
    flags = {"resample": "10Hz", "max_gap": "10s", "window": "10"}
    found = records_of(flags, {"x": noise(50, 1)}, {"x": GAP})
    shares = [float(record[FILLED]) for record in found]
    # Points 20 to 49 are in the gap.
    np.testing.assert_allclose(shares, [0, 0, 1, 1, 1, 0, 0, 0])


def test_an_array_may_be_called_filled_unless_recordings_are_resampled():
    arrays = {"x": noise(9, 1), "filled": noise(9, 1)}
    assert records_of({}, arrays)[0].keys() == arrays.keys()
    with pytest.raises(RejectError, match="may not be called 'filled': --resample adds it"):
        records_of({"resample": "5Hz", "rate": "5Hz"}, arrays)


# Missing values.


def test_a_rejected_value_is_named_with_its_array():
    array = np.array([[1, 5], [NAN, 6], [3, NAN]], np.float32)
    assert_same(records_of({}, {"x": array})[0]["x"], array)
    with pytest.raises(RejectError, match=r"^x: 2 of 6 values are NaN or infinite, the first in"):
        records_of({"nan": "reject"}, {"x": array})


def test_missing_values_are_filled_first():
    array = np.where(np.arange(20) == 7, NAN, np.arange(20.0))[:, None]
    flags = {"nan": "interpolate", "rate": "10Hz", "resample": "20Hz", "window": "5"}
    found = np.concatenate([record["x"][:, 0] for record in records_of(flags, {"x": array})])
    np.testing.assert_allclose(found, np.arange(35) / 2, atol=1e-6)


# Sequences.


def test_a_sequence_holds_all_arrays_of_a_recording():
    arrays = {"b": noise(5, 2), "a": noise(9, 2)}
    (record,) = records_of({"sequence": True}, arrays)
    assert list(record) == ["signal"]
    for found, expected in zip(record["signal"], arrays.values(), strict=True):
        assert_same(found, expected)


def test_a_sequence_holds_all_windows_of_each_array():
    arrays = {"a": noise(25, 2), "b": noise(25, 1)}
    flags = {"window": "10", "stride": "5"}
    (record,) = records_of({**flags, "sequence": True}, arrays)
    one_by_one = records_of(flags, arrays)
    assert list(record) == ["a", "b"]
    for name, pieces in record.items():
        assert_same(np.stack(pieces), np.stack([each[name] for each in one_by_one]))


def test_the_filled_share_of_a_sequence_is_that_of_all_its_samples():
    times = np.concatenate([np.arange(30) / 10, 5 + np.arange(20) / 5])
    flags = {"resample": "10Hz", "sequence": True}
    (record,) = records_of(flags, {"x": noise(50, 1)}, {"x": times})
    # 30 points, all measured, and 39, of which every other one is not.
    assert [len(piece) for piece in record["x"]] == [30, 39]
    assert record[FILLED] == np.float32(19 / 69)


# Anything.


@st.composite
def any_flags(draw):
    spans = st.sampled_from(["", "1", "3", "7", "40", "100ms", "1s", "999999999999s"])
    flags = {
        "nan": draw(st.sampled_from(get_args(NanPolicy))),
        "rate": draw(st.sampled_from(["", "10Hz", "0.3Hz", "999999999kHz"])),
        "resample": draw(st.sampled_from(["", "7Hz", "100Hz", "999999999kHz"])),
        "window": draw(spans),
        "sequence": draw(st.booleans()),
    }
    flags["stride"] = flags["window"] and draw(spans)
    flags["max_gap"] = flags["resample"] and draw(spans)
    if flags["window"] and not flags["sequence"]:
        flags["last_window"] = draw(st.sampled_from(("drop", "pad")))
    return flags


@st.composite
def any_series(draw):
    length = draw(st.sampled_from([0, 1, 2, 9, 30, 30]))
    shape = draw(st.sampled_from([(), (1,), (2,), (0,), (2, 3)]))
    dtype = draw(st.sampled_from(["float32", "float64", "int16", "uint64", "bool", "complex64"]))
    array = np.random.default_rng(0).normal(0, 3, (length, *shape)).astype(dtype)
    if draw(st.booleans()) and array.size and dtype.startswith("float"):
        array.flat[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from([NAN, np.inf]))
    return array


@given(any_flags(), st.lists(any_series(), min_size=1, max_size=2), st.booleans(), st.data())
@settings(max_examples=60)
def test_any_recording_gives_the_announced_number_of_records_or_a_reason(
    flags, series, timed, data
):
    arrays = dict(zip("xy", series, strict=False))
    times = {
        name: np.cumsum(data.draw(st.lists(st.floats(1e-3, 3), min_size=n, max_size=n)))
        for name, n in ((name, len(array)) for name, array in arrays.items())
        if timed
    }
    try:
        found = records_of(flags, arrays, times)
    except (RejectError, UsageError) as error:
        assert str(error)
        return
    for record in found:
        for value in record.values():
            for array in value if isinstance(value, list) else [value]:
                assert isinstance(array, np.ndarray | np.float32 | np.int64)
