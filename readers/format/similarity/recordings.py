"""A 64-bit hash that near duplicates of a recording share.

For sounds and other fast signals, it describes how the power rises and falls: the spectrum is cut into four bands of
equal power, and the bits of each are the signs of the first eight terms of the Fourier series of its power. For
slow signals, with most power in fewer than 16 cycles of the recording, it describes how the signal itself
rises and falls: the signs of its 64 slowest cosine waves.

Time is measured relative to the recording's length, and frequency in cycles of the recording, so the sample rate,
the gain and the offset do not matter, and a little noise or a few samples trimmed from the ends matter little.

Sums of floats can differ in the last digits between machines, so about once in a billion
recordings, a bit can differ, too.

Signs carry little information about a signal of one or two tones, and many short signals share them by chance. So near
duplicates must have near hashes and near portraits: the terms and waves themselves, and for fast
signals the spectrum.
"""

from __future__ import annotations

import numpy as np

# The likeness of near duplicates. For copies of synthetic speech and drifts (resampled, amplified, trimmed, with noise) it
# is above 0.999; for 46,226 pairs of synthetic signals of 256 samples and one or two tones, with hashes within the
# distance, it is below for 99.6%.
RECORDING_CORRELATION = 0.99

# Terms or waves, the spectrum, and whether the signal is slow.
PORTRAIT_SIZE = 64 + 64 + 1

_BITS = np.uint64(1) << np.arange(64, dtype=np.uint64)
_SHORTEST = 64
# A smaller term may be noise: 1 is all of the power, or the amplitude of a signal that is a single wave. And how many
# of the 64 must be larger.
_FAINT_POWER = 0.01
_FAINT_WAVE = 0.003
_ENOUGH = 32

_SLOW_CYCLES = 16
# The signs of 64 terms carry little information about a sum of fewer tones of equal power.
_FEWEST_TONES = 8
_BANDS = 4
_TERMS = 8
# All bands rise and fall with a loud sound. The sum of the bands, and their differences, have less in common: of
# 718,000 pairs of different synthetic speech, 22 were within six bits without this, and none with it.
_CONTRASTS = np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, -1, 1], [1, -1, 1, -1]]) / 2


def recording_sketch(signal: np.ndarray) -> tuple[int, np.ndarray] | None:
    """The hash of a recording, from 0 to 2**64 - 1, and its portrait, int8 [129]; None if it has too little structure.

    Constant signals, pure tones and signals of fewer than 64 samples have none, because their bits would come
    from noise. NaN and infinite values count as the mean of the others. A channel that is constant, or at least half
    not finite, is left out. The scale of each channel does not matter. Signals are real numbers
    [time] or [time, channels].
    """
    if len(signal) < _SHORTEST:
        return None
    channels = _normalized(signal)
    spectra = np.fft.rfft(channels, axis=0)[1:]
    power = (np.abs(spectra) ** 2).sum(axis=1)
    is_slow = bool(2 * power[:_SLOW_CYCLES].sum() > power.sum())
    if is_slow:
        terms, faint = _slow_waves(channels), _FAINT_WAVE
    elif (power**2).sum() * _FEWEST_TONES > power.sum() ** 2:
        return None
    else:
        terms, faint = _power_terms(spectra, power), _FAINT_POWER
    if np.count_nonzero(np.abs(terms) >= faint) < _ENOUGH:
        return None
    spectrum = np.zeros(64) if is_slow else _octaves(power)
    portrait = np.concatenate([_rounded(terms), _rounded(spectrum), [is_slow]]).astype(np.int8)
    return int(_BITS[terms > 0].sum()), portrait


