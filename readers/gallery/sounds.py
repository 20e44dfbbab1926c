"""Recordings of sound, to be played."""

from __future__ import annotations

import io
import wave
from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.markup import data_uri, element

# Samples per second of what is played, and of recordings of more than three seconds; seconds; and bytes, which
# are those of three seconds at the higher rate and of six at the lower one.
_RATES = (16_000, 8_000)
_SECONDS = 10
_MOST_BYTES = 96_000

# Below, nothing is heard that a person would know.
LOWEST_RATE = 4_000


def player(signal: np.ndarray, rate: float, name: str) -> Element:
    """An `audio` element that plays the beginning of a recording, mixed to one channel.

    Args:
        signal: Samples [steps] or [steps, channels], not empty: integers, of which those of uint8 are
            around 128, or floats from -1 to 1. Louder ones are made quieter.
        rate: Samples per second, at least 4,000.
        name: What is played, for those who cannot see it.
    """
    steps = min(len(signal), int(_SECONDS * rate))
    samples = _mixed(signal[:steps])
    fitting = (r for r in _RATES if 2 * steps * min(1, r / rate) <= _MOST_BYTES)
    target = min(rate, next(fitting, _RATES[-1]))
    samples = _resampled(samples, round(steps * target / rate))[: _MOST_BYTES // 2]
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(round(target))
        out.writeframes(np.rint(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return element(
        "audio",
        controls="controls",
        preload="metadata",
        aria_label=f"{len(samples) / target:.1f} of {len(signal) / rate:.1f} s of {name}",
        src=data_uri("audio/wav", file.getvalue()),
        style="width:100%;height:36px",
    )


def _mixed(signal: np.ndarray) -> np.ndarray:
    """The mean of all channels, float64 [steps], from -1 to 1."""
    values = signal.reshape(len(signal), -1).astype(np.float64)
    if signal.dtype.kind in "ui":
        info = np.iinfo(signal.dtype)
        middle = (int(info.max) + int(info.min) + 1) / 2
        values = (values - middle) / (int(info.max) - middle + 1)
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    loudest = max(1.0, np.abs(values).max())
    return (values / loudest).mean(axis=1)


def _resampled(samples: np.ndarray, steps: int) -> np.ndarray:
    """Samples at a lower rate, without the frequencies that it cannot hold, float64 [steps]."""
    if steps >= len(samples) or steps < 2:
        return samples
    spectrum = np.fft.rfft(samples)[: steps // 2 + 1]
    return np.fft.irfft(spectrum, steps) * (steps / len(samples))
