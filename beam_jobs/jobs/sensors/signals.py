"""Signal processing: missing values filled, arrays resampled to one clock, windows, spectrograms."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.lowpass import sample_at_lower_rate
from beam_jobs.jobs.sensors.recording import check_size

NanPolicy = Literal["keep", "reject", "interpolate"]

_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:(k?)hz)?", re.IGNORECASE)

_SPAN = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(s|ms|us)|([0-9]{1,12})")

_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}

# In steps of the grid: files round their times, so ten steps of 1/30 s may be 0.3333 s.
_SLACK = 0.01

_MAX_POINTS = 1 << 28

# Values that are transformed at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 15


def parse_rate(text: str, flag: str = "--rate") -> float:
    """Parses a rate such as `50Hz`, `16kHz`, `0.5Hz` or `50` into samples per second.

    Raises:
        UsageError: the text is not a rate, or is zero.
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
        amount: A number of samples or of seconds.
        in_seconds: Whether `amount` is in seconds.
        source: The flag and its value, for messages.
    """

    amount: float
    in_seconds: bool
    source: str

    def samples(self, rate: float | None) -> int:
        """Returns the nearest number of samples, at least one.

        Args:
            rate: Samples per second; None if unknown.

        Raises:
            UsageError: the span is in seconds and the rate is unknown.
        """
        if not self.in_seconds:
            return int(self.amount)
        if rate is None:
            raise UsageError(
                f"{self.source}: the recordings do not state how many samples a second has; add "
                "--rate 50Hz if they are evenly spaced, or --resample, or give a number of samples"
            )
        return max(1, round(self.amount * rate))


def parse_span(text: str, flag: str = "--window") -> Span:
    """Parses a length of time such as `128` (samples), `2s`, `500ms` or `10us`.

    Raises:
        UsageError: the text is not a length of time, or is zero.
    """
    found = _SPAN.fullmatch(text)
    amount = float(found[1] or found[3]) if found else 0.0
    if not found or not amount:
        raise UsageError(
            f"{flag} {text}: expected a number of samples such as 128, or a time such as 2s or 500ms"
        )
    in_seconds = found[3] is None
    return Span(amount / _SECOND[found[2]] if in_seconds else amount, in_seconds, f"{flag} {text}")


def fill_missing(array: np.ndarray, policy: NanPolicy) -> np.ndarray:
    """Returns the array with its NaN and infinite values treated as the policy states.

    Args:
        array: [time, ...] of any dtype; all dimensions but the first are channels.
        policy: "keep", "reject", or "interpolate": each channel linearly over the rows between the
            nearest finite values; at its ends, the nearest one.

    Raises:
        RejectError: the policy is "reject" and a value is not finite, or it is "interpolate" and
            no value of a channel is. Rows and channels are counted from 1.
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
            raise RejectError(f"no finite value to interpolate from{_channel(channel)}")
        result[missing, place] = np.interp(missing, known, result[known, place])
    return result.reshape(array.shape)


def _channel(place: Sequence[np.intp]) -> str:
    return f", channel {' '.join(str(index + 1) for index in place)}" if place else ""


class Segment(NamedTuple):
    """A part of a recording without a gap, on the common grid.

    Attributes:
        arrays: Name -> [time, ...], all of one length.
        filled: bool [time], whether an array was not measured within half a step, of the grid or of
            its own, of the point.
        samples: int64 [time], the number of the recording's sample that is nearest to each point;
            None if points are the samples themselves, or if it was not asked for.
    """

    arrays: dict[str, np.ndarray]
    filled: np.ndarray
    samples: np.ndarray | None = None


