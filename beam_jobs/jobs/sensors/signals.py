"""Signal processing: missing values filled, windows, spectrograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import check_size

NanPolicy = Literal["keep", "reject", "interpolate"]

# Values that are transformed at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 15


def fill_missing(array: np.ndarray, policy: NanPolicy) -> np.ndarray:
    """Returns the array with its NaN and infinite values treated as the policy states.

    Args:
        array: [time, ...] of any dtype; all dimensions but the first are channels.
        policy: "keep", "reject", or "interpolate": each channel linearly over the rows between the
            nearest finite values; at its ends, the nearest one.

    Raises:
        RejectError: the policy is "reject" and a value is not finite, or it is "interpolate" and
            no value of a channel is. Rows and channels are counted from 1.
    """
    if policy == "keep" or array.dtype.kind not in "fc":
        return array
    good = np.isfinite(array)
    if good.all():
        return array
    if policy == "reject":
        row, *channel = np.unravel_index(int(np.argmin(good)), good.shape)
        raise RejectError(
            f"{np.count_nonzero(~good)} of {good.size} values are NaN or infinite, the first in "
            f"row {row + 1}{_channel(channel)}"
        )
    result, good = flat(array).copy(), flat(good)
    for place in np.flatnonzero(~good.all(0)):
        known, missing = np.flatnonzero(good[:, place]), np.flatnonzero(~good[:, place])
        if not len(known):
            channel = list(np.unravel_index(place, array.shape[1:]))
            raise RejectError(f"no finite value to interpolate from{_channel(channel)}")
        result[missing, place] = np.interp(missing, known, result[known, place])
    return result.reshape(array.shape)


def _channel(place: Sequence[np.intp]) -> str:
    return f", channel {' '.join(str(index + 1) for index in place)}" if place else ""


def window_starts(length: int, window: int, stride: int, padded: bool = False) -> range:
    """Returns the starts of the windows of a recording, in samples.

    Args:
        length, window, stride: Samples of the recording, of a window, and between two starts.
        padded: Whether samples after the last window that fits begin one more, which does not.
    """
    if not padded:
        return range(0, length - window + 1, stride)
    return range(0, min(length, max(length - window, 0) + stride), stride)


def spectrogram(signal: np.ndarray, frame: int, step: int) -> np.ndarray:
    """Returns short-time Fourier magnitudes: float32 [frames, frame // 2 + 1, ...].

    They equal `tf.abs(tf.signal.stft(x, frame, step, fft_length=frame))` of each channel x if
    `frame` is even: TensorFlow's window of an odd number of samples is not periodic. Values are
    converted to float32, then transformed in float64.

    Args:
        signal: [time, ...] of real numbers; the only channel of [time, 1] adds no dimension.
        frame: Samples per frame, at least 2; each frame is multiplied by a periodic Hann window.
        step: Samples from one frame to the next. Frames lie entirely inside the signal.

    Raises:
        RejectError: the signal is complex, or its spectrogram would exceed a record.
    """
    if signal.dtype.kind == "c":
        raise RejectError(f"a spectrogram needs real numbers, not {signal.dtype}")
    channels = flat(signal)
    starts, bins = window_starts(len(signal), frame, step), frame // 2 + 1
    # Frames take time even if an array has no channel.
    check_size(4 * len(starts) * bins * max(1, channels.shape[1]), "its spectrogram takes")
    result = np.empty((len(starts), bins, channels.shape[1]), np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi / frame * np.arange(frame))
    block = max(1, _BLOCK // max(1, frame * channels.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # from values that are not finite
        series = np.ascontiguousarray(channels.T, np.float32)
        for first in range(0, len(starts), block):
            part = starts[first : first + block]
            frames = sliding_window_view(series, frame, 1)[:, part.start : part.stop : step]
            spectra = np.abs(np.fft.rfft(frames * window))
            result[first : first + block] = spectra.transpose(1, 2, 0)
    trailing = () if signal.shape[1:] == (1,) else signal.shape[1:]
    return result.reshape(len(starts), bins, *trailing)


def flat(array: np.ndarray) -> np.ndarray:
    """Returns the array as [time, channels]."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
