"""Cells of tables as numbers and times."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute

from beam_jobs.errors import RejectError
from beam_jobs.sources.delimited import parse_number

# Words for missing values, and the booleans of Python, R and spreadsheets, in lower case.
_WORDS = {
    **dict.fromkeys(("", "na", "n/a", "-", "nan", "null"), math.nan),
    "true": 1.0,
    "false": 0.0,
}
_KEYS = pyarrow.array(list(_WORDS))
_VALUES = pyarrow.array(map(str, _WORDS.values()), pyarrow.string())

# Ticks in a second.
_PER_SECOND: dict[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# Their names at the end of a column's name, and as its unit.
_NAMES = {
    "s": "s sec secs second seconds",
    "ms": "ms msec millis milliseconds",
    "us": "us \N{MICRO SIGN}s \N{GREEK SMALL LETTER MU}s usec micros microseconds",
    "ns": "ns nsec nanos nanoseconds",
}
_UNITS = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_LONG_UNITS = ("min", "mins", "minutes", "h", "hr", "hrs", "hours", "d", "days")
_UNIT = re.compile(r"(?:^|.*[\s_(\[-])([^\W\d_]+)[)\]]?")

# More seconds are times since 1970 in another unit.
_MOST_SECONDS = 1e11

# The range of 64-bit nanoseconds; NumPy would also take words such as "now" for times.
_ISO_8601 = re.compile(
    r"((?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?)(?:Z|([+-])([0-9]{2}):?([0-9]{2}))?"
)


def number(cell: str) -> float:
    """A cell as Python reads it; NaN if it is a word for a missing value.

    Raises:
        ValueError: It is neither a number nor such a word.
    """
    word = cell.strip().lower()
    return _WORDS[word] if word in _WORDS else parse_number(word, float)


def is_number(cell: str) -> bool:
    """Whether a cell is a number or a missing value."""
    with contextlib.suppress(ValueError):
        number(cell)
        return True
    return False


def is_time(cell: str) -> bool:
    """Whether a cell is a number, a missing value or a date."""
    return is_number(cell) or bool(_ISO_8601.fullmatch(cell.strip()))


def decimal_signs(cells: Any) -> set[str]:
    """The decimal signs in Arrow strings: points, commas, or both."""
    return {sign for sign in ",." if compute.any(compute.match_substring(cells, sign)).as_py()}


def with_points(cells: Any) -> Any:
    """Arrow strings with points for decimal commas."""
    return compute.replace_substring(cells, ",", ".")


def numbers(cells: Any, row: int, column: str | None = None) -> np.ndarray:
    """The cells, Arrow strings from a row on, as `number` reads them.

    Raises:
        RejectError: A cell is not a number and the column has a name. Without one: ValueError.
    """
    with contextlib.suppress(ValueError):
        return cells.cast("float64").to_numpy()
    trimmed = compute.utf8_lower(compute.utf8_trim_whitespace(cells))
    values = compute.take(_VALUES, compute.index_in(trimmed, _KEYS))
    with contextlib.suppress(ValueError):
        return compute.coalesce(values, trimmed).cast("float64").to_numpy()
    # Python reads a few numbers that Arrow does not, such as +1.
    texts = cells.to_pylist()
    try:
        return np.fromiter(map(number, texts), np.float64, len(texts))
    except ValueError:
        at = next(i for i, text in enumerate(texts) if not is_number(text))
    if column is None:
        raise ValueError(f"{texts[at]!r:.80} in row {row + at} is not a number")
    comma = "; if its comma is decimal, separate columns with ;" if "," in texts[at] else ""
    raise RejectError(
        f"column {column!r} is not numeric: {texts[at]!r:.80} in row {row + at}{comma}; choose others with "
        f"--columns, or leave it out with --drop_columns {column}"
    )


def unit_of_times(given: str, name: str = "", unit: str = "") -> tuple[str, str]:
    """The unit of times for `seconds`, and a remark if the file states another one than seconds.

    Args:
        given: `ReadOptions.time_unit`, which takes precedence unless it is "auto".
        name: The name of their column, which may end in a unit: `time_ms`, `Time (s)`.
        unit: Their cell in a row of units.
    """
    word = _UNIT.fullmatch((unit or name).strip().lower())
    stated = _UNITS.get(word[1], "") if word else ""
    if word and word[1] in _LONG_UNITS:
        stated = word[1]
    if given == "auto":
        note = f"its times are in {stated}, as it says; --time_unit names another unit"
        return stated, note if stated not in ("", "s") else ""
    note = f"its times are in {stated}, as it says, but --time_unit {given} was used"
    return given, note if stated not in ("", given) else ""


def seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Times in float64 seconds, rounded only once if they are integers.

    Args:
        ticks: The times.
        unit: Their unit; "" if nothing states it, which is seconds.

    Raises:
        RejectError: The unit is longer than seconds, or the times must be in another one.
    """
    if unit in _LONG_UNITS:
        raise RejectError(
            f"its times are in {unit}: convert them to s, ms, us or ns; --time_unit s reads them as seconds"
        )
    largest = np.nanmax(np.abs(ticks), initial=0) if not unit else 0
    if math.isfinite(largest) and largest > _MOST_SECONDS:
        likely = next(u for u, n in (("ms", 1e14), ("us", 1e17), ("ns", math.inf)) if largest < n)
        raise RejectError(
            f"its times, such as {largest:.0f}, are too large for seconds: add --time_unit {likely}; --time_unit s "
            "reads them as seconds"
        )
    per_second = _PER_SECOND[unit or "s"]
    if not np.can_cast(ticks.dtype, np.int64):
        return ticks.astype(np.float64) / per_second
    full, rest = np.divmod(ticks.astype(np.int64), per_second)
    return full + rest / per_second


