"""Brings a regularly sampled signal to a lower rate, without the frequencies that it cannot hold."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.jobs.sensors.recording import check_size

# The filter is a sinc that is cut after this many zeros on each side by a Kaiser window. From 1.2
# times half of the new rate on, it leaves less than 1/10,000 of a tone.
_ZEROS = 16
_BETA = 8.0


def sample_at_lower_rate(
    signal: np.ndarray, step: Fraction, offset: Fraction, count: int
) -> np.ndarray:
    """Returns the signal at the points offset + k * step, k < count, in float64 or complex128.

    A polyphase filter as in `scipy.signal.resample_poly`: frequencies above half of the new rate
    are removed first. The first and the last sample are repeated beyond the ends.

    Args:
        signal: [time] of finite numbers.
        step: Samples from one point to the next, more than 1.
        offset: The place of point 0, in samples after the first.
        count: The number of points. The last is less than a step after the last sample.

    Raises:
        RejectError: the filter would take more memory than the largest record.
    """
    reach = math.ceil(_ZEROS * step)
    check_size(8 * (2 * reach + len(signal)), "the filter of --resample takes")
    signal = signal.astype(np.result_type(signal.dtype, np.float64))
    padded = np.pad(signal, (reach, reach + math.ceil(step)), "edge")
    windows = sliding_window_view(padded, 2 * reach + 1)
    result = np.empty(count, signal.dtype)
    # Points that are a whole number of samples apart have the same weights.
    for k in range(min(step.denominator, count)):
        first, rest = divmod(offset + k * step, 1)
        part = result[k :: step.denominator]
        frames = windows[first :: step.numerator][: len(part)]
        # Not a matrix product, whose rounding may depend on the number of threads.
        np.einsum("tw,w->t", frames, _weights(step, rest), out=part)
    return result


@functools.lru_cache(maxsize=512)
def _weights(step: Fraction, rest: Fraction) -> np.ndarray:
    """Returns the weights of the samples around a point that lies `rest` after one of them."""
    reach = math.ceil(_ZEROS * step)
    zeros = (np.arange(-reach, reach + 1) - float(rest)) / float(step)
    inside = np.sqrt(np.maximum(0, 1 - (zeros / _ZEROS) ** 2))
    weights = np.where(inside > 0, np.sinc(zeros) * np.i0(_BETA * inside), 0)
    return weights / weights.sum()
