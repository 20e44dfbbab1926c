"""Turns a recording into records: missing values filled, resampled, cut into windows, transformed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.recording import check_size
from beam_jobs.jobs.sensors.resampling import Segment, find_gaps, resample_arrays
from beam_jobs.jobs.sensors.signals import NanPolicy, amplify, fill_missing, window_starts
from beam_jobs.jobs.sensors.spans import Gain, Span, parse_gain, parse_rate, parse_span
from beam_jobs.jobs.sensors.spectra.spectrograms import Spectrogram
from beam_jobs.jobs.sensors.values import no_tensor

# The feature that holds the share of samples that were interpolated, not measured.
FILLED = "filled"

# The feature that holds the number of samples of a window before the zeros that pad it.
LENGTH = "length"

# Resampled like an array: the number of each sample, which leads from points of the grid to labels.
_SAMPLE = "\0sample"

LastWindow = Literal["drop", "pad"]

_MAX_WINDOWS = 10_000_000


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
        spectrogram: The spectrograms that records are; None for signals.
        sequence: Whether all pieces of a recording become one record.
        pad: Whether the samples after the last whole window become a window that zeros complete.
        gain: What each array is multiplied by.
    """

    nan: NanPolicy = "keep"
    rate: float = 0.0
    resample: float = 0.0
    max_gap: float = 1.0
    window: Span | None = None
    stride: Span | None = None
    spectrogram: Spectrogram | None = None
    sequence: bool = False
    pad: bool = False
    gain: Gain = 1.0

    @classmethod
    def parse(
        cls,
        nan: NanPolicy = "keep",
        rate: str = "",
        resample: str = "",
        max_gap: str = "",
        window: str = "",
        stride: str = "",
        spectrogram: str = "",
        sequence: bool = False,
        last_window: LastWindow = "drop",
        mel: int = 0,
        log: bool = False,
        gain: str = "",
    ) -> Conditioning:
        """Parses the flags of the same names.

        Raises:
            UsageError: a flag is malformed, or needs another one.
        """
        if stride and not window:
            raise UsageError(f"--stride {stride} sets where windows begin: add --window")
        pad = last_window == "pad"
        if pad and not window:
            raise UsageError("--last_window pad completes windows with zeros: add --window")
        if pad and sequence:
            raise UsageError("--last_window pad: a --sequence has no padded windows: drop one")
        if max_gap and not resample:
            raise UsageError(f"--max_gap {max_gap} limits interpolation: add --resample")
        gap = parse_span(max_gap, "--max_gap") if max_gap else Span(1.0, True, "")
        frequency = parse_rate(resample, "--resample") if resample else 0.0
        length = parse_span(window, "--window") if window else None
        return cls(
            nan,
            parse_rate(rate, "--rate") if rate else 0.0,
            frequency,
            gap.amount if gap.in_seconds else gap.amount / frequency,
            length,
            parse_span(stride, "--stride") if stride else length,
            Spectrogram.parse(spectrogram, mel, log),
            sequence,
            pad,
            parse_gain(gain) if gain else 1.0,
        )

    @property
    def cuts(self) -> bool:
        """Whether a recording may become several records."""
        return self.window is not None and not self.sequence

    @property
    def keeps_whole(self) -> bool:
        """Whether a recording becomes one record of all its samples, unchanged."""
        return not (self.window or self.resample or self.spectrogram or self.sequence)

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
        """Fills missing values, amplifies, resamples, and returns the segments between gaps.

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
        whole = {name: self._fill_and_amplify(name, array) for name, array in arrays.items()}
        if self.resample:
            return self._resample(whole, clocks, file_rate or self.rate, labelled)
        return [Segment(whole, np.empty(0, bool))]

    def _fill_and_amplify(self, name: str, array: np.ndarray) -> np.ndarray:
        try:
            if array.dtype.kind not in "biufc":
                raise no_tensor(array.dtype)
            filled = fill_missing(array, self.nan)
        except RejectError as error:
            raise RejectError(f"{name}: {error}") from None
        return filled if self.gain == 1 else amplify(filled, self.gain)

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
        segments = resample_arrays(arrays, times, self.resample, self.max_gap, rates)
        segments = [_with_samples(segment) for segment in segments] if labelled else segments
        gaps = find_gaps(times, self.resample, self.max_gap)
        if not segments or (gaps and not (self.sequence or self.window)):
            start, length = gaps[0]
            raise RejectError(
                f"a gap of {length:g} s, {start:g} s after its start, is longer than --max_gap "
                f"{self.max_gap:g}s; with --window or --sequence the parts between gaps are kept"
            )
        return segments


class RecordingRecords:
    """The records of a recording; their number is known before the first one is made.

    Args:
        conditioning: The steps from the recording to its records.
        segments: The result of `Conditioning.segments`.
        file_rate: Samples per second, if the files state it.
        convert: Converts the values of a record.

    Raises:
        RejectError: the recording cannot become a record. Iteration may raise it, too.
        UsageError: no rate is known and a length in seconds or --mel needs it, or frames are too
            short.
    """

    def __init__(
        self,
        conditioning: Conditioning,
        segments: list[Segment],
        file_rate: float | None,
        convert: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        if conditioning.pad and LENGTH in segments[0].arrays:
            raise RejectError(
                f"an array may not be called {LENGTH!r}: --last_window pad adds that feature"
            )
        self._conditioning, self._convert = conditioning, convert
        self._rate = conditioning.record_rate(file_rate)
        self._segments = segments
        if not conditioning.spectrogram:
            # Before windows are cut, because they may overlap.
            self._segments = [
                segment._replace(arrays={n: convert(a) for n, a in segment.arrays.items()})
                for segment in segments
            ]
        window = conditioning.window
        self._size = window.samples(self._rate) if window else None
        self._starts = self._find_starts(self._size, conditioning.stride)

    def __len__(self) -> int:
        return sum(map(len, self._starts)) if self._conditioning.cuts else 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields each record's features by name."""
        if self._conditioning.sequence:
            yield self._sequence()
            return
        for arrays, filled in self._pieces():
            yield {
                **self._transform(self._padded(arrays)),
                **self._filled_share(filled),
                **self._length(arrays),
            }

    def _find_starts(self, size: int | None, stride: Span | None) -> list[range]:
        """Returns the first samples of the records of each segment."""
        if not size or not stride:
            return [range(1)] * len(self._segments)
        lengths = [_common_length(segment.arrays) for segment in self._segments]
        step = stride.samples(self._rate)
        pad = self._conditioning.pad
        starts = [window_starts(length, size, step, pad) for length in lengths]
        count = sum(map(len, starts))
        if count > _MAX_WINDOWS:
            raise RejectError(f"{count} windows are more than {_MAX_WINDOWS}: is --stride correct?")
        if not count:
            without = " without a gap" if self._conditioning.resample else ""
            cure = "" if pad else "; --last_window pad keeps shorter recordings"
            raise RejectError(f"it has {max(lengths)} samples{without}, a window has {size}{cure}")
        return starts

    def samples(self) -> Iterator[np.ndarray | slice]:
        """Yields the samples of the recording in each window, measured ones alone if it is padded."""
        for segment, starts in zip(self._segments, self._starts, strict=True):
            for start in starts:
                part = slice(start, start + self._size if self._size else None)
                yield part if segment.samples is None else segment.samples[part]

    def _pieces(self) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """Yields the arrays of each window or segment, and bool [time]: the interpolated samples."""
        for segment, starts in zip(self._segments, self._starts, strict=True):
            for start in starts:
                part = slice(start, start + self._size if self._size else None)
                arrays = {name: array[part] for name, array in segment.arrays.items()}
                yield arrays, segment.filled[part]

    def _filled_share(self, filled: np.ndarray) -> dict[str, np.float32]:
        return {FILLED: np.float32(filled.mean())} if self._conditioning.resample else {}

    def _padded(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self._conditioning.pad or not self._size:
            return arrays
        missing = self._size - _common_length(arrays)
        if not missing:
            return arrays
        # An array without a channel has no bytes, but its padding has a length.
        sizes = (max(1, array.nbytes // len(array)) for array in arrays.values())
        size = sum(sizes) * self._size
        check_size(size, "a padded window takes")
        return {
            name: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            for name, array in arrays.items()
        }

    def _length(self, arrays: dict[str, np.ndarray]) -> dict[str, np.int64]:
        return {LENGTH: np.int64(_common_length(arrays))} if self._conditioning.pad else {}

    def _transform(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        spectrogram, result = self._conditioning.spectrogram, {}
        if not spectrogram:
            return dict(arrays)
        for name, array in arrays.items():
            try:
                values = spectrogram.of(array, self._rate)
            except RejectError as error:
                raise RejectError(f"{name}: {error}") from None
            result[name] = self._convert(values)
        return result

    def _sequence(self) -> dict[str, Any]:
        """Returns one record: a list of all arrays of a recording, or of all pieces of each array."""
        pieces = list(self._pieces())
        transformed = [self._transform(arrays) for arrays, _ in pieces]
        if not self._conditioning.window and not self._conditioning.resample:
            (arrays,) = transformed
            return {"signal": list(arrays.values())}
        record: dict[str, Any] = {
            name: [arrays[name] for arrays in transformed] for name in transformed[0]
        }
        return {**record, **self._filled_share(np.concatenate([filled for _, filled in pieces]))}


def _with_samples(segment: Segment) -> Segment:
    arrays = dict(segment.arrays)
    # Halfway between two samples, the earlier one.
    samples = np.ceil(arrays.pop(_SAMPLE) - 0.5).astype(np.int64)
    return segment._replace(arrays=arrays, samples=samples)


def _common_length(arrays: Mapping[str, np.ndarray]) -> int:
    """Returns the number of samples of arrays that are cut together.

    Raises:
        RejectError: the arrays differ in length.
    """
    lengths = {name: len(array) for name, array in arrays.items()}
    (first, length), *others = lengths.items()
    for name, other in others:
        if other != length:
            raise RejectError(
                f"{first} has {length} samples, {name} {other}: windows need arrays of one length; "
                "--resample brings them to one rate"
            )
    return length
