"""Brings arrays that were sampled at different times to one grid, filters them, and cuts them at gaps."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.arrays import fill_missing, flat
from beam_jobs.jobs.sensors.recording import Clock
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# In steps of the grid: files round their times, so ten steps of 1/30 s may be 0.3333 s.
_SLACK = 0.01

_MAX_POINTS = 1 << 28

# The filter is a sinc that is cut after this many zeros on each side by a Kaiser window. From 1.2
# times half of the new rate on, it leaves less than 1/10,000 of a tone.
_ZEROS = 16
_BETA = 8.0

# Values of the filter from one zero to the next. Linear interpolation between them changes samples by
# less than 1e-7 of the largest.
_FINE = 4096

# Values that are filtered at a time, so that they stay in the processor's cache.
_BLOCK = 1 << 17


class Segment(NamedTuple):
    """A part of a recording without a gap, on the common grid.

    Attributes:
        arrays: Name -> [time, ...], all of one length.
        filled: bool [time], whether an array has no measurement within half a step of the point; the
            step is that of the grid, or the array's own if longer.
        samples: int64 [time], the number of the recording's sample nearest to each point, the earlier of
            two; or a slice of them; None if points are the samples themselves.
    """

    arrays: dict[str, np.ndarray]
    filled: np.ndarray
    samples: np.ndarray | slice | None = None

    def cut(self, part: slice) -> Segment:
        """The segment of some of its points."""
        arrays = {name: array[part] for name, array in self.arrays.items()}
        samples = self.samples[part] if isinstance(self.samples, np.ndarray) else part
        return Segment(arrays, self.filled[part], samples)


def resample_arrays(
    arrays: Mapping[str, np.ndarray],
    clocks: Mapping[str, Clock],
    rate: float,
    max_gap: float,
    whole: bool = False,
    limit: int = DEFAULT_RECORD_BYTES,
) -> list[Segment]:
    """The segments between gaps of arrays that are brought to one grid.

    The grid begins at the latest first time of all arrays and ends at their earliest last one; its
    point k is k / rate seconds after its first. Each channel is interpolated linearly, or filtered
    if it is sampled regularly at a higher rate, in float64 and stored as float32 if that can hold
    its dtype (float16 and integers of up to 16 bits too), else as float64. Points strictly inside a
    gap belong to no segment. Times that differ by less than a hundredth of a step count as equal.

    Args:
        arrays: Name -> [t, ...] of numbers.
        clocks: Name -> the times of its rows, finite and strictly increasing; or its rows per second, from
            time 0 on.
        rate: Points per second.
        max_gap: Seconds; two successive measurements of an array further apart are a gap.
        whole: Whether a gap is an error.
        limit: The most bytes that the result may take.

    Raises:
        RejectError: The arrays have no time in common outside gaps, an array has more or fewer rows than
            times, or the result would exceed a record.
    """
    times: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        clock = clocks[name]
        times[name] = clock if isinstance(clock, np.ndarray) else np.arange(len(array)) / clock
        if len(array) != len(times[name]):
            raise RejectError(f"{name} has {len(array)} rows, but {len(times[name])} times")
    start, end = _common_time(times)
    if not (end - start) * rate < _MAX_POINTS:
        raise RejectError(
            f"{end - start:g} s at {rate:g} Hz are more than {_MAX_POINTS} samples: check the unit "
            "of the times"
        )
    gaps = _find_gaps(times, rate, max_gap, start, end)
    ranges = _ranges_between(gaps, rate, end - start)
    dtypes = {name: np.result_type(array.dtype, np.float32) for name, array in arrays.items()}
    size = sum(last - first for first, last in ranges) * sum(
        math.prod(array.shape[1:]) * dtypes[name].itemsize for name, array in arrays.items()
    )
    check_bytes(size, limit, f"at {rate:g} Hz it takes")
    if not ranges or (gaps and whole):
        first, length = gaps[0]
        raise RejectError(
            f"a gap of {length:g} s, {first:g} s after its start, is longer than --max_gap "
            f"{max_gap:g}s; with --window or --sequence the parts between gaps are kept"
        )
    times = {name: clock - start for name, clock in times.items()}
    # All segments at once, because a recording may have thousands.
    points = np.concatenate([np.arange(*points) for points in ranges])
    grid, values = points / rate, {}
    for name, array in arrays.items():
        channels, clock = flat(array), clocks[name]
        result = np.empty((len(points), channels.shape[1]), dtypes[name])
        if isinstance(clock, np.ndarray) or clock <= rate:
            for place in range(channels.shape[1]):
                result[:, place] = np.interp(grid, times[name], channels[:, place])
        else:
            _filter(points, rate, times[name], clock, channels, result, limit)
        values[name] = result.reshape(len(points), *array.shape[1:])
    rows = next(iter(times.values()))
    samples = np.ceil(np.interp(grid, rows, np.arange(len(rows))) - 0.5).astype(np.int64)
    segment = Segment(values, _find_filled(grid, times, rate), samples)
    edges = itertools.accumulate((last - first for first, last in ranges), initial=0)
    return [segment.cut(slice(*pair)) for pair in itertools.pairwise(edges)]


def _find_gaps(
    times: Mapping[str, np.ndarray], rate: float, max_gap: float, start: float, end: float
) -> list[tuple[float, float]]:
    """The (start, length) in seconds of the gaps in any of the arrays, in order.

    Starts count from the first point of the grid, and are negative for gaps that begin before it.
    Overlapping gaps of several arrays are merged.
    """
    gaps: list[tuple[float, float]] = []
    for clock in times.values():
        at = np.flatnonzero(np.diff(clock) * rate > max_gap * rate + _SLACK)
        gaps += zip((clock[at] - start).tolist(), (clock[at + 1] - start).tolist(), strict=True)
    merged: list[tuple[float, float]] = []
    for first, last in sorted(gaps):
        if merged and first < merged[-1][1]:
            first, last = merged[-1][0], max(last, merged.pop()[1])
        merged.append((first, last))
    return [(first, last - first) for first, last in merged if last > 0 and first < end - start]


def _common_time(times: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """The latest first and the earliest last time."""
    if empty := [name for name, clock in times.items() if not len(clock)]:
        who = "the recording" if len(times) == 1 else empty[0]
        raise RejectError(f"{who} has no samples")
    start, late = max((float(clock[0]), name) for name, clock in times.items())
    end, early = min((float(clock[-1]), name) for name, clock in times.items())
    if start > end:
        raise RejectError(f"{late} begins after the end of {early}, by {start - end:g} s")
    return start, end


def _ranges_between(
    gaps: list[tuple[float, float]], rate: float, seconds: float
) -> list[tuple[int, int]]:
    """The points of the grid outside gaps as ranges; the end of each is excluded."""
    edges = [0]
    for first, length in gaps:
        begin = math.floor(first * rate + _SLACK) + 1
        end_of_gap = math.ceil((first + length) * rate - _SLACK)
        if begin < end_of_gap:
            edges += begin, end_of_gap
    edges.append(math.floor(seconds * rate + _SLACK) + 1)
    ranges = zip(edges[::2], edges[1::2], strict=True)
    return [(first, last) for first, last in ranges if first < last]


def _filter(
    points: np.ndarray,
    rate: float,
    clock: np.ndarray,
    own_rate: float,
    values: np.ndarray,
    result: np.ndarray,
    limit: int,
) -> None:
    """Fills the result [points, channels] with values, without frequencies above half of the grid's rate.

    A polyphase filter as in `scipy.signal.resample_poly`, computed in float64 or complex128. The first and
    the last sample are repeated beyond the ends. A value that is not finite makes only the nearest point NaN.

    Args:
        points: int64 [points], their numbers.
        rate: Points per second.
        clock: The times of the values, in seconds after point 0.
        own_rate: Samples per second, more than `rate`.
        values: [time, channels].
        limit: The most bytes that the filter may take.

    Raises:
        RejectError: The values are fewer than those of one point, 1/32 of the filter, or the filter would take
            more memory than the largest record.
    """
    # From decimals: as a binary number, 44.1 has a huge denominator.
    in_samples = Fraction(repr(own_rate))
    # In samples: from one point to the next, and from the first sample to point 0.
    step, offset = in_samples / Fraction(repr(rate)), -Fraction(float(clock[0])) * in_samples
    if step > len(values):
        raise RejectError(
            f"its {len(values)} samples are shorter than one sample of --resample, which takes "
            f"{float(step):g} of them: choose a higher rate"
        )
    reach = math.ceil(_ZEROS * step)
    taps, channels = 2 * reach + 1, values.shape[1]
    # Filter weights and their temporaries, and their samples as stored and as float64.
    check_bytes(8 * taps * (6 + 4 * channels), limit, "the filter of --resample takes")
    good = np.isfinite(values)
    usable = good.any(0)
    signal = fill_missing(values if usable.all() else np.where(usable, values, 0), "interpolate")
    exact = np.result_type(signal.dtype, np.float64)
    block = max(1, _BLOCK // (taps * max(1, channels)))
    # Points that are a whole number of samples apart have the same weights.
    count = int(points[-1]) + 1
    period = min(count, step.denominator * max(1, block // step.denominator))
    filtered = np.empty((count, channels), result.dtype)
    for low in range(0, period, block):
        first, rest = divmod(offset + low * step, 1)
        exact_places = float(rest) + float(step) * np.arange(min(block, period - low))
        samples = exact_places.astype(np.int64)
        weights = _weights(exact_places - samples, float(step), reach)
        for k in range(low, count, period):
            part = filtered[k : k + len(samples)]
            start = first + int((k - low) * step) - reach
            places = samples[: len(part)]
            around = np.arange(start, start + int(places[-1]) + taps)
            taken = np.ascontiguousarray(signal.take(around, 0, mode="clip").T, exact)
            frames = sliding_window_view(taken, taps, 1)[:, places]
            # Not a matrix product, whose rounding may depend on the number of threads.
            part[:] = np.einsum("cpw,pw->pc", frames, weights[: len(part)])
    result[:] = filtered[points]
    if not good.all():
        missing = np.pad(np.cumsum(~good, 0, np.int32), ((1, 0), (0, 0)))
        edges = [np.searchsorted(clock, points / rate + half) for half in (-0.5 / rate, 0.5 / rate)]
        result[missing[edges[1]] > missing[edges[0]]] = np.nan
        result[:, ~usable] = np.nan


def _weights(rests: np.ndarray, step: float, reach: int) -> np.ndarray:
    """The weights of the samples around points that are `rests` after a sample: [points, taps]."""
    zeros = np.abs(np.arange(-reach, reach + 1) - rests[:, None]) / step
    weights = np.interp(zeros, *_kernel())
    return weights / weights.sum(1, keepdims=True)


@functools.cache
def _kernel() -> tuple[np.ndarray, np.ndarray]:
    """The filter as (distances from its centre in zeros, values)."""
    zeros = np.arange(_ZEROS * _FINE + 1) / _FINE
    window = np.i0(_BETA * np.sqrt(1 - (zeros / _ZEROS) ** 2))
    return zeros, np.sinc(zeros) * window * (zeros < _ZEROS)


def _find_filled(grid: np.ndarray, clocks: Mapping[str, np.ndarray], rate: float) -> np.ndarray:
    """Whether an array was not measured near each point: bool [time].

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
