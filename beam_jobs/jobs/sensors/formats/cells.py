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

# The units that a column's name, or its cell in a row of units, may state.
_UNITS = {"sec": "s", "seconds": "s", "\N{MICRO SIGN}s": "us", "min": "minutes", "h": "hours"}
_UNITS |= {unit: unit for unit in _PER_SECOND}
_UNIT = re.compile(r"(?:^|.*[\s_(\[-])([^\W\d_]+)[)\]]?")

# More seconds are times since 1970 in another unit.
_MOST_SECONDS = 1e11

# ISO 8601 without and with time zones, in the range of 64-bit nanoseconds.
_CLOCKS = (pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "UTC"))


def number(cell: str) -> float:
    """A cell as Python reads it; NaN if it is a word for a missing value.

    Raises:
        ValueError: It is neither a number nor such a word.
    """
    word = cell.strip().lower()
    if "_" in word or not word.isascii():  # Python would take 1_000 and digits of other scripts.
        raise ValueError(f"{word!r:.80} is not a number")
    return _WORDS[word] if word in _WORDS else float(word)


def is_number(cell: str) -> bool:
    """Whether a cell is a number or a missing value."""
    with contextlib.suppress(ValueError):
        number(cell)
        return True
    return False


def is_time(cell: str) -> bool:
    """Whether a cell is a number, a missing value or a date."""
    is_date = cell.strip()[:1].isdigit() and _nanoseconds(pyarrow.array([cell])) is not None
    return is_number(cell) or is_date


def _nanoseconds(cells: Any) -> Any:
    """The int64 nanoseconds since 1970 of Arrow strings; None if they are not dates of one form."""
    for clock in _CLOCKS:
        with contextlib.suppress(pyarrow.ArrowInvalid):
            return compute.utf8_trim_whitespace(cells).cast(clock).cast("int64")
    return None


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
    raise RejectError(
        f"column {column!r} is not numeric: {texts[at]!r:.80} in row {row + at}; choose others with "
        f"--columns, or leave it out with --drop_columns {column}"
    )


def unit_of_times(given: str, name: str = "", unit: str = "") -> tuple[str, str]:
    """The unit of times for `seconds`, and a remark if the file states another one than seconds.

    `ReadOptions.time_unit`, unless it is "auto", precedes the cell in a row of units, and the name of the column.
    """
    word = _UNIT.fullmatch((unit or name).strip().lower())
    stated = _UNITS.get(word[1], "") if word else ""
    if given == "auto":
        note = f"its times are in {stated}, as it says; --time_unit names another unit"
        return stated, note if stated not in ("", "s") else ""
    note = f"its times are in {stated}, as it says, but --time_unit {given} was used"
    return given, note if stated not in ("", given) else ""


def seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Times in float64 seconds, rounded only once if they are integers; a unit of "" is seconds.

    Raises:
        RejectError: The unit is longer than seconds, or the times must be in another one.
    """
    if unit and unit not in _PER_SECOND:
        raise RejectError(
            f"its times are in {unit}: convert them to s, or read them so with --time_unit s"
        )
    largest = np.nanmax(np.abs(ticks), initial=0) if not unit else 0
    if _MOST_SECONDS < largest < math.inf:
        likely = "ms" if largest < 1e14 else "us" if largest < 1e17 else "ns"
        raise RejectError(
            f"its times, such as {largest:.0f}, are too large for seconds: add --time_unit {likely}, or s"
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
    if (nanoseconds := _nanoseconds(cells)) is None:
        dated = [_nanoseconds(cells.slice(i, 1)) is not None for i in range(len(cells))]
        wrong = dated.index(False) if False in dated else 0
        raise RejectError(
            f"row {row + wrong}: time {cells[wrong].as_py()!r:.80}: expected numbers, or dates of ISO 8601 such as "
            "2024-01-31T12:30:05.5, all with or all without a time zone"
        )
    return seconds(nanoseconds.to_numpy(), "ns")
