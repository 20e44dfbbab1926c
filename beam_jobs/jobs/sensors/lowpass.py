"""Brings a regularly sampled signal to a lower rate, without the frequencies that it cannot hold."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# The filter is a sinc that is cut after this many zeros on each side by a Kaiser window. From 1.2
# times half of the new rate on, it leaves less than 1/10,000 of a tone.
_ZEROS = 16
_BETA = 8.0

# Values of the filter from one zero to the next. Linear interpolation between them changes samples by
# less than 1e-7 of the largest.
_FINE = 4096

# Values that are filtered at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 17


def sample_at_lower_rate(
    signal: np.ndarray,
    step: Fraction,
    offset: Fraction,
    count: int,
    dtype: np.dtype,
    limit: int = DEFAULT_RECORD_BYTES,
) -> np.ndarray:
    """Returns the signal at the points offset + k * step, k < count: [count, channels].

    A polyphase filter as in `scipy.signal.resample_poly`: frequencies above half of the new rate
    are removed first. The first and the last sample are repeated beyond the ends. It is
    computed in float64 or complex128.

    Args:
        signal: [time, channels] of finite numbers.
        step: Samples from one point to the next, more than 1.
        offset: The place of point 0, in samples after the first.
        count: The number of points. The last is less than a step after the last sample.
        dtype: The dtype of the result.
        limit: The most bytes that the filter may take.

    Raises:
        RejectError: the signal is shorter than a step, 1/32 of the filter, or the filter would take
            more memory than the largest record.
    """
    if step > len(signal):
        raise RejectError(
            f"its {len(signal)} samples are shorter than one sample of --resample, which is "
            f"{float(step):g} of them: choose a higher rate"
        )
    reach = math.ceil(_ZEROS * step)
    taps, channels = 2 * reach + 1, signal.shape[1]
    # Filter weights and their temporaries, and the samples under them as stored and as float64.
    check_bytes(8 * taps * (6 + 4 * channels), limit, "the filter of --resample takes")
    block = max(1, _BLOCK // (taps * max(1, channels)))
    # Points that are a whole number of samples apart have the same weights.
    period = min(count, step.denominator * max(1, block // step.denominator))
    exact = np.result_type(signal.dtype, np.float64)
    result = np.empty((count, channels), dtype)
    for low in range(0, period, block):
        first, rest = divmod(offset + low * step, 1)
        places = float(rest) + float(step) * np.arange(min(block, period - low))
        whole = places.astype(np.int64)
        weights = _weights(places - whole, float(step), reach)
        for k in range(low, count, period):
            part = result[k : k + len(whole)]
            start = first + int((k - low) * step) - reach
            frames = _frames(signal, start, whole[: len(part)], taps, exact)
            # Not a matrix product, whose rounding may depend on the number of threads.
            part[:] = np.einsum("cpw,pw->pc", frames, weights[: len(part)])
    return result


def _frames(
    signal: np.ndarray, start: int, places: np.ndarray, taps: int, dtype: np.dtype
) -> np.ndarray:
    """Returns the samples from start + place on, for each place: [channels, places, taps]."""
    around = np.arange(start, start + int(places[-1]) + taps)
    part = np.ascontiguousarray(signal.take(around, 0, mode="clip").T, dtype)
    return sliding_window_view(part, taps, 1)[:, places]


def _weights(rests: np.ndarray, step: float, reach: int) -> np.ndarray:
    """Returns the weights of the samples around points that lie `rests` after one: [points, taps]."""
    zeros = np.abs(np.arange(-reach, reach + 1) - rests[:, None]) / step
    weights = np.interp(zeros, *_kernel())
    weights /= weights.sum(1, keepdims=True)
    return weights


@functools.cache
def _kernel() -> tuple[np.ndarray, np.ndarray]:
    """Returns the filter as (distances from its centre in zeros, values)."""
    zeros = np.arange(_ZEROS * _FINE + 1) / _FINE
    window = np.i0(_BETA * np.sqrt(1 - (zeros / _ZEROS) ** 2))
    return zeros, np.sinc(zeros) * window * (zeros < _ZEROS)
