"""The records of a recording (the whole recording, its windows, or its rows), and the labels of windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.arrays import NanPolicy, check_series, fill_rows, prepare_array
from beam_jobs.jobs.sensors.conditioning import FILLED, Conditioning
from beam_jobs.jobs.sensors.recording import Column, Recording, is_missing
from beam_jobs.jobs.sensors.resampling import Segment
from beam_jobs.sources.labels import label_text, whole_number
from beam_jobs.storage.limits import check_bytes

# The feature that holds the number of samples of a window before the zeros that pad it.
LENGTH = "length"

_MAX_WINDOWS = 10_000_000

_ANY = "any:"


class Windows:
    """The windows of a recording, or the whole recording; their number is known before the first is made.

    Args:
        conditioning: The steps from the recording to its records.
        recording: The recording.
        dtype: The dtype of records; "" keeps those of the arrays.

    Raises:
        RejectError: The recording cannot become a record. Iteration may raise it, too.
        UsageError: No rate is known, and a length is in seconds or `conditioning` resamples.
    """

    def __init__(self, conditioning: Conditioning, recording: Recording, dtype: str) -> None:
        segments = conditioning.segments(recording)
        if conditioning.pad and LENGTH in segments[0].arrays:
            raise RejectError(f"an array may not be called {LENGTH!r}: --last_window pad adds it")
        self._conditioning = conditioning
        # Before windows are cut, which may overlap.
        self._segments = [
            segment._replace(arrays={n: prepare_array(a, dtype) for n, a in segment.arrays.items()})
            for segment in segments
        ]
        self._size = 0
        self._starts = [np.zeros(1, np.int64)] * len(segments)
        if conditioning.window and conditioning.stride:
            rate = conditioning.record_rate(recording.rate)
            self._size = round(conditioning.window.samples(rate))
            self._starts = self._find_starts(self._size, conditioning.stride.samples(rate))

    def __len__(self) -> int:
        return sum(map(len, self._starts)) if self._conditioning.cuts else 1

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields each record's features by name."""
        if self._conditioning.sequence:
            yield self._sequence(list(self.pieces()))
            return
        for piece in self.pieces():
            record = self._padded(piece.arrays) | self._filled_share(piece.filled)
            if self._conditioning.pad:
                record[LENGTH] = np.int64(_common_length(piece.arrays))
            yield record

    def pieces(self) -> Iterator[Segment]:
        """Yields each window or segment before it is padded."""
        for segment, starts in zip(self._segments, self._starts, strict=True):
            for start in starts.tolist():
                yield segment.cut(slice(start, start + self._size if self._size else None))

    def _find_starts(self, size: int, stride: float) -> list[np.ndarray]:
        """The first samples of the records of each segment, int64 [n]: the ones nearest to their times."""
        lengths = [_common_length(segment.arrays) for segment in self._segments]
        count = sum(int(max(length - size, 0) // stride) + 1 for length in lengths)
        if count > _MAX_WINDOWS:
            raise RejectError(f"{count} windows are more than {_MAX_WINDOWS}: is --stride correct?")
        starts = [self._starts_in(length, size, stride) for length in lengths]
        if not any(map(len, starts)):
            without = " without a gap" if self._conditioning.resample else ""
            cure = "" if self._conditioning.pad else "; --last_window pad keeps shorter recordings"
            raise RejectError(
                f"it has {max(lengths)} samples{without}, expected at least {size}{cure}"
            )
        return starts

    def _starts_in(self, length: int, size: int, stride: float) -> np.ndarray:
        last = length - size
        # Floats, because a long stride may exceed 64 bits.
        starts = np.rint(np.arange(max(last, 0) // stride + 2) * stride)
        fit = starts <= last
        if self._conditioning.pad:
            # Samples after the last window that fits begin one more.
            before = np.concatenate([[-np.inf], starts[:-1]])
            fit = (before < last) & (starts < length)
        return starts[fit].astype(np.int64)

    def _filled_share(self, filled: np.ndarray) -> dict[str, Any]:
        return {FILLED: np.float32(filled.mean())} if self._conditioning.resample else {}

    def _padded(self, arrays: dict[str, Any]) -> dict[str, Any]:
        missing = self._size - _common_length(arrays) if self._conditioning.pad else 0
        if not missing:
            return arrays
        # An array without channels has no bytes, but its padding has a length.
        sizes = (max(1, array.nbytes // len(array)) for array in arrays.values())
        size = sum(sizes) * self._size
        check_bytes(size, self._conditioning.max_bytes, "a padded window takes")
        return {
            name: np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
            for name, array in arrays.items()
        }

    def _sequence(self, pieces: list[Segment]) -> dict[str, Any]:
        """One record: a list of all arrays of a recording, or of all pieces of each array."""
        if not self._conditioning.window and not self._conditioning.resample:
            return {"signal": list(pieces[0].arrays.values())}
        record = {name: [piece.arrays[name] for piece in pieces] for name in pieces[0].arrays}
        return record | self._filled_share(np.concatenate([piece.filled for piece in pieces]))


def _common_length(arrays: Mapping[str, np.ndarray]) -> int:
    """The number of samples of arrays that are cut together."""
    cure = "windows need arrays of one length; --resample brings them to one rate"
    return _one_length({name: len(array) for name, array in arrays.items()}, "samples", cure)


def _one_length(lengths: Mapping[str, int], unit: str, cure: str) -> int:
    (first, length), *others = lengths.items()
    for name, other in others:
        if other != length:
            raise RejectError(f"{first!r} has {length} {unit}, {name!r} {other}: {cure}")
    return length


def rows_of(
    recording: Recording, nan: NanPolicy, dtype: str
) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """The arrays [rows, ...] in their dtype, and why some rows cannot become records.

    Args:
        recording: Its arrays and columns must have as many rows.
        nan: Treatment of NaN and infinite values, in each row separately.
        dtype: The dtype to convert to; "" keeps those of the arrays.

    Raises:
        RejectError: An array has a different number of rows, or cannot be stored.
    """
    check_series(recording.arrays)
    lengths = {name: len(array) for name, array in recording.arrays.items()}
    lengths |= {name: len(column.codes) for name, column in recording.columns.items()}
    cure = "--record row cuts arrays of one length; choose them with --arrays"
    _one_length(lengths, "rows", cure)
    arrays: dict[str, np.ndarray] = {}
    errors: dict[int, str] = {}
    for name, array in recording.arrays.items():
        try:
            kept = np.ascontiguousarray(prepare_array(array, dtype).reshape(array.shape))
        except RejectError as error:
            raise RejectError(f"{name}: {error}; choose arrays with --arrays") from None
        arrays[name], bad = fill_rows(kept, nan)
        for row, reason in bad.items():
            errors.setdefault(row, f"{name}: {reason}")
    return arrays, errors


def check_window_label(rule: str) -> None:
    """Checks the value of `--window_label`: majority, last or any:VALUE.

    Raises:
        UsageError: It is none of these.
    """
    if rule not in ("majority", "last") and (not rule.startswith(_ANY) or rule == _ANY):
        raise UsageError(f"--window_label {rule}: expected majority, last, or any:VALUE")


def window_labels(rule: str, column: Column, windows: Windows) -> list[str | None]:
    """The label of each window; None if none of its samples has one.

    Args:
        rule: "majority", the most frequent label (the smallest of equally frequent ones); "last", the label of
            the last sample that has one; or `any:VALUE`, VALUE if any sample has it, else the majority.
        column: The labels of the samples.
        windows: The windows.

    Raises:
        RejectError: A label is neither text nor a whole number.
    """
    texts = [None if is_missing(value) else label_text(value) for value in column.values]
    # Whole numbers are in the order of their values.
    different = {text for text in texts if text is not None}
    labels = sorted(different, key=lambda text: (whole_number(text) or 0, text))
    ranks = {text: rank for rank, text in enumerate(labels)}
    codes = np.array([-1 if text is None else ranks[text] for text in texts])[column.codes]
    alarm = ranks.get(rule.removeprefix(_ANY), -1) if rule.startswith(_ANY) else -1

    def label(piece: Segment) -> str | None:
        of_samples = codes[piece.samples]
        of_samples = of_samples[of_samples >= 0]
        if not len(of_samples):
            return None
        if rule == "last":
            return labels[of_samples[-1]]
        if (of_samples == alarm).any():
            return labels[alarm]
        ranked, counts = np.unique(of_samples, return_counts=True)
        return labels[ranked[counts.argmax()]]

    return list(map(label, windows.pieces()))
