"""The example of `--map`: log-mel spectrograms, as librosa makes them, and one weight at a time."""

from types import SimpleNamespace

import numpy as np
import pytest

from examples import log_mel as module
from examples.log_mel import log_mel, mel_filters

# The values are those of librosa 0.11.0, made with NumPy 2.4.6 from `CHIRP`.

CHIRP = np.array([((7 * n * n + 3 * n) % 31 - 15) / 16 for n in range(80)], np.float32)

# librosa.filters.mel(sr=8000, n_fft=16, n_mels=3)
FILTERS = [
    [0, 0.001428778, 0.000534866, 0, 0, 0, 0, 0, 0],
    [0, 0, 0.000851009, 0.000864714, 0.000234111, 0, 0, 0, 0],
    [0, 0, 0, 0.000219846, 0.000579353, 0.000589309, 0.000392873, 0.000196436, 0],
]

# librosa.power_to_db(librosa.feature.melspectrogram(y=CHIRP, sr=8000, n_fft=32, hop_length=16, center=False,
# n_mels=5), top_db=None), for CHIRP whose first 48 samples are 0
DECIBELS = [
    [-100, -100, -100, -100, -100],
    [-100, -100, -100, -100, -100],
    [-21.774473, -22.201351, -18.568743, -19.542194, -23.27339],
    [-15.031975, -17.788532, -19.262293, -15.789602, -20.822096],
]


def test_filters_and_decibels_are_those_of_librosa(monkeypatch):
    np.testing.assert_allclose(mel_filters(3, 16, 8000), FILTERS, atol=1e-9)
    for name, value in (("FRAME", 0.004), ("STEP", 0.002), ("BANDS", 5)):
        monkeypatch.setattr(module, name, value)
    signal = np.where(np.arange(80) < 48, 0, CHIRP)
    found = log_mel({"signal": np.stack([signal, CHIRP], 1)}, SimpleNamespace(rate=8000))["mel"]
    assert (found.dtype, found.shape) == (np.float32, (4, 5))
    np.testing.assert_allclose(found, DECIBELS, rtol=1e-5)


def test_silence_is_100_decibels_below_one_and_a_short_sound_is_refused():
    silent = log_mel({"signal": np.zeros((400, 1))}, SimpleNamespace(rate=16_000))["mel"]
    assert (silent == -100).all()
    with pytest.raises(ValueError, match="399 samples, a frame has 400"):
        log_mel({"signal": np.zeros((399, 1))}, SimpleNamespace(rate=16_000))
