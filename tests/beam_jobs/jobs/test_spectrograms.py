"""Spectrograms, compared with TensorFlow, SciPy and librosa."""

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.spectra import spectrograms
from beam_jobs.jobs.sensors.spectra.mel import mel_bands
from beam_jobs.jobs.sensors.spectra.spectrograms import Spectrogram, spectrogram
from tests.support.arrays import assert_same

NAN = np.nan


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


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
        monkeypatch.setattr(spectrograms, "_BLOCK", block)
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
    with pytest.raises(RejectError, match=r"^its spectrogram takes 2199029547012 bytes, more than"):
        spectrogram(np.zeros(2**21, np.int8), 2**20, 1)


def test_frames_without_a_channel_are_rejected_if_there_are_too_many():
    with pytest.raises(RejectError, match=r"^its spectrogram takes 79999999999[0-9]* bytes"):
        spectrogram(np.zeros((10**13, 0)), 2, 1)


# Mel bands and decibels. The values are those of librosa 0.11.0, made with NumPy 2.4.6 from `CHIRP`.

CHIRP = np.array([((7 * n * n + 3 * n) % 31 - 15) / 16 for n in range(80)], np.float32)

# librosa.filters.mel(sr=8000, n_fft=16, n_mels=3)
FILTERS = [
    [0, 0.001428778, 0.000534866, 0, 0, 0, 0, 0, 0],
    [0, 0, 0.000851009, 0.000864714, 0.000234111, 0, 0, 0, 0],
    [0, 0, 0, 0.000219846, 0.000579353, 0.000589309, 0.000392873, 0.000196436, 0],
]

# librosa.feature.melspectrogram(y=CHIRP, sr=8000, n_fft=32, hop_length=16, center=False, n_mels=5)
BANDS = [
    [0.004308354, 0.002137462, 0.018402709, 0.018416138, 0.007601035],
    [0.03088648, 0.016309157, 0.011998973, 0.026131544, 0.008258475],
    [0.004278891, 0.002198459, 0.018358985, 0.018488038, 0.007605929],
    [0.031390823, 0.016639749, 0.011851431, 0.02636574, 0.008275431],
]

# librosa.power_to_db(the same of CHIRP whose first 48 samples are 0, top_db=None)
DECIBELS = [
    [-100, -100, -100, -100, -100],
    [-100, -100, -100, -100, -100],
    [-21.774473, -22.201351, -18.568743, -19.542194, -23.27339],
    [-15.031975, -17.788532, -19.262293, -15.789602, -20.822096],
]


def test_mel_filters_are_those_of_librosa():
    unit = np.eye(9)
    np.testing.assert_allclose(mel_bands(3, 16, 8000).sums(unit).T, FILTERS, atol=1e-9)


def test_mel_bands_are_those_of_librosa():
    bands = mel_bands(5, 32, 8000)
    found = spectrogram(np.stack([CHIRP, 2 * CHIRP], 1), 32, 16, bands)
    assert (found.dtype, found.shape) == (np.float32, (4, 5, 2))
    np.testing.assert_allclose(found[..., 0], BANDS, rtol=1e-6)
    np.testing.assert_allclose(found[..., 1], 4 * np.array(BANDS), rtol=1e-6)
    assert_same(spectrogram(CHIRP, 32, 16, bands), found[..., 0])


def test_decibels_are_those_of_librosa():
    signal = np.where(np.arange(80) < 48, 0, CHIRP)
    found = spectrogram(signal, 32, 16, mel_bands(5, 32, 8000), log=True)
    np.testing.assert_allclose(found, DECIBELS, atol=2e-5)


def test_decibels_without_bands_are_those_of_the_power_of_each_frequency():
    magnitudes = spectrogram(CHIRP, 32, 16).astype(np.float64)
    found = spectrogram(CHIRP, 32, 16, log=True)
    np.testing.assert_allclose(found, 20 * np.log10(magnitudes), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("frame", [400, 401])
def test_the_size_of_blocks_makes_no_difference_to_bands(frame, monkeypatch):
    signal, bands = noise(6000, 2), mel_bands(40, frame, 16_000)
    whole = spectrogram(signal, frame, 160, bands, log=True)
    for block in (1, frame * 2 * 5, 1 << 30):
        monkeypatch.setattr(spectrograms, "_BLOCK", block)
        assert_same(spectrogram(signal, frame, 160, bands, log=True), whole)


def test_a_missing_value_is_missing_in_the_bands_of_its_frame():
    signal = np.ones(64)
    signal[3] = NAN
    found = spectrogram(signal, 16, 16, mel_bands(3, 16, 8000), log=True)
    assert np.isnan(found[0]).all() and np.isfinite(found[1:]).all()


@pytest.mark.parametrize(("count", "frame"), [(128, 256), (8, 16), (20, 2), (10**9, 400)])
def test_more_bands_than_a_frame_has_frequencies_for_are_refused(count, frame):
    message = rf"^--mel {count}: some of these bands are narrower than the [\d.e+]+ Hz between two"
    with pytest.raises(UsageError, match=message):
        mel_bands(count, frame, 16_000)


def test_filters_larger_than_a_record_are_rejected():
    with pytest.raises(RejectError, match=r"^the filters of --mel 9999 take \d+ bytes, more than"):
        mel_bands(9999, 1 << 20, 16_000)


def test_mel_bands_need_a_rate():
    found = Spectrogram.parse("400:160", 80, False)
    assert found.of(noise(1000), 16_000).shape == (4, 80)
    message = (
        "--mel 80: the recordings do not state how many samples a second has; add --rate 16kHz"
    )
    with pytest.raises(UsageError, match=message):
        found.of(noise(1000), None)
