"""Mel bands: sums of a power spectrum over ranges of frequencies, narrow at low pitches, wide at high."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# The mel scale of Slaney's Auditory Toolbox: linear up to a frequency, then logarithmic.
_HZ_PER_MEL = 200 / 3
_BREAK_HZ = 1000.0
_BREAK_MEL = _BREAK_HZ / _HZ_PER_MEL
_LOG_STEP = math.log(6.4) / 27


class MelBands(NamedTuple):
    """The filters of all bands without their zeros.

    Attributes:
        bins: int64 [weights], the frequency of each weight, band after band.
        weights: float64 [weights].
        starts: int64 [bands], the first weight of each band.
    """

    bins: np.ndarray
    weights: np.ndarray
    starts: np.ndarray

    def sums(self, power: np.ndarray) -> np.ndarray:
        """Returns the weighted sums of a power spectrum [..., frequencies]: [..., bands]."""
        # Not a matrix product, whose rounding may depend on the number of threads.
        return np.add.reduceat(power[..., self.bins] * self.weights, self.starts, -1)


@functools.lru_cache(maxsize=8)
def mel_bands(count: int, frame: int, rate: float, limit: int = DEFAULT_RECORD_BYTES) -> MelBands:
    """Returns mel bands from 0 Hz to half of the rate, those of `librosa.filters.mel`.

    They are triangles on Slaney's mel scale, each divided by half of its width in Hz.

    Args:
        count: The number of bands.
        frame: Samples of a frame, whose spectrum has frame // 2 + 1 frequencies.
        rate: Samples per second.
        limit: The most bytes that the filters may take.

    Raises:
        UsageError: a band lies between two frequencies.
        RejectError: the filters would exceed a record.
    """
    frequencies = np.arange(frame // 2 + 1) * (rate / frame)
    # A frequency is in two bands at most.
    fits = count <= 2 * len(frequencies)
    if fits:
        check_bytes(3 * 8 * count * len(frequencies), limit, f"the filters of --mel {count} take")
        edges = _to_hz(np.linspace(0, _to_mel(rate / 2), count + 2))[:, None]
        low, centre, high = edges[:-2], edges[1:-1], edges[2:]
        rising, falling = (
            (frequencies - low) / (centre - low),
            (high - frequencies) / (high - centre),
        )
        weights = np.maximum(0, np.minimum(rising, falling)) * (2 / (high - low))
        bands, bins = np.nonzero(weights)
        fits = len(np.unique(bands)) == count
    if not fits:
        raise UsageError(
            f"--mel {count}: some of these bands are narrower than the {rate / frame:.3g} Hz between "
            f"two frequencies of a frame of {frame} samples: choose fewer bands, or a longer frame"
        )
    return MelBands(bins, weights[bands, bins], np.searchsorted(bands, np.arange(count)))


def _to_mel(hz: float) -> float:
    if hz < _BREAK_HZ:
        return hz / _HZ_PER_MEL
    return _BREAK_MEL + math.log(hz / _BREAK_HZ) / _LOG_STEP


def _to_hz(mel: np.ndarray) -> np.ndarray:
    # The exponent of mels on the linear part is not used.
    high = _BREAK_HZ * np.exp(_LOG_STEP * (np.maximum(mel, _BREAK_MEL) - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, _HZ_PER_MEL * mel, high)
