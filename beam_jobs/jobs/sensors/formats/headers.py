"""The first rows of a table of text: the names of its columns, their units, or numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence, Set
from typing import Literal

from beam_jobs.jobs.sensors.formats.cells import is_number, is_time, number
from beam_jobs.jobs.sensors.read_options import Header

# Rows that are looked at.
TOP_ROWS = 6

_WHOLE = re.compile(r"[0-9]{1,9}")

_FROM_COMMENT = "the comment above the table has the names of its columns; --header no: it has none"
_TAKEN = (
    "its first line has numbers that count up, which were taken for names; --header no: a sample"
)
_MIXED = "its first line was taken for names, some of which are numbers; --header no: a sample"
_UNSURE = "its first line has numbers, and was taken for a sample; --header yes: for names"


def find_header(
    top: Sequence[Sequence[str]], comment: Sequence[str], mode: Header
) -> tuple[Literal["row", "comment", ""], str]:
    """Where the names of the columns are, and a remark if that is not obvious.

    Numbers are names if they count up (0, 1, 2 as pandas writes them, or years), unless a column goes on
    from them in equal steps. Other rows are names if they differ in kind from the rows below.

    Args:
        top: The first rows, with points for decimal commas.
        comment: The cells of the comment above them, one for each column; or empty.
        mode: The flag --header.
    """
    first, *below = top
    if mode == "no":
        return "", ""
    kinds = list(map(_kind, first))
    if "text" not in kinds and comment and not any(map(is_time, comment)):
        return "comment", _FROM_COMMENT
    if mode == "yes" or {*kinds} == {"text"}:
        return "row", ""
    under = list(map(_kind, below[0])) if below else []
    pairs = set(zip(kinds, under, strict=False))
    if {("text", "number"), ("text", "date"), ("date", "number")} & pairs:
        return "row", _MIXED if "number" in kinds else ""
    if "number" not in kinds:
        return ("row", "") if "text" in kinds else ("", "")
    sure, likely = _counts_up(first, kinds, below)
    if sure:
        return "row", _TAKEN
    return "", _UNSURE if likely else ""


def _kind(cell: str) -> str:
    """One of text, number, date, and missing."""
    if not is_time(cell):
        return "text"
    if not is_number(cell):
        return "date"
    return "number" if number(cell) == number(cell) else "missing"


def _counts_up(
    first: Sequence[str], kinds: Sequence[str], below: Sequence[Sequence[str]]
) -> tuple[bool, bool]:
    """Whether the numbers of a row are names for sure, and whether they may be."""
    texts = [cell.strip() for cell, kind in zip(first, kinds, strict=True) if kind == "number"]
    if not below or not all(map(_WHOLE.fullmatch, texts)) or "missing" in kinds[1:]:
        return False, False
    names = [int(text) for text in texts]
    steps = [after - before for before, after in itertools.pairwise(names)]
    rising = min(steps, default=1) > 0
    if kinds[0] == "missing" and rising:
        rows = [row[0].strip() for row in below]
        if rows == list(map(str, range(len(rows)))) or "number" not in map(_kind, rows):
            return True, True  # Row numbers, or times, below an empty name.
    even = len({*steps}) == 1 and rising and (len(names) > 2 or steps[0] == 1)
    if not even or any(map(_in_steps, zip(first, *below, strict=False))):
        return False, False
    fractions = all(
        any(_kind(cell) == "number" and not _WHOLE.fullmatch(cell.strip()) for cell in column)
        for column in zip(*below, strict=False)
    )
    return names[:2] == [0, 1] or (fractions and len(names) > 2), True


def _in_steps(column: Sequence[str]) -> bool:
    """Whether the cells of a column are three or more numbers at equal distances."""
    if len(column) < 3 or not all(map(is_number, column)):
        return False
    values = list(map(number, column))
    steps = [after - before for before, after in itertools.pairwise(values)]
    return steps[0] != 0 and all(abs(step - steps[0]) <= 1e-6 * abs(steps[0]) for step in steps)


def is_units(rows: Sequence[Sequence[str]], places: Set[int]) -> bool:
    """Whether the first of two rows below a header has the units of the columns at some places."""
    if len(rows) < 2 or any(len(row) <= max(places) for row in rows[:2]):
        return False
    units, values = ([row[place] for place in places] for row in rows[:2])
    stated = [cell for cell in units if cell.strip()]
    return (
        bool(stated) and not any(map(is_time, stated)) and any(map(is_number, filter(None, values)))
    )
