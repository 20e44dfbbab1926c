"""How recordings become records, and the first steps: missing values and one rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.resampling import Segment, find_gaps, resample_arrays
from beam_jobs.jobs.sensors.signals import NanPolicy, fill_missing
from beam_jobs.jobs.sensors.spans import Span
from beam_jobs.jobs.sensors.values import no_tensor
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

# The feature that holds the share of samples that were interpolated, not measured.
FILLED = "filled"

# Resampled like an array: the number of each sample, which leads from points of the grid to labels.
_SAMPLE = "\0sample"


@dataclass(frozen=True)
class Conditioning:
    """The steps from a recording to records.

    Attributes:
        nan: Treatment of NaN and infinite values.
        rate: Samples per second of files that do not state it; 0 if unknown.
        resample: Samples per second of the records; 0 leaves recordings as they are.
        max_gap: Longest time between two measurements that is interpolated, in seconds.
        window: Length of each record; None for whole recordings.
        stride: Distance from the start of one window to the next; None for whole recordings.
        sequence: Whether all pieces of a recording become one record.
        pad: Whether the samples after the last whole window become a window that zeros complete.
        max_bytes: The most bytes that a result of these steps may take.
    """

    nan: NanPolicy = "keep"
    rate: float = 0.0
    resample: float = 0.0
    max_gap: float = 1.0
    window: Span | None = None
    stride: Span | None = None
    sequence: bool = False
    pad: bool = False
    max_bytes: int = DEFAULT_RECORD_BYTES

    @property
    def cuts(self) -> bool:
        """Whether a recording may become several records."""
        return self.window is not None and not self.sequence

    @property
    def keeps_whole(self) -> bool:
        """Whether a recording becomes one record of all its samples, unchanged."""
        return not (self.window or self.resample or self.sequence)

    def record_rate(self, file_rate: float | None) -> float | None:
        """Returns the samples per second of the records; None if unknown."""
        return self.resample or file_rate or self.rate or None

    def segments(
        self,
        arrays: Mapping[str, np.ndarray],
        clocks: Mapping[str, np.ndarray | float],
        file_rate: float | None,
        labelled: bool = False,
    ) -> list[Segment]:
        """Fills missing values, resamples, and returns the segments between gaps.

        Without resampling there is one segment, the whole recording.

        Args:
            arrays: Name -> [time, ...].
            clocks: Name -> float64 [time] in seconds, for the arrays that have sample times; or the
                samples per second, for the arrays that have a rate of their own.
            file_rate: Samples per second of the other arrays, if the files state it.
            labelled: Whether the segments state the sample nearest to each of their points.

        Raises:
            RejectError: the recording cannot become a record.
            UsageError: `resample` is set and the times of an array are unknown.
        """
        series = [name for name, array in arrays.items() if array.ndim]
        if single := [name for name in arrays if name not in series]:
            cure = f"; choose arrays with --arrays {','.join(series)}" if series else ""
            raise RejectError(f"array {single[0]!r} is a single number{cure}")
        whole = {name: self._filled(name, array) for name, array in arrays.items()}
        if self.resample:
            return self._resample(whole, clocks, file_rate or self.rate, labelled)
        return [Segment(whole, np.empty(0, bool))]

    def _filled(self, name: str, array: np.ndarray) -> np.ndarray:
        try:
            if array.dtype.kind not in "biufc":
                raise no_tensor(array.dtype)
            return fill_missing(array, self.nan)
        except RejectError as error:
            raise RejectError(f"{name}: {error}") from None

    def _resample(
        self,
        arrays: Mapping[str, np.ndarray],
        clocks: Mapping[str, np.ndarray | float],
        file_rate: float,
        labelled: bool,
    ) -> list[Segment]:
        if FILLED in arrays:
            raise RejectError(
                f"an array may not be called {FILLED!r}: --resample adds that feature"
            )
        times, rates = {}, {}
        for name, array in arrays.items():
            clock = clocks.get(name, file_rate)
            if isinstance(clock, np.ndarray):
                times[name] = clock
            elif clock:
                times[name], rates[name] = np.arange(len(array)) / clock, clock
            else:
                raise UsageError(
                    f"--resample needs the times of the samples of {name!r}: add --time_column "
                    "NAME, or --rate 50Hz if they are evenly spaced"
                )
        if labelled:
            name = next(iter(arrays))
            times[_SAMPLE] = times[name]  # Without a rate, it is interpolated and never filtered.
            arrays = {**arrays, _SAMPLE: np.arange(len(arrays[name]), dtype=np.float64)}
        segments = resample_arrays(
            arrays, times, self.resample, self.max_gap, rates, self.max_bytes
        )
        segments = [_with_samples(segment) for segment in segments] if labelled else segments
        gaps = find_gaps(times, self.resample, self.max_gap)
        if not segments or (gaps and not (self.sequence or self.window)):
            start, length = gaps[0]
            raise RejectError(
                f"a gap of {length:g} s, {start:g} s after its start, is longer than --max_gap "
                f"{self.max_gap:g}s; with --window or --sequence the parts between gaps are kept"
            )
        return segments


def _with_samples(segment: Segment) -> Segment:
    arrays = dict(segment.arrays)
    # Halfway between two samples, the earlier one.
    samples = np.ceil(arrays.pop(_SAMPLE) - 0.5).astype(np.int64)
    return segment._replace(arrays=arrays, samples=samples)
