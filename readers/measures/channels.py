"""Numbers that describe the channels of signals over many records: levels, faults, gaps and spectra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from readers.measures.arrays import faults_of

# Steps of the middle of a longer record that are looked at.
WINDOW = 4096

# Channels of a signal that are looked at.
MOST_CHANNELS = 64

# Steps of a spectrum: each record has the longest that fits it.
SEGMENTS = (1024, 256, 64)

# The share of steps at an extreme from which on a channel counts as clipped, as for the check.
CLIPPED = 0.01

# Steps in a row without a value, or with 0, that are a gap.
GAP = 8


# What adds up over records.
_SUMS = (
    *("records", "steps", "missing", "gap_steps", "constant", "dead", "clipped"),
    *("total", "squares", "segments"),
)


class Channels:
    """What was found in the channels of a signal; in no record, at first.

    Args:
        channels: The number of channels.

    Attributes:
        records: The number of records with more than one step.
        steps, missing, gap_steps, longest_gap: By channel, int64 [channels]: the steps that were looked at, those
            without a finite number, those in gaps, and the longest gap.
        constant, dead, clipped: By channel, int64 [channels]: the records in which it has one value, in which
            this is 0, and in which it is cut off.
        low, high, total, squares: By channel, float64 [channels], of finite numbers: the smallest, the largest,
            their sum, and that of their squares.
        spectra: Steps of a segment -> the sum of the power spectra of segments, float64 [frequencies, channels].
        segments: Steps of a segment -> how many there are.
    """

    def __init__(self, channels: int) -> None:
        self.records = 0
        self.steps, self.missing, self.gap_steps, self.longest_gap = np.zeros(
            (4, channels), np.int64
        )
        self.constant, self.dead, self.clipped = np.zeros((3, channels), np.int64)
        self.low, self.high = np.full(channels, np.inf), np.full(channels, -np.inf)
        self.total, self.squares = np.zeros((2, channels))
        self.spectra: dict[int, np.ndarray] = {}
        self.segments = Counter[int]()

    def add(self, signal: np.ndarray) -> None:
        """Adds a record: real numbers [steps] or [steps, channels]."""
        if not signal.size:
            return
        start = max(0, (len(signal) - WINDOW) // 2)
        window = signal[start : start + WINDOW]
        values = window.reshape(len(window), -1)[:, : len(self.steps)].astype(np.float64)
        finite = np.isfinite(values)
        known = np.where(finite, values, 0.0)
        self.steps += len(values)
        self.missing += (~finite).sum(axis=0)
        self.low = np.minimum(
            self.low, np.where(finite, values, np.inf).min(axis=0, initial=np.inf)
        )
        self.high = np.maximum(
            self.high, np.where(finite, values, -np.inf).max(axis=0, initial=-np.inf)
        )
        self.total += known.sum(axis=0)
        self.squares += (known**2).sum(axis=0)
        if len(values) < 2:
            return
        self.records += 1
        for channel, (constant, dead, clipped) in enumerate(faults_of(values)):
            self.constant[channel] += constant
            self.dead[channel] += dead
            self.clipped[channel] += clipped > CLIPPED
        self._add_gaps(~finite | (values == 0))
        if finite.all():
            self._add_spectrum(values)

    def _add_gaps(self, empty: np.ndarray) -> None:
        """Adds the runs of steps that are empty, bool [steps, channels]."""
        for channel in np.flatnonzero(empty.any(axis=0)):
            edges = np.flatnonzero(
                np.diff(np.concatenate([[0], empty[:, channel].view(np.int8), [0]]))
            )
            runs = edges[1::2] - edges[::2]
            self.gap_steps[channel] += runs[runs >= GAP].sum()
            if runs.max() >= GAP:
                self.longest_gap[channel] = max(self.longest_gap[channel], runs.max())

    def _add_spectrum(self, values: np.ndarray) -> None:
        size = next((size for size in SEGMENTS if size <= len(values)), 0)
        if not size:
            return
        count = len(values) // size
        parts = values[: count * size].reshape(count, size, -1)
        waves = (parts - parts.mean(axis=1, keepdims=True)) * np.hanning(size)[:, None]
        power = (np.abs(np.fft.rfft(waves, axis=1)) ** 2).sum(axis=0)
        self.spectra[size] = self.spectra.get(size, 0) + power
        self.segments[size] += count

    def merge(self, others: Sequence[Channels]) -> Channels:
        """What was found in the records of this and others."""
        found = Channels(len(self.steps))
        for each in (self, *others):
            for name in _SUMS:
                setattr(found, name, getattr(found, name) + getattr(each, name))
            found.longest_gap = np.maximum(found.longest_gap, each.longest_gap)
            found.low = np.minimum(found.low, each.low)
            found.high = np.maximum(found.high, each.high)
            for size, power in each.spectra.items():
                found.spectra[size] = found.spectra.get(size, 0) + power
        return found

    def spectrum(self) -> tuple[int, np.ndarray] | None:
        """The steps of a segment, and its mean power spectrum, float64 [frequencies, channels]; of the size that
        the most steps have."""
        if not self.segments:
            return None
        size = max(self.segments, key=lambda size: size * self.segments[size])
        return size, self.spectra[size] / (self.segments[size] * (np.hanning(size) ** 2).sum())
