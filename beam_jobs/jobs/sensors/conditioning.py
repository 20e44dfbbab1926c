"""Prepares recordings before they are cut into records: missing values, one rate, and lengths of time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.arrays import NanPolicy, check_series, fill_missing, no_tensor
from beam_jobs.jobs.sensors.recording import Clock, Recording
from beam_jobs.jobs.sensors.resampling import Segment, resample_arrays
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

# The feature with the share of samples that were interpolated, not measured.
FILLED = "filled"

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:(k?)hz)?", re.IGNORECASE)

_SPAN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|ms|us)|([0-9]{1,12})")

_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}


def parse_rate(text: str, flag: str = "--rate") -> float:
    """The samples per second in a text such as `50Hz`, `16kHz`, `0.5Hz` or `50`.

    Raises:
        UsageError: The text is not a rate, or is zero.
    """
    match = _RATE.fullmatch(text)
    rate = float(match[1]) * (1000 if match[2] else 1) if match else 0.0
    if not rate:
        raise UsageError(f"{flag} {text}: expected a rate such as 50Hz, 16kHz or 0.5Hz")
    return rate


@dataclass(frozen=True)
class Span:
    """A length of time.

    Attributes:
        amount: A number of samples or of seconds.
        in_seconds: Whether `amount` is in seconds.
        source: The flag and its value, for messages.
    """

    amount: float
    in_seconds: bool
    source: str

    @classmethod
    def parse(cls, text: str, flag: str = "--window") -> Span:
        """The length in a text such as `128` (samples), `2s`, `500ms` or `10us`.

        Raises:
            UsageError: The text is not a length of time, or is zero.
        """
        match = _SPAN.fullmatch(text)
        amount = float(match[1] or match[3]) if match else 0.0
        if not match or not amount:
            raise UsageError(
                f"{flag} {text}: expected a number of samples such as 128, or a time such as 2s or 500ms"
            )
        unit = match[2]
        return cls(amount / _SECOND.get(unit, 1), bool(unit), f"{flag} {text}")

    def samples(self, rate: float | None) -> float:
        """The number of samples, at least one; a time need not be a whole number of them.

        Args:
            rate: Samples per second; None if unknown.

        Raises:
            UsageError: The span is in seconds and the rate is unknown.
        """
        if not self.in_seconds:
            return self.amount
        if rate is None:
            raise UsageError(
                f"{self.source}: the recordings do not state their sampling rate; add "
                "--rate 50Hz if they are evenly spaced, or --resample, or give a number of samples"
            )
        return max(1.0, self.amount * rate)


@dataclass(frozen=True, kw_only=True)
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
        pad: Whether the samples after the last whole window become a window padded with zeros.
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

    def record_rate(self, file_rate: float | None) -> float | None:
        """The samples per second of the records; None if unknown."""
        return self.resample or file_rate or self.rate or None

    def segments(self, recording: Recording) -> list[Segment]:
        """The parts of a recording between gaps, filled and resampled.

        Without resampling there is one segment, the whole recording.

        Raises:
            RejectError: The recording cannot become a record.
            UsageError: `resample` is set and the times of an array are unknown.
        """
        check_series(recording.arrays)
        arrays = {name: self._filled(name, array) for name, array in recording.arrays.items()}
        if self.resample:
            return self._resampled(recording, arrays)
        return [Segment(arrays, np.empty(0, bool))]

    def _filled(self, name: str, array: np.ndarray) -> np.ndarray:
        try:
            if array.dtype.kind not in "biufc":
                raise no_tensor(array.dtype)
            return fill_missing(array, self.nan)
        except RejectError as error:
            raise RejectError(f"{name}: {error}") from None

    def _resampled(self, recording: Recording, arrays: Mapping[str, np.ndarray]) -> list[Segment]:
        if FILLED in arrays:
            raise RejectError(f"an array may not be called {FILLED!r}: --resample adds it")
        clocks = {name: self._clock(recording, name) for name in arrays}
        whole = not (self.sequence or self.window)
        return resample_arrays(arrays, clocks, self.resample, self.max_gap, whole, self.max_bytes)

    def _clock(self, recording: Recording, name: str) -> Clock:
        clock = recording.clock(name)
        if isinstance(clock, np.ndarray):
            return clock
        if rate := clock or self.rate:
            return rate
        found = "".join(f"; {note}" for note in recording.notes)
        raise UsageError(
            f"--resample needs the times of the samples of {name!r}: add --time_column "
            f"NAME, or --rate 50Hz if they are evenly spaced{found}"
        )
