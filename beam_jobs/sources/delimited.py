"""The beginning and the quotes of .csv, .tsv and .txt tables."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator
from typing import TextIO, cast

# The characters between columns, the most usual first.
DELIMITERS = {"csv": ",;\t|", "tsv": "\t"}

# The first bytes of a file, in which lines above the table are recognised.
HEAD_BYTES = 1 << 16

BROKEN_QUOTES = (
    'text follows the end of a cell in quotes: double the quotes in it, as in "a ""b"" c"'
)

# `sep=;` as Excel writes it; lines that are empty or begin with # or %; and the line below them.
_HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?(?:"?sep=([^\r\n])"?[ \t]*(?:\r\n?|\n))?'
    rb"(?:([ \t]*[#%][^\r\n]*)?(?:\r\n?|\n))*([^\r\n]*)",
    re.IGNORECASE,
)

# A cell in quotes.
_QUOTED = re.compile(r'"(?:[^"]|"")*"')


def find_table(text: bytes) -> tuple[int, str, str]:
    """The bytes above a table, the delimiter that they state or "", and the first line of the table.

    A comment right above it is the first line if it has as many delimiters as the next one.

    Args:
        text: A text in UTF-8, or its first `HEAD_BYTES`.
    """
    found = cast(re.Match[bytes], _HEAD.match(text))
    stated, comment, line = (part or b"" for part in found.groups())
    start, bare = found.start(3), re.sub(rb'"[^"]*"', b"", line)
    if any(comment.count(mark) == bare.count(mark) > 0 for mark in (b",", b";", b"\t", b"|")):
        start, line = found.start(2), comment
    return start, stated.decode("utf-8", "replace"), line.decode("utf-8", "replace")


def split_rows(text: TextIO, delimiter: str, limit: int) -> Iterator[list[str] | None]:
    """Yields the cells of each row that is not blank; None for a row with broken quotes.

    With tabs, a quote counts only if it encloses a whole cell, because most such tables quote nothing.
    With other delimiters, or if the first line begins with a quote, quotes are those of `csv`, and blanks
    after delimiters are dropped if all names but the first begin with one.

    Args:
        delimiter: The character between cells; "" for any number of blanks.
        limit: The most characters of a row; quoted cells may have line breaks.

    Raises:
        csv.Error: A row is longer, or the table ends within quotes.
    """
    room = limit  # Characters that the current row may still have.

    def lines() -> Iterator[str]:
        nonlocal room
        while line := text.readline(limit):
            room -= len(line)
            if room <= 0:
                raise csv.Error(f"a row is longer than {limit} characters")
            yield line

    for row in _split(lines(), delimiter) if delimiter else map(str.split, lines()):
        room = limit
        if row != []:
            yield row


def _split(lines: Iterator[str], delimiter: str) -> Iterator[list[str] | None]:
    first = next((line for line in lines if line.strip("\r\n")), "")
    all_lines = itertools.chain([first], lines)
    if delimiter == "\t" and not first.startswith('"'):
        yield from _tabbed_rows(all_lines, first.count("\t") + 1)
        return
    skips = [name[:1] == " " for name in first.split(delimiter)[1:]]
    rows = csv.reader(
        all_lines, delimiter=delimiter, skipinitialspace=any(skips) and all(skips), strict=True
    )
    while True:
        try:
            yield from rows
            return
        except csv.Error as error:
            if "unexpected end" in str(error):
                raise csv.Error("it ends within quotes") from None
            if "expected after" not in str(error):
                raise
        yield None


def _tabbed_rows(lines: Iterator[str], width: int) -> Iterator[list[str] | None]:
    """Yields rows of `width` cells; a cell in quotes may have several lines that are not rows themselves."""
    held = ""
    while row := held or next(lines, ""):
        held, cells = "", row.rstrip("\r\n").split("\t")
        if '"' not in row:
            if cells != [""]:
                yield cells
            continue
        if any(c[:1] == '"' and not _QUOTED.fullmatch(c) for c in cells) or len(cells) > width:
            while (
                row.count('"') % 2 and (held := next(lines, "")).count("\t") + 1 != width and held
            ):
                row, held = row + held, ""
            try:
                quoted = next(csv.reader(row.splitlines(True), delimiter="\t", strict=True))
            except csv.Error:
                quoted = []
            if len(quoted) == width or len(row.splitlines()) > 1:
                yield quoted if len(quoted) == width else None
                continue
        yield [c[1:-1].replace('""', '"') if _QUOTED.fullmatch(c) else c for c in cells]
