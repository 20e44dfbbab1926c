"""Log-mel spectrograms for `--map`, the same as librosa's with `center=False`, with only NumPy.

Copy the file to the folder where you start the job, and change it:

    python -m beam_jobs sensors --input 'sounds/*.wav' --label none --dtype float32 \
        --map log_mel:log_mel --output shards/sounds
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

# Length of a frame and distance to the next one in seconds; number of bands.
FRAME, STEP, BANDS = 0.025, 0.010, 80


def log_mel(features: dict[str, Any], info: Any) -> dict[str, Any]:
    """Returns `mel`, decibels of the power in each band, float32 [frames, BANDS].

    Args:
        features: `signal`, real numbers [time, channels]; only the first channel is used.
        info: States `rate`, samples per second.
    """
    signal = features["signal"][:, 0].astype(np.float64)
    frame, step = round(FRAME * info.rate), round(STEP * info.rate)
    if len(signal) < frame:
        raise ValueError(f"{len(signal)} samples, a frame has {frame}")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(frame) / frame)
    power = abs(np.fft.rfft(sliding_window_view(signal, frame)[::step] * window)) ** 2
    # Not a matrix product: its rounding depends on the number of threads.
    mel = np.einsum("tf,bf->tb", power, mel_filters(BANDS, frame, info.rate))
    return {"mel": (10 * np.log10(np.maximum(mel, 1e-10))).astype(np.float32)}


@functools.lru_cache(maxsize=4)
def mel_filters(bands: int, frame: int, rate: float) -> np.ndarray:
    """Returns float64 [bands, frame // 2 + 1], the weights of `librosa.filters.mel`.

    They are triangles on Slaney's mel scale from 0 Hz to half of the rate, each divided by half of its
    width in Hz.
    """
    top = 15 + 27 * np.log(rate / 2000) / np.log(6.4) if rate > 2000 else rate / 2 * 3 / 200
    mels = np.linspace(0, top, bands + 2)
    # Linear up to 1 kHz, which are 15 mel, then logarithmic.
    edges = np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((np.maximum(mels, 15) - 15) / 27))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    frequencies = np.arange(frame // 2 + 1) * rate / frame
    rising, falling = (frequencies - low) / (centre - low), (high - frequencies) / (high - centre)
    weights: np.ndarray = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return weights
