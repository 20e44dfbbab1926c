"""Brings arrays that were sampled at different times to one grid, and cuts them at gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.lowpass import sample_at_lower_rate
from beam_jobs.jobs.sensors.signals import fill_missing, flat
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# In steps of the grid: files round their times, so ten steps of 1/30 s may be 0.3333 s.
_SLACK = 0.01

_MAX_POINTS = 1 << 28


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
    limit: int = DEFAULT_RECORD_BYTES,
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
        limit: The most bytes that the result may take.

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
    check_bytes(size, limit, f"at {rate:g} Hz it takes")
    start, _ = _common_time(times)
    clocks = {name: clock - start for name, clock in times.items()}
    # All segments at once, because a recording may have thousands.
    points = np.concatenate([np.empty(0, int), *(np.arange(*points) for points in ranges)])
    grid = points / rate
    values = {}
    for name, array in arrays.items():
        if rates and rates.get(name, 0) > rate:
            sampled = clocks[name], rates[name], rate, flat(array)
            found = _filter(points, *sampled, dtypes[name], limit)
        else:
            found = _interpolate(grid, clocks[name], flat(array), dtypes[name])
        values[name] = found.reshape(len(grid), *array.shape[1:])
    return _cut(values, _find_filled(grid, clocks, rate), ranges)


def _cut(
    values: Mapping[str, np.ndarray], filled: np.ndarray, ranges: list[tuple[int, int]]
) -> list[Segment]:
    """The segments whose points stand one after another in the arrays.

    Args:
        values: Name -> [points, ...], the points of all segments.
        filled: bool [points], as in `Segment`.
        ranges: The first and the last point of each segment, the last one excluded.
    """
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


def _interpolate(
    grid: np.ndarray, clock: np.ndarray, values: np.ndarray, dtype: np.dtype
) -> np.ndarray:
    result = np.empty((len(grid), values.shape[1]), dtype)
    for place in range(values.shape[1]):
        result[:, place] = np.interp(grid, clock, values[:, place])
    return result


def _filter(
    points: np.ndarray,
    clock: np.ndarray,
    found_rate: float,
    rate: float,
    values: np.ndarray,
    dtype: np.dtype,
    limit: int,
) -> np.ndarray:
    """Returns the values at points of the grid without frequencies above half of its rate.

    A value that is not finite makes the point nearest to it NaN, and no other.

    Args:
        points: int64 [points], numbers of points of the grid.
        clock: float64 [time], seconds after point 0.
        found_rate, rate: Samples per second of the values and of the grid.
        values: [time, channels].
        dtype: The dtype of the result.
        limit: The most bytes that the filter may take.
    """
    if not len(points):
        return np.empty((0, values.shape[1]), dtype)
    # By their decimals: 44.1 has a huge denominator as a binary number.
    in_samples = Fraction(repr(found_rate))
    step, offset = in_samples / Fraction(repr(rate)), -Fraction(float(clock[0])) * in_samples
    good = np.isfinite(values)
    known = good.any(0)
    whole = fill_missing(values if known.all() else np.where(known, values, 0), "interpolate")
    result = sample_at_lower_rate(whole, step, offset, int(points[-1]) + 1, dtype, limit)[points]
    if not good.all():
        missing = np.pad(np.cumsum(~good, 0, np.int32), ((1, 0), (0, 0)))
        edges = [np.searchsorted(clock, points / rate + half) for half in (-0.5 / rate, 0.5 / rate)]
        result[missing[edges[1]] > missing[edges[0]]] = np.nan
        result[:, ~known] = np.nan
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
