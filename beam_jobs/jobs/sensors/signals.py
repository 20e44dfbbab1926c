"""What is done to the arrays of a recording: missing values, a common clock, windows, spectra."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError, UsageError

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:(k?)hz)?", re.IGNORECASE)

_SPAN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|ms|us)|([0-9]{1,12})")

_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}

# Parts of a step: files round their times, so that ten steps of 1/30 s may be 0.3333 s.
_SLACK = 0.01

_MAX_POINTS = 1 << 28

_MAX_ARRAY_BYTES = 1 << 31

# Values that are transformed at once: they stay in the processor's cache.
_BLOCK = 1 << 15


def parse_rate(text: str, flag: str = "--rate") -> float:
    """Samples a second of `50Hz`, `16kHz`, `0.5Hz` or `50`.

    Raises:
        UsageError: It is no such rate, or zero.
    """
    found = _RATE.fullmatch(text)
    rate = float(found[1]) * (1000 if found[2] else 1) if found else 0.0
    if not rate:
        raise UsageError(f"{flag} {text}: expected a rate such as 50Hz, 16kHz or 0.5Hz")
    return rate


@dataclass(frozen=True)
class Span:
    """A length of time.

    Attributes:
        amount: A number of samples, or of seconds.
        in_seconds: Which of the two.
        source: The flag and its value, for messages.
    """

    amount: float
    in_seconds: bool
    source: str

    def samples(self, rate: float | None) -> int:
        """The nearest number of samples, at least one.

        Args:
            rate: Samples a second, None where nobody knows.

        Raises:
            UsageError: It is in seconds and there is no rate.
        """
        if not self.in_seconds:
            return int(self.amount)
        if rate is None:
            raise UsageError(
                f"{self.source}: the recordings do not say how many samples a second has; give a "
                "number of samples, or resample them to a rate"
            )
        return max(1, round(self.amount * rate))


def parse_span(text: str, flag: str = "--window") -> Span:
    """The length of time of `128` (samples), `2s`, `500ms` or `10us`.

    Raises:
        UsageError: It is no such length, or zero.
    """
    found = _SPAN.fullmatch(text)
    amount = float(found[1] or found[3]) if found else 0.0
    if not found or not amount:
        raise UsageError(
            f"{flag} {text}: expected a number of samples such as 128, or a time such as 2s or 500ms"
        )
    in_seconds = found[3] is None
    return Span(amount / _SECOND[found[2]] if in_seconds else amount, in_seconds, f"{flag} {text}")


def filled(array: np.ndarray, policy: str) -> np.ndarray:
    """The array without values that are NaN or infinite; one of integers as it is.

    Args:
        array: [time, ...]; all but the first dimension are channels.
        policy: "reject", "keep" them after all, or "interpolate": within each channel on a line
            over the rows between the numbers around them, at its ends the nearest number.

    Raises:
        RejectError: There are some and the policy is "reject", or a channel holds no number.
            Rows and channels are counted from 1.
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
    result, good = _flat(array).copy(), _flat(good)
    for place in np.flatnonzero(~good.all(0)):
        known, missing = np.flatnonzero(good[:, place]), np.flatnonzero(~good[:, place])
        if not len(known):
            channel = list(np.unravel_index(place, array.shape[1:]))
            raise RejectError(f"no number to go by{_channel(channel)}: all are NaN or infinite")
        result[missing, place] = np.interp(missing, known, result[known, place])
    return result.reshape(array.shape)


def _channel(place: Sequence[np.intp]) -> str:
    return f", channel {' '.join(str(index + 1) for index in place)}" if place else ""


class Segment(NamedTuple):
    """A stretch of a recording on the common grid.

    Attributes:
        start: Seconds after the first point of the grid.
        arrays: Name -> [time, ...], all of one length.
        filled: bool [time], whether some array was not measured within half a step of the point.
    """

    start: float
    arrays: dict[str, np.ndarray]
    filled: np.ndarray


