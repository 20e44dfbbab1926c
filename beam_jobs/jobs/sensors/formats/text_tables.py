"""Recordings in tables of text: .csv, .tsv and .txt files."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute
import pyarrow.csv

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import (
    decimal_signs,
    is_number,
    numbers,
    text_seconds,
    unit_of_times,
    with_points,
)
from beam_jobs.jobs.sensors.formats.headers import TOP_ROWS, find_header, is_units
from beam_jobs.jobs.sensors.read_options import ReadOptions, counters, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
from beam_jobs.sources.delimited import BROKEN_QUOTES, Head, split_rows
from beam_jobs.sources.rows import DELIMITERS, opened_text
from beam_jobs.storage.limits import check_bytes

# Text states no dtype; models take this one.
DTYPE = "float32"

_GZIP = b"\x1f\x8b"

# Bytes that are unpacked at a time.
_PART_BYTES = 1 << 20

# Bytes in memory as text at a time. A row cannot be longer; wide tables get more.
_BLOCK_BYTES = 1 << 22

# Arrow's message. A handler of invalid rows would fail, with a traceback, on rows that are not UTF-8.
_ARROW_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")

# The memory for a byte of a row while its cells are objects of Python, and for a column of Arrow: a table of
# 50,000 columns and one row took 508 MB.
_MEMORY_OF_A_BYTE, _MEMORY_OF_A_COLUMN = 128, 10_000

# The memory that any table may take in addition to its values.
_MEMORY_OF_A_ROW = 1 << 20

_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))[ \t]*[\r\n]")
_LINE_END, _VALUE = re.compile(rb"\r\n?|\n"), re.compile(rb"\S")

# Remarks.
_COMMENTS = "lines above the table that begin with # or % are comments"
_BLANK_LINES = "blank lines between its samples are not read; a missing value is NA"
_COMMAS = "commas are read as decimal points"
_EMPTY_COLUMN = "its last column is empty and left out"
_EMPTY_ROWS = "rows at its end without a value are left out"
_UNITS = "its second line has no number and was taken for the units of the columns"


def text_of(data: bytes, options: ReadOptions) -> bytes:
    """The text of a file in UTF-8 without a byte order mark, unpacked if it is gzipped."""
    source = opened_text(io.BytesIO(data), data.startswith(_GZIP), options.encoding)
    text = io.BytesIO()
    while part := source.read(_PART_BYTES):
        text.write(part)
        check_bytes(text.tell(), options.max_bytes)
    return text.getvalue().removeprefix(codecs.BOM_UTF8)


def read_csv(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by commas, or by ;, tabs or | if its first lines are."""
    return _delimited(data, DELIMITERS["csv"], options)


def read_tsv(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by tabs."""
    return _delimited(data, DELIMITERS["tsv"], options)


def read_txt(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by tabs, ;, commas or | as its first lines are, or by blanks."""
    recording = _delimited(data, "\t;,| ", options)
    if not len(recording.arrays["signal"]):
        raise RejectError("it has no row of numbers")  # Any text of one line looks like a header.
    return recording


def _delimiter(text: bytes, choices: str, options: ReadOptions) -> str:
    """The first character that splits the first two rows into equally many cells.

    One that splits the second row into numbers takes precedence. Without one, it is a character in both
    rows, or a blank if that is a choice, or the first choice.
    """
    even = both = ""
    for choice in choices:
        if choice != choices[0] and choice.encode() not in text:
            continue
        rows: list[list[str]] = []
        with contextlib.suppress(csv.Error, RejectError):  # It may not be the right choice.
            rows += (row for row, _ in itertools.islice(_rows(text, choice, options), 2))
        counts = {len(row) for row in rows}
        if len(counts) == 1 and (choice == choices[0] or counts != {1}):
            mark = choice if len(rows[0]) > 1 else ","
            if all(is_number(_pointed(cell, mark)) for cell in rows[-1]):
                return choice
            even += choice * (counts != {1})
        both += choice * (min(counts, default=1) > 1)
    return (even + both + " " * (" " in choices) + choices)[0]


def _pointed(cell: str, delimiter: str) -> str:
    """A cell with a point for its decimal comma, if cells have such commas."""
    return cell if delimiter == "," or "." in cell else cell.replace(",", ".")


def _rows(text: bytes, delimiter: str, options: ReadOptions) -> Iterator[tuple[list[str], int]]:
    """Yields the rows that are not blank, and the bytes up to the end of each."""
    lines = io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="")
    size = at = 0
    limit = max(options.max_bytes, _MEMORY_OF_A_ROW)

    def checked_lines() -> Iterator[str]:
        nonlocal size, at
        for line in lines:
            size += len(line)  # Cells in quotes may hold line breaks.
            check_bytes(_MEMORY_OF_A_BYTE * size, limit, "a row of its table takes")
            at += len(line) if line.isascii() else len(line.encode())
            yield line

    try:
        blanks = map(str.split, checked_lines())
        for row in blanks if delimiter == " " else split_rows(checked_lines(), delimiter):
            size = 0
            if row is None:
                raise RejectError(BROKEN_QUOTES)
            if row:
                yield row, at
    except UnicodeDecodeError:
        raise RejectError(
            "its text is not UTF-8: name its encoding with --text_encoding, such as cp1252"
        ) from None


