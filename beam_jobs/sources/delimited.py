"""The beginning, the quotes and the numbers of .csv, .tsv and .txt tables."""

from __future__ import annotations

import csv
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar, cast

Number = TypeVar("Number", int, float)

# The lines above a table are looked for in so many bytes.
HEAD_BYTES = 1 << 16

# `sep=;` as Excel writes it, and lines that are blank or begin with # or %.
_HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?(?:"?sep=([^\r\n])"?[ \t]*(?:\r\n?|\n))?'
    rb"((?:(?:[ \t]*[#%][^\r\n]*)?(?:\r\n?|\n))*)([^\r\n]*)",
    re.IGNORECASE,
)

# A cell in quotes.
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


BROKEN_QUOTES = (
    'text follows the end of a cell in quotes: double the quotes in it, as in "a ""b"" c"'
)


class Head(NamedTuple):
    """The lines above a table.

    Attributes:
        size: Their bytes.
        delimiter: The delimiter that the first of them states; "" if it states none.
        comment: The last one that begins with # or %; "" without any.
        line: The line below them, the first of the table.
    """

    size: int
    delimiter: str
    comment: str
    line: str

    @classmethod
    def of(cls, text: bytes) -> Head:
        """The head of a text in UTF-8, or of its first `HEAD_BYTES`."""
        found = cast(re.Match[bytes], _HEAD.match(text))
        stated, comments, line = (
            (part or b"").decode("utf-8", "replace") for part in found.groups()
        )
        comment = next((c for c in reversed(re.split(r"\s*[\r\n]\s*", comments)) if c), "")
        return cls(found.start(3), stated, comment, line)

    def names(self, delimiter: str) -> list[str]:
        """The names in the comment, if it has one for each cell of the line below it, and several; else empty."""
        names = cells_of(self.comment, delimiter)
        if not 1 < len(names) == len(cells_of(self.line, delimiter)):
            return []
        return [names[0].lstrip("#% \t") or names[0], *(name.strip() for name in names[1:])]


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    return next(csv.reader([line], delimiter=delimiter), [])


def split_rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str] | None]:
    """Yields the cells of each row that is not blank; None for a row with broken quotes.

    With tabs, a quote counts only if it encloses a whole cell, because most such tables quote nothing;
    so does a cell of several lines, unless one of them has the columns of a row. With other
    delimiters, or if the first line begins with a quote, quotes are those of `csv`, and blanks after
    delimiters are dropped if all names but the first begin with one.

    Args:
        lines: The lines of the table from its header on, with their ends.
        delimiter: The character between cells.

    Raises:
        csv.Error: The table ends within quotes.
    """
    lines = iter(lines)
    first = next((line for line in lines if line.strip("\r\n")), "")
    if delimiter == "\t" and not first.startswith('"'):
        yield from _tabbed_rows(first, lines)
        return
    blanks = [name[:1] == " " for name in cells_of(first, delimiter)[1:]]
    skips = bool(blanks) and all(blanks)
    all_lines = itertools.chain([first], lines)
    rows = csv.reader(all_lines, delimiter=delimiter, skipinitialspace=skips, strict=True)
    while True:
        try:
            yield from filter(None, rows)
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise csv.Error("it ends within quotes") from None
            if "expected after" not in str(error):
                raise
        yield None


def _tabbed_rows(first: str, lines: Iterator[str]) -> Iterator[list[str]]:
    width, waiting = first.count("\t") + 1, deque([first])
    while line := waiting.popleft() if waiting else next(lines, ""):
        bare = line.rstrip("\r\n")
        if '"' not in bare:
            if bare:
                yield bare.split("\t")
            continue
        cells = bare.split("\t")
        if len(cells) != width or any(c[:1] == '"' and not _QUOTED.fullmatch(c) for c in cells):
            taken: list[str] = []
            quoted = _quoted_row(line, _continued(len(cells), width, waiting, lines, taken))
            if quoted and len(quoted) == width:
                yield quoted
                continue
            waiting.extendleft(reversed(taken))
        yield [c[1:-1].replace('""', '"') if _QUOTED.fullmatch(c) else c for c in cells]


def _continued(
    cells: int, width: int, waiting: deque[str], lines: Iterator[str], taken: list[str]
) -> Iterator[str]:
    """Yields the next lines, up to the one that ends a row of `width` cells, of which the first line has `cells`."""
    while line := waiting.popleft() if waiting else next(lines, ""):
        taken.append(line)
        is_row = line.count("\t") + 1 == width
        if is_row and not cells == 1 < width:
            return
        yield line
        if is_row:
            return


def _quoted_row(line: str, more: Iterator[str]) -> list[str] | None:
    """The cells of a row as `csv` reads them; None if its quotes do not enclose whole cells."""
    try:
        return next(csv.reader(itertools.chain([line], more), delimiter="\t", strict=True))
    except csv.Error:
        return None


def parse_number(text: str, kind: Callable[[str], Number]) -> Number:
    """The `int` or `float` in a text; Python would also take 1_000 and digits of other scripts.

    Raises:
        ValueError: The text is not a number in ASCII digits.
    """
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r:.80} is not a number")
    return kind(text)