def resampled(
    arrays: Mapping[str, np.ndarray],
    times: Mapping[str, np.ndarray],
    rate: float,
    max_gap: float,
) -> list[Segment]:
    """The stretches of a recording without a gap, interpolated on one grid.

    The grid begins at the latest first time of all arrays and ends at their earliest last one; its
    point k lies k / rate seconds after its first. Each channel follows straight lines from one
    measurement to the next, computed in float64. What float32 can hold becomes float32 (float16 and
    integers of up to 16 bits too), anything else float64. The points strictly inside a gap belong
    to no stretch. Times count as equal that differ by less than a hundredth of a step.

    Args:
        arrays: Name -> [t, ...] of numbers.
        times: Name -> float64 [t], finite and strictly increasing seconds on one clock.
        rate: Points a second.
        max_gap: Two neighbouring measurements of an array further apart, in seconds, are a gap.

    Raises:
        RejectError: The arrays have no time in common, or the result would be larger than a record.
    """
    for name, array in arrays.items():
        if len(array) != len(times[name]):
            raise RejectError(f"{name} has {len(array)} rows, but {len(times[name])} times")
    times = {name: times[name] for name in arrays}
    stretches = _stretches(times, rate, max_gap)
    dtypes = {name: np.result_type(array.dtype, np.float32) for name, array in arrays.items()}
    size = sum(last - first for first, last in stretches) * sum(
        math.prod(array.shape[1:]) * dtypes[name].itemsize for name, array in arrays.items()
    )
    if size > _MAX_ARRAY_BYTES:
        raise RejectError(
            f"at {rate:g} Hz it takes {size} bytes, more than a record can hold (2 GiB)"
        )
    start, _ = _common(times)
    clocks = {name: clock - start for name, clock in times.items()}
    # All stretches at once: a recording may have thousands.
    grid = np.concatenate([np.empty(0), *(np.arange(*stretch) for stretch in stretches)]) / rate
    values = {
        name: _interpolated(grid, clocks[name], array, dtypes[name])
        for name, array in arrays.items()
    }
    unmeasured = _unmeasured(grid, clocks, rate)
    segments, at = [], 0
    for first, last in stretches:
        part = slice(at, at + last - first)
        at = part.stop
        stretch = {name: array[part] for name, array in values.items()}
        segments.append(Segment(first / rate, stretch, unmeasured[part]))
    return segments


def gaps(times: Mapping[str, np.ndarray], rate: float, max_gap: float) -> list[tuple[float, float]]:
    """Where an array was not measured for too long: (start, length) in seconds, in order.

    Starts count from the first point of the grid, so that of a gap around it is negative. Gaps of
    several arrays that overlap are one. The arguments are those of `resampled`.

    Raises:
        RejectError: The arrays have no time in common.
    """
    start, end = _common(times)
    found: list[tuple[float, float]] = []
    for clock in times.values():
        at = np.flatnonzero(np.diff(clock) * rate > max_gap * rate + _SLACK)
        found += zip((clock[at] - start).tolist(), (clock[at + 1] - start).tolist(), strict=True)
    merged: list[tuple[float, float]] = []
    for first, last in sorted(found):
        if merged and first < merged[-1][1]:
            first, last = merged[-1][0], max(last, merged.pop()[1])
        merged.append((first, last))
    return [(first, last - first) for first, last in merged if last > 0 and first < end - start]