class _Table(NamedTuple):
    """A table of text.

    Attributes:
        text: Its rows in UTF-8, without those at the end that have no value.
        delimiter: The character between cells.
        comment: The names of columns in a comment above it; empty without.
        notes: Remarks about the lines that are left out.
    """

    text: bytes
    delimiter: str
    comment: list[str]
    notes: list[str]


def _open(data: bytes, choices: str, options: ReadOptions) -> _Table:
    """The table in a file; a blank as delimiter, or as the last of the choices, stands for several."""
    text = text_of(data, options)
    if b"\0" in text:  # Python's csv module accepts these since 3.11
        raise ValueError("it contains zero bytes")
    if options.skip_lines:
        text = re.sub(rb"\A(?:[^\r\n]*(?:\r\n?|\n)){0,%d}" % options.skip_lines, b"", text)
    head = Head.of(text)
    text = text[head.size :]
    delimiter = options.delimiter or head.delimiter or _delimiter(text, choices, options)
    comment, notes = head.names(delimiter), [_COMMENTS] if head.comment else []
    if delimiter == " ":
        text = b"\n".join(b"\t".join(line.split()) for line in text.splitlines())
        delimiter = "\t"
    if delimiter == "\t" and b'"' in text:
        text = _with_quotes(text, options)
    mark = delimiter.encode()
    values = len(text.rstrip(mark + b" \t\r\n"))
    line_end = _LINE_END.search(text, values)
    end = 0 if not values else line_end.end() if line_end else len(text)
    notes += [_EMPTY_ROWS] if mark in text[end:] else []
    return _Table(text[:end], delimiter, comment, notes)


def _with_quotes(text: bytes, options: ReadOptions) -> bytes:
    """A table with tabs whose quotes are those that Arrow reads."""
    quoted = io.StringIO(newline="")
    csv.writer(quoted, "excel-tab").writerows(row for row, _ in _rows(text, "\t", options))
    return quoted.getvalue().encode()


