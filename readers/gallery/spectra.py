"""Spectrograms as small pictures: time from left to right, low frequencies below."""

from __future__ import annotations

from xml.etree.ElementTree import Element

import numpy as np

from readers.gallery.levels import finite_range, levels, viridis
from readers.gallery.markup import data_uri, element
from readers.gallery.pictures import saved

# Pixels at most.
_COLUMNS, _ROWS = 240, 80

# More colours are more bytes: of noise, 32 have two thirds of those that 256 have.
_COLORS = 32

# Samples of a frame, and how far below the loudest the darkest colour is.
_FRAME = 512
_DECIBELS = 80

# Frames of a pixel: of a long signal, most are left out.
_FRAMES = 4


def spectrogram(signal: np.ndarray) -> Element:
    """An `img` of the spectrogram of a signal, in decibels below its loudest part.

    Args:
        signal: Real numbers [steps], at least two. Those that are not finite count as 0.
    """
    frame = min(_FRAME, len(signal))
    finite = np.nan_to_num(signal.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    # Squares of the largest floats are infinite.
    finite /= np.abs(finite).max() or 1.0
    count = min(_COLUMNS * _FRAMES, max(1, (len(finite) - frame) * 4 // frame + 1))
    starts = np.linspace(0, len(finite) - frame, count).astype(np.int64)
    frames = np.lib.stride_tricks.sliding_window_view(finite, frame)[starts]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(frame)
    power = np.abs(np.fft.rfft(frames, axis=1)[:, 1:]) ** 2
    words = f"Spectrogram of {len(signal):,} steps, {_DECIBELS} dB"
    return _drawn(_decibels(_reduced(power)), words)


def bands(values: np.ndarray) -> Element:
    """An `img` of a feature that is a spectrogram, or mel bands of one.

    Args:
        values: Real numbers [frames, bands], not empty: levels in decibels, or magnitudes or powers if none is
            negative, which are then drawn in decibels.
    """
    reduced = _reduced(values.astype(np.float64))
    low, high = finite_range(reduced)
    words = f"Spectrogram of {values.shape[0]:,} frames and {values.shape[1]:,} bands"
    return _drawn(_decibels(reduced) if 0 <= low < high else reduced, words)


def _reduced(values: np.ndarray) -> np.ndarray:
    """Means of parts of equal size, float64 [240 frames at most, 80 bands at most]."""
    for axis, most in ((0, _COLUMNS), (1, _ROWS)):
        length = values.shape[axis]
        if length > most:
            starts = np.arange(most) * length // most
            counts = np.diff([*starts, length])
            # Each is divided first: sums of the largest floats are infinite.
            scale = np.repeat(1 / counts, counts)
            scaled = values * (scale[:, None] if axis == 0 else scale)
            values = np.add.reduceat(scaled, starts, axis=axis)
    return values


def _decibels(power: np.ndarray) -> np.ndarray:
    """Powers as decibels of the largest, -80 at least."""
    top = finite_range(power)[1] or 1.0
    with np.errstate(invalid="ignore"):
        return 10 * np.log10(np.maximum(power / top, 10 ** (-_DECIBELS / 10)))


def _drawn(values: np.ndarray, words: str) -> Element:
    from PIL import Image

    low, high = finite_range(values)
    shares = np.nan_to_num(levels(values, low, high), nan=0.0, posinf=1.0, neginf=0.0)
    numbers = (np.clip(shares, 0, 1) * (_COLORS - 1) + 0.5).astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(numbers.T[::-1]))
    image.putpalette(viridis(_COLORS).tobytes())
    return element(
        "img",
        src=data_uri("image/png", saved(image, "PNG")),
        alt=words,
        title=words,
        width=str(_COLUMNS),
        height=str(_ROWS),
        style="max-width:100%",
    )
