"""From a recording as files have it to records: gaps filled, one clock, windows, spectra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.signals import (
    Segment,
    Span,
    filled,
    gaps,
    parse_rate,
    parse_span,
    resampled,
    spectrogram,
    window_starts,
)

NAN_POLICIES = ("keep", "reject", "interpolate")

# The share of samples that were not measured.
FILLED = "filled"

_MAX_WINDOWS = 10_000_000

_NOTHING_FILLED = np.empty(0, bool)


@dataclass(frozen=True)
class Conditioning:
    """What is done to recordings.

    Attributes:
        nan: What to do with NaN: one of `NAN_POLICIES`.
        rate: Samples a second where files do not say; 0 if nobody knows.
        resample: Samples a second of the records; 0 to leave them as they are.
        max_gap: Seconds between two measurements that may be bridged.
        window, stride: Of each record; None for whole recordings.
        frame, step: Of the spectrogram; None without.
        sequence: Whether all pieces of a recording are one record.
    """

    nan: str = "keep"
    rate: float = 0.0
    resample: float = 0.0
    max_gap: float = 1.0
    window: Span | None = None
    stride: Span | None = None
    frame: Span | None = None
    step: Span | None = None
    sequence: bool = False

    @classmethod
    def parse(
        cls,
        nan: str = "keep",
        rate: str = "",
        resample: str = "",
        max_gap: str = "",
        window: str = "",
        stride: str = "",
        spectrogram: str = "",
        sequence: bool = False,
    ) -> Conditioning:
        """What the flags of these names ask for.

        Raises:
            UsageError: One of them is wrong, or makes no sense beside another.
        """
        if stride and not window:
            raise UsageError(f"--stride {stride}: it says where windows begin: add --window")
        if max_gap and not resample:
            raise UsageError(f"--max_gap {max_gap}: it bounds what is interpolated: add --resample")
        frame, _, step = spectrogram.partition(":")
        if spectrogram and not (frame and step):
            raise UsageError(
                f"--spectrogram {spectrogram}: expected FRAME:STEP such as 256:128 or 25ms:10ms"
            )
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
            parse_span(frame, "--spectrogram") if spectrogram else None,
            parse_span(step, "--spectrogram") if spectrogram else None,
            sequence,
        )

    @property
    def cuts(self) -> bool:
        """Whether a recording gives any number of records."""
        return self.window is not None and not self.sequence

    @property
    def keeps_whole(self) -> bool:
        """Whether a recording is one record of its own samples."""
        return not (self.window or self.resample or self.frame or self.sequence)

    def rate_of(self, found: float | None) -> float | None:
        """Samples a second of the records.

        Args:
            found: What the files say; None if nothing.
        """
        return self.resample or found or self.rate or None

    def segments(
        self,
        arrays: Mapping[str, np.ndarray],
        times: Mapping[str, np.ndarray],
        found_rate: float | None,
    ) -> list[Segment]:
        """The stretches of a recording between its gaps; a single one without resampling.

        Args:
            arrays: Name -> [time, ...].
            times: float64 [time], seconds, of those arrays that have a clock of their own.
            found_rate: What the files say.

        Raises:
            RejectError: The recording cannot become a record.
            UsageError: Nobody knows when its samples were taken.
        """
        whole = {name: self._filled(name, array) for name, array in arrays.items()}
        if self.resample:
            return self._resampled(whole, times, found_rate or self.rate)
        return [Segment(0.0, whole, _NOTHING_FILLED)]

    def _filled(self, name: str, array: np.ndarray) -> np.ndarray:
        try:
            if array.ndim == 0:
                raise RejectError("a single number is not a recording")
            if array.dtype.kind not in "biufc":
                raise RejectError(f"dtype {array.dtype} is none that a tensor can have")
            return filled(array, self.nan)
        except RejectError as error:
            raise RejectError(f"{name}: {error}") from None

    def _resampled(
        self, arrays: Mapping[str, np.ndarray], times: Mapping[str, np.ndarray], rate: float
    ) -> list[Segment]:
        if FILLED in arrays:
            raise RejectError(f"an array may not be called {FILLED!r}, as --resample adds that")
        clocks = dict(times)
        for name in arrays.keys() - times.keys():
            if not rate:
                raise UsageError(
                    f"--resample: nobody knows when the samples of {name!r} were taken: name the "
                    "column of times with --time_column, or the files' --rate"
                )
            clocks[name] = np.arange(len(arrays[name])) / rate
        found = resampled(arrays, clocks, self.resample, self.max_gap)
        holes = gaps(clocks, self.resample, self.max_gap)
        if not found or (holes and not (self.sequence or self.window)):
            start, length = holes[0]
            raise RejectError(
                f"a gap of {length:g} s, {start:g} s after its begin, is longer than --max_gap "
                f"{self.max_gap:g}s; with --window or --sequence the parts between gaps are kept"
            )
        return found


class Records:
    """The records of a recording: how many there are is known before one is made.

    Args:
        conditioning: What is done to the recording.
        segments: Of it, as `Conditioning.segments` gives them.
        found_rate: What the files say.
        convert: What is done to the values in the end.

    Raises:
        RejectError: The recording cannot become a record. Iteration may raise it, too.
        UsageError: A length is in seconds and no rate is known, or a frame has a single sample.
    """

    def __init__(
        self,
        conditioning: Conditioning,
        segments: list[Segment],
        found_rate: float | None,
        convert: Callable[[np.ndarray], np.ndarray],
    ) -> None:
        self._conditioning, self._convert = conditioning, convert
        self._rate = conditioning.rate_of(found_rate)
        self._segments = segments
        if not conditioning.frame:
            # Here, as windows may overlap: what is cut need not be converted again.
            self._segments = [
                segment._replace(arrays={n: convert(a) for n, a in segment.arrays.items()})
                for segment in segments
            ]
        window = conditioning.window
        self._size = window.samples(self._rate) if window else None
        self._starts = self._found_starts(self._size, conditioning.stride)

    def __len__(self) -> int:
        return sum(map(len, self._starts)) if self._conditioning.cuts else 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields the features of each record."""
        if self._conditioning.sequence:
            yield self._sequence()
            return
        for arrays, missing in self._pieces():
            yield {**self._transformed(arrays), **self._share(missing)}

    def _found_starts(self, size: int | None, stride: Span | None) -> list[range]:
        """Where the records of each segment begin."""
        if not size or not stride:
            return [range(1)] * len(self._segments)
        lengths = [_length(segment.arrays) for segment in self._segments]
        step = stride.samples(self._rate)
        starts = [window_starts(length, size, step) for length in lengths]
        found = sum(map(len, starts))
        if found > _MAX_WINDOWS:
            raise RejectError(
                f"{found} windows are more than {_MAX_WINDOWS}: is --stride meant so?"
            )
        if not found:
            without = " without a gap" if self._conditioning.resample else ""
            raise RejectError(f"it has {max(lengths)} samples{without}, a window has {size}")
        return starts

    def _pieces(self) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        """Yields the arrays of every window or stretch, and which samples were filled in."""
        for segment, starts in zip(self._segments, self._starts, strict=True):
            for start in starts:
                part = slice(start, start + self._size if self._size else None)
                arrays = {name: array[part] for name, array in segment.arrays.items()}
                yield arrays, segment.filled[part]

    def _share(self, missing: np.ndarray) -> dict[str, np.float32]:
        return {FILLED: np.float32(missing.mean())} if self._conditioning.resample else {}

    def _transformed(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self._conditioning.frame or not self._conditioning.step:
            return dict(arrays)
        frame = self._conditioning.frame.samples(self._rate)
        step = self._conditioning.step.samples(self._rate)
        if frame < 2:
            raise UsageError(
                f"{self._conditioning.frame.source}: {frame} sample, expected at least 2"
            )
        result = {}
        for name, array in arrays.items():
            if len(array) < frame:
                raise RejectError(f"{name}: {len(array)} samples, a frame has {frame}")
            result[name] = self._convert(spectrogram(array, frame, step))
        return result

    def _sequence(self) -> dict[str, Any]:
        """One record: of one stretch all its arrays, of several those of each name."""
        pieces = list(self._pieces())
        transformed = [self._transformed(arrays) for arrays, _ in pieces]
        if not self._conditioning.window and not self._conditioning.resample:
            (arrays,) = transformed
            return {"signal": list(arrays.values())}
        record: dict[str, Any] = {
            name: [arrays[name] for arrays in transformed] for name in transformed[0]
        }
        return {**record, **self._share(np.concatenate([missing for _, missing in pieces]))}


def _length(arrays: Mapping[str, np.ndarray]) -> int:
    """The samples of arrays that are cut together.

    Raises:
        RejectError: They differ.
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