def _common(times: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """The latest first and the earliest last time."""
    if empty := [name for name, clock in times.items() if not len(clock)]:
        raise RejectError(f"{empty[0]} was never measured")
    start, late = max((float(clock[0]), name) for name, clock in times.items())
    end, early = min((float(clock[-1]), name) for name, clock in times.items())
    if start > end:
        raise RejectError(f"{late} begins after the end of {early}, by {start - end:g} s")
    return start, end


def _stretches(
    times: Mapping[str, np.ndarray], rate: float, max_gap: float
) -> list[tuple[int, int]]:
    """The points of the grid without a gap: ranges, the end of each excluded."""
    start, end = _common(times)
    steps = (end - start) * rate
    if not steps < _MAX_POINTS:
        raise RejectError(
            f"{end - start:g} s at {rate:g} Hz are more than {_MAX_POINTS} samples: check the unit "
            "of the times"
        )
    edges = [0]
    for first, length in gaps(times, rate, max_gap):
        inside = math.floor(first * rate + _SLACK) + 1
        beyond = math.ceil((first + length) * rate - _SLACK)
        if inside < beyond:
            edges += inside, beyond
    edges.append(math.floor(steps + _SLACK) + 1)
    ranges = zip(edges[::2], edges[1::2], strict=True)
    return [(first, last) for first, last in ranges if first < last]


def _interpolated(
    grid: np.ndarray, clock: np.ndarray, array: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    channels = _flat(array)
    result = np.empty((len(grid), channels.shape[1]), dtype)
    for place in range(channels.shape[1]):
        result[:, place] = np.interp(grid, clock, channels[:, place])
    return result.reshape(len(grid), *array.shape[1:])


def _unmeasured(grid: np.ndarray, clocks: Mapping[str, np.ndarray], rate: float) -> np.ndarray:
    result = np.zeros(len(grid), bool)
    for clock in clocks.values():
        after = np.searchsorted(clock, grid)
        before = clock[np.maximum(after - 1, 0)]
        nearest = np.minimum(abs(grid - before), abs(clock[after.clip(max=len(clock) - 1)] - grid))
        result |= nearest * rate > 0.5 + _SLACK
    return result


def window_starts(length: int, window: int, stride: int) -> range:
    """Where the windows begin that lie wholly inside a recording, all in samples."""
    return range(0, length - window + 1, stride)


def spectrogram(signal: np.ndarray, frame: int, step: int) -> np.ndarray:
    """The magnitudes of a short-time Fourier transform: float32 [frames, frame // 2 + 1, ...].

    Those of `tf.abs(tf.signal.stft(x, frame, step, fft_length=frame))` for each channel x, where
    `frame` is even: TensorFlow's window of an odd number of samples is not periodic. Values are
    taken as float32, and transformed in float64.

    Args:
        signal: [time, ...] of real numbers; a single channel, [time, 1], leaves no dimension.
        frame: Samples of a frame, at least 2. Each is multiplied by a periodic Hann window.
        step: Samples from one frame to the next. Frames lie wholly inside the signal.

    Raises:
        RejectError: It is complex, or its spectrogram would be larger than a record.
    """
    if signal.dtype.kind == "c":
        raise RejectError(f"a spectrogram is of real numbers, not of {signal.dtype}")
    channels = _flat(signal)
    starts, bins = window_starts(len(signal), frame, step), frame // 2 + 1
    size = 4 * len(starts) * bins * channels.shape[1]
    if size > _MAX_ARRAY_BYTES:
        raise RejectError(
            f"its spectrogram takes {size} bytes, more than a record can hold (2 GiB)"
        )
    result = np.empty((len(starts), bins, channels.shape[1]), np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi / frame * np.arange(frame))
    block = max(1, _BLOCK // max(1, frame * channels.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # of values that are not finite
        series = np.ascontiguousarray(channels.T, np.float32)
        for first in range(0, len(starts), block):
            part = starts[first : first + block]
            frames = sliding_window_view(series, frame, 1)[:, part.start : part.stop : step]
            spectra = np.abs(np.fft.rfft(frames * window))
            result[first : first + block] = spectra.transpose(1, 2, 0)
    trailing = () if signal.shape[1:] == (1,) else signal.shape[1:]
    return result.reshape(len(starts), bins, *trailing)


def _flat(array: np.ndarray) -> np.ndarray:
    """The array as [time, channels]."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
