"""A recording, how to read one, and the checks that all formats share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError

# Ticks in a second.
TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# A file may claim to unpack to anything; a record cannot exceed protobuf's 2 GiB.
_MAX_ARRAY_BYTES = 1 << 31


class Recording(NamedTuple):
    """What a file holds.

    Attributes:
        arrays: Name -> [time, ...] as the file has it; the only array of a file is `signal`.
        rate: Samples a second, where the file says.
        times: float64 [time], seconds on the file's own clock, where a time column was asked for.
    """

    arrays: dict[str, np.ndarray]
    rate: float | None = None
    times: np.ndarray | None = None


@dataclass(frozen=True)
class Reading:
    """How files are read; each kind of file takes what concerns it.

    Attributes:
        arrays: The names of the arrays to take; all of them if empty.
        columns: Of `.csv` and `.parquet` files, the channels in this order; if empty, every column
            of a `.csv` file but the time, every column of numbers of a `.parquet` file but the time.
        time_column: The column that has the times; none if empty.
        time_unit: Of times that are plain numbers: one of `TIME_UNITS`.
        float_audio: Whether integer samples of audio become float32 from -1 to 1.
    """

    arrays: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    time_column: str = ""
    time_unit: str = "s"
    float_audio: bool = False


def _chosen(names: Iterable[str], wanted: tuple[str, ...]) -> list[str]:
    names = list(names)
    if missing := [name for name in wanted if name not in names]:
        raise RejectError(f"no array {missing[0]!r}: the file has {', '.join(names)}")
    return list(wanted) or names


def _named(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    if not arrays:
        raise RejectError("the archive holds no array")
    if len(arrays) == 1:
        return {"signal": next(iter(arrays.values()))}
    if clash := arrays.keys() & {"key", "label"}:
        raise RejectError(f"an array may not be called {min(clash)!r}: choose with --arrays")
    return arrays


def _alone(
    signal: np.ndarray, reading: Reading, rate: float | None = None, times: np.ndarray | None = None
) -> Recording:
    if reading.arrays:
        _chosen(("signal",), reading.arrays)
    return Recording({"signal": signal}, rate, times)


def _check_size(size: int) -> None:
    if size > _MAX_ARRAY_BYTES:
        raise RejectError(f"it unpacks to {size} bytes, more than a record can hold (2 GiB)")


def _place(names: list[str], name: str) -> int:
    if names.count(name) != 1:
        count = "two columns" if name in names else "no column"
        raise RejectError(f"{count} {name!r}: the file has {', '.join(names)}")
    return names.index(name)


def _seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Times in float64 seconds, rounded once where they are integers."""
    per_second = TIME_UNITS[unit]
    if not np.can_cast(ticks.dtype, np.int64):
        return ticks.astype(np.float64) / per_second
    whole, rest = np.divmod(ticks.astype(np.int64), per_second)
    return whole + rest / per_second


def _checked(times: np.ndarray) -> np.ndarray:
    """Times that can be a clock's.

    Raises:
        RejectError: One is missing or infinite, or does not come after the one before.
    """
    if not np.isfinite(times).all():
        row = int(np.argmin(np.isfinite(times)))
        raise RejectError(f"row {row + 1}: time {times[row]} is not finite")
    steps = np.diff(times)
    if (steps <= 0).any():
        row = int(np.argmax(steps <= 0)) + 1
        raise RejectError(
            f"row {row + 1}: time {times[row]} s does not come after {times[row - 1]} s"
        )
    return times