def resample_arrays(
    arrays: Mapping[str, np.ndarray],
    times: Mapping[str, np.ndarray],
    rate: float,
    max_gap: float,
    rates: Mapping[str, float] | None = None,
) -> list[Segment]:
    """Brings arrays to one grid and returns the segments between gaps.

    The grid begins at the latest first time of all arrays and ends at their earliest last one; its
    point k is k / rate seconds after its first. Each channel is interpolated linearly, or filtered
    if it is sampled regularly at a higher rate, in float64 and stored as float32 if that can hold
    its dtype (float16 and integers of up to 16 bits too), else as float64. Points strictly inside a
    gap belong to no segment. Times that differ by less than a hundredth of a step count as equal.

    Args:
        arrays: Name -> [t, ...] of numbers.
        times: Name -> float64 [t], finite and strictly increasing seconds on one clock.
        rate: Points per second.
        max_gap: Seconds; two successive measurements of an array further apart are a gap.
        rates: Name -> samples per second, for the arrays that are sampled regularly.

    Raises:
        RejectError: the arrays have no time in common, an array has more or fewer rows than times,
            or the result would exceed a record.
    """
    for name, array in arrays.items():
        if len(array) != len(times[name]):
            raise RejectError(f"{name} has {len(array)} rows, but {len(times[name])} times")
    times = {name: times[name] for name in arrays}
    ranges = _ranges_between_gaps(times, rate, max_gap)
    dtypes = {name: np.result_type(array.dtype, np.float32) for name, array in arrays.items()}
    size = sum(last - first for first, last in ranges) * sum(
        math.prod(array.shape[1:]) * dtypes[name].itemsize for name, array in arrays.items()
    )
    check_size(size, f"at {rate:g} Hz it takes")
    start, _ = _common_time(times)
    clocks = {name: clock - start for name, clock in times.items()}
    # All segments at once, because a recording may have thousands.
    points = np.concatenate([np.empty(0, int), *(np.arange(*points) for points in ranges)])
    grid = points / rate
    values = {}
    for name, array in arrays.items():
        if rates and rates.get(name, 0) > rate:
            at_points = functools.partial(_filter, points, clocks[name], rates[name], rate)
        else:
            at_points = functools.partial(_interpolate, grid, clocks[name])
        values[name] = _by_channel(array, at_points, len(grid), dtypes[name])
    filled = _find_filled(grid, clocks, rate)
    segments, at = [], 0
    for first, last in ranges:
        part = slice(at, at + last - first)
        at = part.stop
        cut = {name: array[part] for name, array in values.items()}
        segments.append(Segment(cut, filled[part]))
    return segments


def find_gaps(
    times: Mapping[str, np.ndarray], rate: float, max_gap: float
) -> list[tuple[float, float]]:
    """Returns (start, length) in seconds of the gaps in any of the arrays, in order.

    Starts count from the first point of the grid; a gap that begins before it has a negative one.
    Overlapping gaps of several arrays are merged. The arguments are those of `resample_arrays`.

    Raises:
        RejectError: the arrays have no time in common.
    """
    start, end = _common_time(times)
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


