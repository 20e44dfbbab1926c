"""Missing values and spectrograms, compared with NumPy, SciPy, TensorFlow and plain definitions."""

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors import signals
from beam_jobs.jobs.sensors.signals import fill_missing, spectrogram
from tests.support.arrays import assert_same

NAN, INF = np.nan, np.inf


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# Missing values.


def test_an_array_without_missing_values_is_the_array_itself():
    for array in (noise(5, 2), np.arange(5), np.ones((0, 3)), np.ones((3, 0)), np.ones(3, bool)):
        for policy in ("reject", "keep", "interpolate"):
            assert fill_missing(array, policy) is array


def test_missing_values_are_counted_and_the_first_is_named():
    array = noise(4, 3)
    array[2, 1], array[3, 0], array[3, 2] = INF, NAN, -INF
    with pytest.raises(RejectError) as caught:
        fill_missing(array, "reject")
    expected = "3 of 12 values are NaN or infinite, the first in row 3, channel 2"
    assert str(caught.value) == expected
    with pytest.raises(RejectError, match=r"^1 of 3 values .* in row 2$"):
        fill_missing(np.array([0, NAN, 1]), "reject")
    with pytest.raises(RejectError, match=r"in row 1, channel 2 1$"):
        fill_missing(np.array([[[0.0, 1], [NAN, 2]]]), "reject")


def test_missing_values_are_interpolated_between_their_neighbours():
    array = np.array([[NAN, 1], [1, 2], [INF, NAN], [NAN, 4], [7, -INF]], np.float32)
    before = array.copy()
    assert_same(
        fill_missing(array, "interpolate"),
        np.array([[1, 1], [1, 2], [3, 3], [5, 4], [7, 4]], np.float32),
    )
    assert_same(array, before)


def line_by_line(values: list[complex]) -> list[complex]:
    """A channel without missing values, interpolated one value after the other."""
    good = [i for i, value in enumerate(values) if np.isfinite(value)]
    result = []
    for i in range(len(values)):
        before = max((g for g in good if g <= i), default=good[0])
        after = min((g for g in good if g >= i), default=good[-1])
        share = (i - before) / (after - before) if after > before else 0
        result.append(values[before] + (values[after] - values[before]) * share)
    return result


@given(
    st.lists(st.sampled_from([NAN, INF, -INF, *range(-3, 4)]), min_size=12, max_size=12),
    st.sampled_from(["float16", "float32", "float64", "complex64"]),
    st.sampled_from([(12,), (12, 1), (4, 3), (3, 2, 2)]),
)
@settings(max_examples=80, deadline=None)
def test_every_channel_is_filled_on_its_own(values, dtype, shape):
    array = np.array(values).reshape(shape).astype(dtype)
    channels = array.reshape(shape[0], -1)
    if np.isfinite(channels).any(0).all():
        expected = np.stack([line_by_line(channel) for channel in channels.T.tolist()], 1)
        found = fill_missing(array, "interpolate")
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_allclose(found, expected.reshape(shape), rtol=2e-3, atol=2e-3)
    else:
        with pytest.raises(RejectError, match="no finite value to interpolate from"):
            fill_missing(array, "interpolate")


def test_a_channel_without_numbers_is_named():
    array = noise(4, 3, 2)
    array[:, 1, 0] = NAN
    with pytest.raises(RejectError, match=r"^no finite value to interpolate from, channel 2 1$"):
        fill_missing(array, "interpolate")
    with pytest.raises(RejectError, match=r"^no finite value to interpolate from$"):
        fill_missing(np.array([NAN, INF]), "interpolate")


# Spectrograms.


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (np.float32, expected.shape)
    np.testing.assert_allclose(
        found, expected, rtol=1e-4, atol=1e-4 * max(1, abs(expected).max(initial=0))
    )


@given(
    st.integers(0, 300),
    st.integers(1, 40).map(lambda n: 2 * n),
    st.integers(1, 100),
    st.integers(1, 3),
)
@settings(max_examples=40, deadline=None)
def test_a_spectrogram_is_that_of_tensorflow(length, frame, step, channels):
    signal = noise(length, channels)
    stft = tf.signal.stft(signal.T, frame, step, fft_length=frame)
    expected = np.moveaxis(tf.abs(stft).numpy(), 0, -1)
    close(spectrogram(signal, frame, step), expected[..., 0] if channels == 1 else expected)


@pytest.mark.parametrize(
    ("frame", "step"), [(2, 1), (3, 2), (15, 15), (64, 16), (399, 160), (400, 160)]
)
def test_a_spectrogram_is_that_of_scipy(frame, step):
    signal = noise(1000)
    _, _, expected = scipy.signal.stft(
        signal, window="hann", nperseg=frame, noverlap=frame - step, boundary=None, padded=False
    )
    scale = scipy.signal.get_window("hann", frame).sum()  # It gives amplitudes.
    close(spectrogram(signal, frame, step), abs(expected.T) * scale)


def test_the_size_of_blocks_makes_no_difference(monkeypatch):
    signal = noise(3000, 3)
    whole = spectrogram(signal, 64, 16)
    for block in (1, 64 * 3 * 5, 1 << 30):
        monkeypatch.setattr(signals, "_BLOCK", block)
        assert_same(spectrogram(signal, 64, 16), whole)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20,), (4, 5)),
        ((20, 1), (4, 5)),
        ((20, 2), (4, 5, 2)),
        ((20, 2, 3), (4, 5, 2, 3)),
        ((20, 1, 1), (4, 5, 1, 1)),
        ((20, 0), (4, 5, 0)),
        ((7, 2), (0, 5, 2)),
        ((0, 2), (0, 5, 2)),
        ((8,), (1, 5)),
    ],
)
def test_a_spectrogram_has_frames_bins_and_channels(shape, expected):
    signal = noise(*shape)
    found = spectrogram(signal, 8, 4)
    assert (found.dtype, found.shape) == (np.float32, expected)
    for place in np.ndindex(shape[1:]):
        channel = spectrogram(signal[(slice(None), *place)], 8, 4)
        assert_same(found[(..., *place)] if len(expected) > 2 else found, channel)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float64", ">f4"])
def test_a_spectrogram_converts_any_dtype_to_float32(dtype):
    signal = (np.random.default_rng(0).normal(size=100) * 3e5).astype(dtype)
    assert_same(spectrogram(signal, 16, 8), spectrogram(signal.astype(np.float32), 16, 8))


def test_a_value_that_is_not_finite_affects_its_own_frame_alone(recwarn):
    signal = np.ones(64)
    signal[3], signal[40] = NAN, 1e300
    found = spectrogram(signal, 16, 16)
    assert [bool(np.isfinite(frame).all()) for frame in found] == [False, True, False, True]
    assert not recwarn.list


def test_a_spectrogram_of_complex_numbers_is_rejected():
    with pytest.raises(RejectError, match=r"^a spectrogram needs real numbers, not complex64$"):
        spectrogram(np.ones(10, np.complex64), 4, 2)


def test_a_spectrogram_larger_than_a_record_is_rejected_before_it_is_made():
    with pytest.raises(
        RejectError, match=r"^its spectrogram takes 2199029547012 bytes, more than a"
    ):
        spectrogram(np.zeros(2**21, np.int8), 2**20, 1)


def test_frames_without_a_channel_are_rejected_if_there_are_too_many():
    with pytest.raises(RejectError, match=r"^its spectrogram takes 79999999999[0-9]* bytes"):
        spectrogram(np.zeros((10**13, 0)), 2, 1)
