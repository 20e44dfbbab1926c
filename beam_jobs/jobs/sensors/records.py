"""The records of a recording: the whole of it or its windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.conditioning import FILLED, Conditioning
from beam_jobs.jobs.sensors.resampling import Segment
from beam_jobs.jobs.sensors.signals import window_starts
from beam_jobs.jobs.sensors.spans import Span
from beam_jobs.storage.limits import check_bytes

# The feature that holds the number of samples of a window before the zeros that pad it.
LENGTH = "length"

_MAX_WINDOWS = 10_000_000


class RecordingRecords:
    """The records of a recording; their number is known before the first one is made.

    Args:
        conditioning: The steps from the recording to its records.
        segments: The result of `Conditioning.segments`.
        file_rate: Samples per second, if the files state it.
        convert: Converts the values of a record.

    Raises:
        RejectError: the recording cannot become a record. Iteration may raise it, too.
        UsageError: no rate is known and a length is in seconds.
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
        self._conditioning = conditioning
        self._rate = conditioning.record_rate(file_rate)
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
                **self._padded(arrays),
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
        check_bytes(size, self._conditioning.max_bytes, "a padded window takes")
        return {
            name: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            for name, array in arrays.items()
        }

    def _length(self, arrays: dict[str, np.ndarray]) -> dict[str, np.int64]:
        return {LENGTH: np.int64(_common_length(arrays))} if self._conditioning.pad else {}

    def _sequence(self) -> dict[str, Any]:
        """Returns one record: a list of all arrays of a recording, or of all pieces of each array."""
        pieces = list(self._pieces())
        if not self._conditioning.window and not self._conditioning.resample:
            return {"signal": list(pieces[0][0].values())}
        record: dict[str, Any] = {
            name: [arrays[name] for arrays, _ in pieces] for name in pieces[0][0]
        }
        return {**record, **self._filled_share(np.concatenate([filled for _, filled in pieces]))}


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