def _common_time(times: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Returns the latest first and the earliest last time."""
    if empty := [name for name, clock in times.items() if not len(clock)]:
        who = "the recording" if len(times) == 1 else empty[0]
        raise RejectError(f"{who} has no samples")
    start, late = max((float(clock[0]), name) for name, clock in times.items())
    end, early = min((float(clock[-1]), name) for name, clock in times.items())
    if start > end:
        raise RejectError(f"{late} begins after the end of {early}, by {start - end:g} s")
    return start, end


def _ranges_between_gaps(
    times: Mapping[str, np.ndarray], rate: float, max_gap: float
) -> list[tuple[int, int]]:
    """Returns the points of the grid outside gaps as ranges; the end of each is excluded."""
    start, end = _common_time(times)
    steps = (end - start) * rate
    if not steps < _MAX_POINTS:
        raise RejectError(
            f"{end - start:g} s at {rate:g} Hz are more than {_MAX_POINTS} samples: check the unit "
            "of the times"
        )
    edges = [0]
    for first, length in find_gaps(times, rate, max_gap):
        inside = math.floor(first * rate + _SLACK) + 1
        beyond = math.ceil((first + length) * rate - _SLACK)
        if inside < beyond:
            edges += inside, beyond
    edges.append(math.floor(steps + _SLACK) + 1)
    ranges = zip(edges[::2], edges[1::2], strict=True)
    return [(first, last) for first, last in ranges if first < last]


def _by_channel(
    array: np.ndarray, at_points: Callable[[np.ndarray], np.ndarray], count: int, dtype: np.dtype
) -> np.ndarray:
    channels = _flat(array)
    result = np.empty((count, channels.shape[1]), dtype)
    for place in range(channels.shape[1]):
        result[:, place] = at_points(channels[:, place])
    return result.reshape(count, *array.shape[1:])


def _interpolate(grid: np.ndarray, clock: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.interp(grid, clock, values)


def _filter(
    points: np.ndarray, clock: np.ndarray, found_rate: float, rate: float, values: np.ndarray
) -> np.ndarray:
    """Returns the values at points of the grid without frequencies above half of its rate.

    A value that is not finite makes the point nearest to it NaN, and no other.

    Args:
        points: int64 [points], numbers of points of the grid.
        clock: float64 [time], seconds after point 0.
        found_rate, rate: Samples per second of the values and of the grid.
        values: [time].
    """
    good = np.isfinite(values)
    if not len(points) or not good.any():
        return np.full(len(points), np.nan)
    # By their decimals: 44.1 has a huge denominator as a binary number.
    in_samples = Fraction(repr(found_rate))
    step, offset = in_samples / Fraction(repr(rate)), -Fraction(float(clock[0])) * in_samples
    whole = fill_missing(values, "interpolate")
    result = sample_at_lower_rate(whole, step, offset, int(points[-1]) + 1)[points]
    if not good.all():
        missing = np.concatenate([[0], np.cumsum(~good)])
        edges = [np.searchsorted(clock, points / rate + half) for half in (-0.5 / rate, 0.5 / rate)]
        result[missing[edges[1]] > missing[edges[0]]] = np.nan
    return result


def _find_filled(grid: np.ndarray, clocks: Mapping[str, np.ndarray], rate: float) -> np.ndarray:
    """Returns bool [time]: whether an array was not measured near the point.

    Near is half a step of the grid, or of the array's own median step if that is longer.
    """
    result = np.zeros(len(grid), bool)
    for clock in clocks.values():
        step = max(1.0, float(np.median(np.diff(clock))) * rate) if len(clock) > 1 else 1.0
        after = np.searchsorted(clock, grid)
        before = clock[np.maximum(after - 1, 0)]
        nearest = np.minimum(abs(grid - before), abs(clock[after.clip(max=len(clock) - 1)] - grid))
        result |= nearest * rate > 0.5 * step + _SLACK
    return result


def window_starts(length: int, window: int, stride: int, padded: bool = False) -> range:
    """Returns the starts of the windows of a recording, in samples.

    Args:
        length, window, stride: Samples of the recording, of a window, and between two starts.
        padded: Whether samples after the last window that fits begin one more, which does not.
    """
    if not padded:
        return range(0, length - window + 1, stride)
    return range(0, min(length, max(length - window, 0) + stride), stride)


def spectrogram(signal: np.ndarray, frame: int, step: int) -> np.ndarray:
    """Returns short-time Fourier magnitudes: float32 [frames, frame // 2 + 1, ...].

    They equal `tf.abs(tf.signal.stft(x, frame, step, fft_length=frame))` of each channel x if
    `frame` is even: TensorFlow's window of an odd number of samples is not periodic. Values are
    converted to float32, then transformed in float64.

    Args:
        signal: [time, ...] of real numbers; the only channel of [time, 1] adds no dimension.
        frame: Samples per frame, at least 2; each frame is multiplied by a periodic Hann window.
        step: Samples from one frame to the next. Frames lie entirely inside the signal.

    Raises:
        RejectError: the signal is complex, or its spectrogram would exceed a record.
    """
    if signal.dtype.kind == "c":
        raise RejectError(f"a spectrogram needs real numbers, not {signal.dtype}")
    channels = _flat(signal)
    starts, bins = window_starts(len(signal), frame, step), frame // 2 + 1
    # Frames take time even if an array has no channel.
    check_size(4 * len(starts) * bins * max(1, channels.shape[1]), "its spectrogram takes")
    result = np.empty((len(starts), bins, channels.shape[1]), np.float32)
    window = 0.5 - 0.5 * np.cos(2 * np.pi / frame * np.arange(frame))
    block = max(1, _BLOCK // max(1, frame * channels.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # from values that are not finite
        series = np.ascontiguousarray(channels.T, np.float32)
        for first in range(0, len(starts), block):
            part = starts[first : first + block]
            frames = sliding_window_view(series, frame, 1)[:, part.start : part.stop : step]
            spectra = np.abs(np.fft.rfft(frames * window))
            result[first : first + block] = spectra.transpose(1, 2, 0)
    trailing = () if signal.shape[1:] == (1,) else signal.shape[1:]
    return result.reshape(len(starts), bins, *trailing)


def _flat(array: np.ndarray) -> np.ndarray:
    """Returns the array as [time, channels]."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
