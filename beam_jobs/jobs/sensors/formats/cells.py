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

# The range of 64-bit nanoseconds; NumPy would also take words such as "now" for times.
_ISO_8601 = re.compile(
    r"(?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)


def number(cell: str) -> float:
    """A cell as Python reads it; NaN if it is a word for a missing value.

    Raises:
        ValueError: It is neither a number nor such a word.
    """
    word = cell.strip().lower()
    return _WORDS[word] if word in _WORDS else float(cell)


def is_number(cell: str) -> bool:
    """Whether a cell is a number or a missing value."""
    with contextlib.suppress(ValueError):
        number(cell)
        return True
    return False


def is_time(cell: str) -> bool:
    """Whether a cell is a number, a missing value or a date."""
    return is_number(cell) or bool(_ISO_8601.fullmatch(cell.strip()))


def with_points(cells: Any) -> Any:
    """Arrow strings with points for decimal commas, unless they have points already."""
    if compute.any(compute.match_substring(cells, ".")).as_py():
        return cells
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
    # Python reads a few numbers that Arrow does not, such as digits of other scripts.
    texts = cells.to_pylist()
    try:
        return np.fromiter(map(number, texts), np.float64, len(texts))
    except ValueError:
        at = next(i for i, text in enumerate(texts) if not is_number(text))
    cell = f"{texts[at]!r:.80} in row {row + at}"
    if column is None:
        raise ValueError(f"{cell} is not a number")
    raise RejectError(
        f"column {column!r} is not numeric: {cell}; choose others with --columns, or leave it out "
        f"with --drop_columns {column}"
    )


def seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Times in float64 seconds, rounded only once if they are integers."""
    per_second = _PER_SECOND[unit]
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
    dates = [bool(_ISO_8601.fullmatch(time)) for time in times]
    for number, (time, date) in enumerate(zip(times, dates, strict=True), row):
        if not date and not is_number(time):
            raise RejectError(
                f"row {number}: time {time!r:.80} is neither a number nor ISO 8601 such as "
                "2024-01-31T12:30:05.5"
            )
        if date != dates[0]:
            kinds = ("a number", "a date")
            raise RejectError(
                f"row {number}: time {time!r:.80} is {kinds[date]}, row {row} has {kinds[not date]}"
            )
    return seconds(np.array(times, "M8[ns]").astype(np.int64), "ns")