def alike_recordings(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Compares recordings whose hashes are near, given portraits, int8 [pairs, 129]: -1 to 1, float64 [pairs].

    The result is the smaller of the correlations of their terms or waves and of their spectra; -1 for a slow signal and
    a fast one.
    """
    first, second = one.astype(np.float64), other.astype(np.float64)
    terms = _cosines(first[:, :64], second[:, :64])
    spectra = _cosines(first[:, 64:128], second[:, 64:128])
    is_slow = first[:, 128] > 0
    alike: np.ndarray = np.where(is_slow, terms, np.minimum(terms, spectra))
    alike[is_slow != (second[:, 128] > 0)] = -1
    return alike


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The cosines of the angles between vectors, float64 [pairs]; 0 for one of length 0."""
    lengths = np.sqrt((one**2).sum(axis=1) * (other**2).sum(axis=1))
    products = np.einsum("ij,ij->i", one, other)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Integers from -127 to 127, proportional to some values."""
    return np.rint(values * (127 / max(np.abs(values).max(), 1e-300)))


def _octaves(power: np.ndarray) -> np.ndarray:
    """The amplitudes in quarters of octaves from one cycle per recording, float64 [64]."""
    quarters = np.minimum(4 * np.log2(np.arange(1, len(power) + 1)), 63).astype(np.int64)
    return np.sqrt(np.bincount(quarters, power, minlength=64))


def _normalized(signal: np.ndarray) -> np.ndarray:
    """Channels with mean 0 and power 1, float64 [time, channels]; constant ones are left out."""
    channels = signal.reshape(len(signal), -1).astype(np.float64)
    good = np.isfinite(channels)
    channels[~good] = 0
    # Squares of very large floats are infinite.
    largest = np.abs(channels).max(axis=0)
    channels /= np.where(largest > 0, largest, 1)
    channels -= channels.sum(axis=0) / np.maximum(good.sum(axis=0), 1)
    channels[~good] = 0
    power = np.sqrt((channels**2).mean(axis=0))
    # Smaller differences are rounding errors.
    varied = (power > 1e-12) & (2 * good.sum(axis=0) > len(signal))
    return channels[:, varied] / power[varied]


def _slow_waves(channels: np.ndarray) -> np.ndarray:
    """The amplitudes of the 64 slowest cosine waves of a mix of channels with power 1, float64 [64]."""
    # No two weights are equal, so that channels whose sum is 0 do not cancel out.
    weights = 0.5 + np.arange(channels.shape[1]) * 0.6180339887498949 % 1
    mixed = channels @ weights
    mixed /= max(np.sqrt((mixed**2).mean()), 1e-12)
    # The Fourier series of a signal followed by its reverse is its cosine series.
    waves = np.arange(1, 65)
    spectrum = np.fft.rfft(np.concatenate([mixed, mixed[::-1]]))[waves]
    return (spectrum * np.exp(-0.5j * np.pi * waves / len(mixed))).real / (np.sqrt(2) * len(mixed))


def _power_terms(spectra: np.ndarray, power: np.ndarray) -> np.ndarray:
    """Terms of the Fourier series of each band's power, relative to its total, float64 [64].

    The power of a signal at a time is the square of its value, so a term of its series is the product of the
    spectrum and the spectrum shifted by as many cycles. Time 0 is the middle, which moves least if the ends are trimmed.
    """
    terms = np.zeros((_BANDS, _TERMS), complex)
    total = np.cumsum(power)
    if not len(total) or total[-1] == 0:
        return np.zeros(2 * terms.size)
    below = np.concatenate([[0], total]) / total[-1] * _BANDS
    for band in range(_BANDS):
        # A frequency at the border of two bands counts in both, with a part of its power each, so
        # that a little noise does not move it from one to the other.
        first = max(int(np.searchsorted(below, band, side="right")) - 1, 0)
        last = min(int(np.searchsorted(below, band + 1)), len(power))
        shares = np.diff(np.clip(below[first : last + 1], band, band + 1))
        scales = np.sqrt(shares * total[-1] / _BANDS / np.maximum(power[first:last], 1e-300))
        some = spectra[first:last] * scales[:, None]
        for term in range(1, min(_TERMS, len(some) - 1) + 1):
            terms[band, term - 1] = (-1) ** term * np.vdot(some[:-term], some[term:])
    terms = _CONTRASTS @ terms * (_BANDS / total[-1])
    return np.stack([terms.real, terms.imag]).reshape(-1)
