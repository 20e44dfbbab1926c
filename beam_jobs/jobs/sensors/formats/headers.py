"""The first rows of a table of text: the names of its columns, their units, or numbers."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence, Set

from beam_jobs.jobs.sensors.formats.cells import is_number, is_time, number
from beam_jobs.jobs.sensors.read_options import Header

# Rows that are looked at.
TOP_ROWS = 6

_YEARS = range(1800, 2101)

_WHOLE = re.compile(r"[0-9]{1,9}")

_TAKEN = "numbers in its first line were taken for names; --header no: for a sample"


def has_names(top: Sequence[Sequence[str]], mode: Header) -> tuple[bool, str]:
    """Whether the first row names the columns, and a remark if some names are numbers.

    It does if it has text above a number or a date, or no numbers and dates; or if its numbers count up,
    as pandas writes them (0, 1, 2), or are years above fractions, unless they begin a column of equal steps.

    Args:
        top: The first rows, with points for decimal commas.
        mode: The flag --header.
    """
    first, *below = top
    if mode != "auto":
        return mode == "yes", ""
    kinds, under = ([_kind(cell) for cell in row] for row in (first, below[0] if below else ()))
    names = any(
        (a == "text" and b in ("number", "date")) or (a == "date" and b == "number")
        for a, b in zip(kinds, under, strict=False)
    )
    if "number" in kinds:
        names = names or (bool(below) and _counts_up(first, kinds, below))
        return names, _TAKEN if names else ""
    return names if "date" in kinds else "text" in kinds, ""


def _kind(cell: str) -> str:
    """One of text, number, date, and missing."""
    if not is_number(cell):
        return "date" if is_time(cell) else "text"
    return "number" if number(cell) == number(cell) else "missing"


def _counts_up(first: Sequence[str], kinds: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the numbers of a row are rather names than numbers."""
    numbers = [cell.strip() for cell, kind in zip(first, kinds, strict=True) if kind == "number"]
    if "missing" in kinds[1:] or not all(map(_WHOLE.fullmatch, numbers)):
        return False
    names = list(map(int, numbers))
    if names == list(range(len(names))):
        counts = len(names) > 1 or kinds[0] == "missing"
    else:
        whole = (all(map(_WHOLE.fullmatch, cells)) for cells in zip(*below, strict=False))
        rise = all(before < after for before, after in itertools.pairwise(names))
        are_years = len(names) > 1 and all(year in _YEARS for year in names)
        counts = rise and (are_years or _in_steps(names)) and not any(whole)
    columns = (cells for cells in zip(first, *below, strict=False) if all(map(is_number, cells)))
    return counts and not any(_in_steps(map(number, cells)) for cells in columns)


def _in_steps(numbers: Iterable[float]) -> bool:
    """Whether three or more numbers rise or fall in equal steps."""
    steps = [after - before for before, after in itertools.pairwise(numbers)]
    return len(steps) > 1 and all(
        step and math.isclose(step, steps[0], rel_tol=1e-6) for step in steps
    )


def is_units(rows: Sequence[Sequence[str]], places: Set[int]) -> bool:
    """Whether the first of two rows below a header has the units of the columns at some places."""
    if len(rows) < 2 or any(len(row) <= max(places) for row in rows[:2]):
        return False
    units, values = ([row[place] for place in places] for row in rows[:2])
    stated = [cell for cell in units if cell.strip()]
    return (
        bool(stated) and not any(map(is_time, stated)) and any(map(is_number, filter(None, values)))
    )
