"""Missing values of arrays, and where their windows begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from beam_jobs.errors import RejectError

NanPolicy = Literal["keep", "reject", "interpolate"]


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


def flat(array: np.ndarray) -> np.ndarray:
    """Returns the array as [time, channels]."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