def text_seconds(cells: Any, row: int, unit: str) -> np.ndarray:
    """The times in Arrow strings from a row on, numbers or dates, in float64 seconds.

    Raises:
        RejectError: A cell is neither, or not of the same kind as the first.
    """
    with contextlib.suppress(ValueError):
        return seconds(numbers(cells, row), unit)
    times = [text.strip() for text in cells.to_pylist()]
    dates = list(map(_ISO_8601.fullmatch, times))
    for place, (time, date) in enumerate(zip(times, dates, strict=True)):
        if not date and not is_number(time):
            raise RejectError(
                f"row {row + place}: time {time!r:.80} is neither a number nor ISO 8601 such as "
                "2024-01-31T12:30:05.5"
            )
        if time.lower() in _WORDS:
            raise RejectError(f"row {row + place} has no time")
        if date and dates[0] and (date[1] == time) != (dates[0][1] == times[0]):
            raise RejectError(
                f"row {row + place}: time {time!r:.80} and row {row} differ in whether they have a time zone"
            )
        if bool(date) != bool(dates[0]):
            kinds = ("a number", "a date")
            raise RejectError(
                f"row {row + place}: time {time!r:.80} is {kinds[bool(date)]}, row {row} has {kinds[not date]}"
            )
    moments = [date[1] for date in dates if date]
    try:
        utc = np.array(moments, "M8[ns]").astype(np.int64)
    except ValueError:  # Hour 24, second 60, February 30.
        for place, moment in enumerate(moments):
            try:
                np.datetime64(moment, "ns")
            except ValueError as error:
                raise RejectError(f"row {row + place}: time {times[place]!r}: {error}") from None
        raise
    minutes = [
        int(f"{date[2]}{date[3]}") * 60 + int(f"{date[2]}{date[4]}") if date and date[2] else 0
        for date in dates
    ]
    return seconds(utc - np.array(minutes, np.int64) * 60 * _PER_SECOND["ns"], "ns")