def _delimited(data: bytes, choices: str, options: ReadOptions) -> Recording:
    """A signal float64 [rows, channels].

    The first rows are understood as `find_header` and `is_units` do. In tables not separated by commas, a
    comma is a decimal point.
    """
    text, delimiter, comment, notes = _open(data, choices, options)
    # Every cell but the last ends in this character.
    ends = max(text.count(b"\n"), text.count(b"\r"))
    check_bytes(8 * (1 + text.count(delimiter.encode()) + ends), options.max_bytes)
    top = list(itertools.islice(_rows(text, delimiter, options), TOP_ROWS))
    if not top:
        raise RejectError("the file is empty")
    width, limit = len(top[0][0]), max(options.max_bytes, _MEMORY_OF_A_ROW)
    check_bytes(_MEMORY_OF_A_COLUMN * width, limit, f"its {width} columns take")
    rows = [[_pointed(cell, delimiter) for cell in row] for row, _ in top]
    where, note = find_header(rows, comment, options.header)
    names = [name.strip() for name in {"row": top[0][0], "comment": comment, "": []}[where]]
    above = int(where == "row")
    # Every line but the first ends in a delimiter.
    lasts = {row[-1].strip() if len(row) == width + 1 else None for row in rows[1:]}
    extra = bool(above) and lasts == {""}
    names += [""] * extra
    width += extra
    layout = lay_out(names, width, options)
    places, time, titles = layout.channels, layout.time, layout.titles
    read = {*places, *([] if time is None else [time])}
    units = rows[above] if names and is_units(rows[above:], read) else []
    stated = () if time is None or not names else (names[time], *units[time : time + 1])
    time_unit, unit_note = unit_of_times(options.time_unit, *stated)
    blocks, times = [np.empty((0, len(places)))], [np.empty(0)]
    texts: dict[str, list[Any]] = {name: [] for name in layout.own_columns}
    above += bool(units)
    start = top[above - 1][1] if above else 0
    has_commas, signs = delimiter != "," and b"," in text, dict[str, str]()
    for row, cells in _blocks(text, start, delimiter, width, 1 + bool(units)):
        if has_commas:
            for place in places:
                signs |= dict.fromkeys(decimal_signs(cells[place]), titles[place])
            cells = [with_points(column) if i in read else column for i, column in enumerate(cells)]
        if extra and pyarrow.compute.unique(cells[-1]).to_pylist() != [""]:
            raise RejectError(f"its rows have {width} values, but its first line {width - 1}")
        blocks.append(np.stack([numbers(cells[i], row, titles[i]) for i in places], 1))
        if time is not None:
            times.append(text_seconds(cells[time], row, time_unit))
        for name, place in layout.own_columns.items():
            texts[name].append(pyarrow.compute.utf8_trim_whitespace(cells[place]))
    if len(signs) > 1:
        raise RejectError(
            f"column {signs[',']!r} has decimal commas, and column {signs['.']!r} has points: expected one decimal "
            "sign in a file"
        )
    signal = np.concatenate(blocks)
    if not names and len(places) > 1 and np.isnan(signal[:, -1]).all():
        signal = signal[:, :-1]  # every line ends in a delimiter
        notes.append(_EMPTY_COLUMN)
    commas = "," in signs
    notes += [note, unit_note, _UNITS if units else "", _COMMAS if commas else "", *layout.notes]
    notes += [_BLANK_LINES] if width == 1 and _BLANK_LINE.search(text, start) else []
    notes += counters(signal, [titles[place] for place in places])
    return Recording(
        {"signal": signal},
        times=None if time is None else np.concatenate(times),
        notes=tuple(filter(None, notes)),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
        dtype=DTYPE,
        channels=layout.signal,
        units={"signal": tuple(units[i].strip() for i in places)} if units else {},
    )


def _blocks(
    text: bytes, start: int, delimiter: str, width: int, row: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yields blocks of the rows that begin at a byte: the number of the first, and columns of Arrow strings.

    The first row has the number `row`.
    """
    if not _VALUE.search(text, start):
        return
    names, first = [str(place) for place in range(width)], row
    try:
        for block in pyarrow.csv.open_csv(
            pyarrow.BufferReader(pyarrow.py_buffer(text).slice(start)),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 64 * width), column_names=names
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        ):
            yield row, block.columns
            row += block.num_rows
    except pyarrow.ArrowInvalid as error:
        ragged = _ARROW_RAGGED.search(str(error))
        if not ragged:
            raise
        number, values = int(ragged[1]) - 1 + first, int(ragged[2])
        cure = "; --skip_lines leaves out lines above the table" if number < TOP_ROWS else ""
        if delimiter == "," and values == 2 * width:
            cure += "; are these decimal commas? Then separate the columns with ; or tabs"
        raise RejectError(f"row {number} has {values} values, not {width}{cure}") from None
