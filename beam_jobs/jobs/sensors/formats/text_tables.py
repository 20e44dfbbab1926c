"""Recordings in tables of text: .csv, .tsv and .txt files, and .jsonl files, whose lines are arrays or objects."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import math
import re
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute
import pyarrow.csv

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import (
    decimal_signs,
    is_number,
    is_time,
    numbers,
    seconds,
    text_seconds,
    unit_of_times,
    with_points,
)
from beam_jobs.jobs.sensors.formats.headers import TOP_ROWS, has_names, is_units
from beam_jobs.jobs.sensors.read_options import Layout, ReadOptions, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
from beam_jobs.sources.delimited import BROKEN_QUOTES, DELIMITERS, find_table, split_rows
from beam_jobs.sources.rows import numbered_lines, opened_text, parse_json
from beam_jobs.storage.limits import check_bytes

# Text states no dtype; models take this one.
_DTYPE = "float32"

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

# Lines of JSON in memory as Python objects at a time.
_BLOCK_LINES = 4096

_JSON_TYPES: dict[type, str] = {str: "text", list: "a list, but a line is a sample", dict: "object"}

# The memory that any table may take in addition to its values.
_MEMORY_OF_A_ROW = 1 << 20

_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))[ \t]*[\r\n]")
_ANY_LINE = re.compile(rb"[^\r\n]")

# Remarks.
_BLANK_LINES = "blank lines between its samples are not read; a missing value is NA"
_COMMAS = "commas are read as decimal points"
_EMPTY_COLUMN = "its last column is empty and left out"
_TITLE = "its first line is a title of columns and left out, because the next one has more names"
_UNITS = "its second line has no number and was taken for the units of the columns"


def _text(data: bytes, options: ReadOptions) -> bytes:
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
    return _delimited(data, "\t;,| ", options)


def _delimiter(text: bytes, choices: str, options: ReadOptions) -> str:
    """The first character that splits the first two rows into equally many cells; else a blank, or the first.

    A character that splits the second row into numbers takes precedence.
    """
    several = ""
    for choice in choices:
        if choice != choices[0] and choice.encode() not in text:
            continue
        rows: list[list[str]] = []
        with contextlib.suppress(csv.Error, RejectError):  # It may not be the right choice.
            rows += (row for row, _ in itertools.islice(_rows(text, choice, options), 2))
        if len({len(row) for row in rows}) == 1 and (choice == choices[0] or len(rows[0]) > 1):
            mark = choice if len(rows[0]) > 1 else ","
            if all(is_number(_pointed(cell, mark)) for cell in rows[-1]):
                return choice
            several += choice * (len(rows[0]) > 1)
    return (several + " " * (" " in choices) + choices)[0]


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


def _open(data: bytes, choices: str, options: ReadOptions) -> tuple[bytes, str]:
    """The rows of a file in UTF-8, and their delimiter; a blank as the last of the choices stands for several."""
    text = _text(data, options)
    if b"\0" in text:  # Python's csv module accepts these since 3.11
        raise ValueError("it contains zero bytes")
    if options.skip_lines:
        text = re.sub(rb"\A(?:[^\r\n]*(?:\r\n?|\n)){0,%d}" % options.skip_lines, b"", text)
    above, stated, _ = find_table(text)
    text = text[above:]
    delimiter = options.delimiter or stated or _delimiter(text, choices, options)
    if delimiter == " ":
        text = b"\n".join(b"\t".join(line.split()) for line in text.splitlines())
        delimiter = "\t"
    if delimiter == "\t" and b'"' in text:
        quoted = io.StringIO(newline="")  # with the quotes that Arrow reads
        csv.writer(quoted, "excel-tab").writerows(row for row, _ in _rows(text, "\t", options))
        text = quoted.getvalue().encode()
    return text, delimiter


def _delimited(data: bytes, choices: str, options: ReadOptions) -> Recording:
    """A signal float64 [rows, channels].

    The first rows are understood as `has_names` and `is_units` do. In tables not separated by commas, a
    comma is a decimal point.
    """
    text, delimiter = _open(data, choices, options)
    # Every cell but the last ends in this character.
    ends = max(text.count(b"\n"), text.count(b"\r"))
    check_bytes(8 * (1 + text.count(delimiter.encode()) + ends), options.max_bytes)
    top = list(itertools.islice(_rows(text, delimiter, options), TOP_ROWS))
    if not top:
        raise RejectError("the file is empty")
    width, limit = len(top[0][0]), max(options.max_bytes, _MEMORY_OF_A_ROW)
    check_bytes(_MEMORY_OF_A_COLUMN * width, limit, f"its {width} columns take")
    rows = [[_pointed(cell, delimiter) for cell in row] for row, _ in top]
    named, note = has_names(rows, options.header)
    # A name is empty where the next row has text.
    pairs = zip(rows[0][1:], rows[1][1:] if named and rows[1:] else (), strict=False)
    title = any(not name.strip() and not is_time(below) for name, below in pairs)
    top, rows = top[title:], rows[title:]
    names = [name.strip() for name in top[0][0]] if named else []
    names[:1] = [name.lstrip("#% ") or name for name in names[:1]]
    layout = lay_out(names, width, options)
    places, time, titles = layout.channels, layout.time, layout.titles
    read = {*places, *([] if time is None else [time])}
    units = rows[1] if named and is_units(rows[1:], read) else []
    times_are = [] if time is None or not named else [names[time], *units[time : time + 1]]
    time_unit, unit_note = unit_of_times(options.time_unit, *times_are)
    blocks, times = [np.empty((0, len(places)))], [np.empty(0)]
    texts: dict[str, list[Any]] = {name: [] for name in layout.own_columns}
    above = named + bool(units)
    start = top[above - 1][1] if above else 0
    has_commas, signs = delimiter != "," and b"," in text, set[str]()
    for row, cells in _blocks(text, start, delimiter, width, 1 + bool(units)):
        if has_commas:
            signs |= set().union(*(decimal_signs(cells[place]) for place in places))
            cells = [with_points(column) if i in read else column for i, column in enumerate(cells)]
        blocks.append(np.stack([numbers(cells[i], row, titles[i]) for i in places], 1))
        if time is not None:
            times.append(text_seconds(cells[time], row, time_unit))
        for name, place in layout.own_columns.items():
            texts[name].append(pyarrow.compute.utf8_trim_whitespace(cells[place]))
    if len(signs) > 1:
        raise RejectError("some of its numbers have decimal commas, others have points")
    signal = np.concatenate(blocks)
    notes = [*layout.notes, note, unit_note]
    if not names and len(places) > 1 and np.isnan(signal[:, -1]).all():
        signal = signal[:, :-1]  # every line ends in a delimiter
        notes.append(_EMPTY_COLUMN)
    notes += [_TITLE] * title + [_UNITS] * bool(units) + [_COMMAS] * ("," in signs)
    notes += [_BLANK_LINES] if width == 1 and _BLANK_LINE.search(text.rstrip(), start) else []
    return Recording(
        {"signal": signal},
        times=None if time is None else np.concatenate(times),
        notes=tuple(filter(None, notes)),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
        dtype=_DTYPE,
        channels=layout.signal,
        units={"signal": tuple(units[i].strip() for i in places)} if units else {},
    )


def _blocks(
    text: bytes, start: int, delimiter: str, width: int, row: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yields blocks of the rows that begin at a byte: the number of the first, and columns of Arrow strings.

    The first row has the number `row`.
    """
    if not _ANY_LINE.search(text, start):
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
        raise RejectError(
            f"row {int(ragged[1]) - 1 + first} has {ragged[2]} values, not {width}; --skip_lines leaves out lines above "
            "the table"
        ) from None


def read_jsonl(data: bytes, options: ReadOptions) -> Recording:
    """A signal float64 [lines, channels]; null and missing names are NaN, true is 1.

    The first line states the columns; those in which it has neither a number nor null are not channels.
    """
    text = _text(data, options)
    check_bytes(8 * (1 + text.count(b",") + text.count(b"\n")), options.max_bytes)
    lines = _lines(text)
    first = next(lines, None)
    if first is None:
        raise RejectError("the file is empty")
    names = list(first[1]) if isinstance(first[1], dict) else []
    top = _cells(first[1], names)
    kinds = ["" if _is_json_number(value) else _JSON_TYPES[type(value)] for value in top]
    layout = lay_out(names, len(top), options, kinds)
    unit, note = unit_of_times(options.time_unit, options.time_column)
    signal, times = [], []
    # The code of each value, and those of all lines. Python takes True for 1.
    codes: dict[str, dict[tuple[bool, Any], int]] = {name: {} for name in layout.own_columns}
    columns: dict[str, array[int]] = {name: array("q") for name in layout.own_columns}
    lines = itertools.chain([first], lines)
    while block := list(itertools.islice(lines, _BLOCK_LINES)):
        rows = [_row(line, names, len(top), layout) for line in block]
        # None becomes NaN.
        signal.append(np.array([[row[i] for i in layout.channels] for row in rows], np.float64))
        if layout.time is not None:
            cells = [row[layout.time] for row in rows]
            times.append(_json_seconds(cells, block[0][0], unit))
        for name, place in layout.own_columns.items():
            values = ((isinstance(row[place], bool), row[place]) for row in rows)
            code_of = codes[name]
            columns[name].extend(code_of.setdefault(value, len(code_of)) for value in values)
    return Recording(
        {"signal": np.concatenate(signal)},
        times=np.concatenate(times) if times else None,
        notes=(*layout.notes, *filter(None, [note])),
        columns={
            name: Column([value for _, value in codes[name]], np.array(column, np.int64))
            for name, column in columns.items()
        },
        dtype=_DTYPE,
        channels=layout.signal,
    )


def _lines(text: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each line that is not blank."""
    for number, line in numbered_lines(io.BytesIO(text)):
        if line is None:
            raise RejectError(f"line {number} is too long")
        try:
            yield number, parse_json(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {number} is not JSON: {error}") from None


def _row(line: tuple[int, Any], names: list[str], width: int, layout: Layout) -> list[Any]:
    """The values of a line, checked."""
    number, values = line
    row = _cells(values, names)
    if isinstance(values, dict) != bool(names) or len(row) != width:
        raise RejectError(f"line {number} has other columns than the first")
    for place in layout.channels:
        if not _is_json_number(row[place]):
            column = f" of {names[place]!r}" if names else ""
            raise RejectError(f"line {number}: {row[place]!r:.80}{column} is not a number")
    for name, place in layout.own_columns.items():
        if not isinstance(row[place], str) and not _is_json_number(row[place]):
            raise RejectError(
                f"line {number}: {row[place]!r:.80} of {name!r} is not text or a number"
            )
    return row


def _cells(values: Any, names: list[str]) -> list[Any]:
    """The values of a line in the order of the names; unnamed ones follow."""
    if isinstance(values, dict):
        others = values.keys() - set(names)
        return [values.get(name) for name in names] + [values[name] for name in others]
    return values if isinstance(values, list) else [values]


def _is_json_number(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float))


def _json_seconds(times: list[Any], row: int, unit: str) -> np.ndarray:
    if all(map(_is_json_number, times)):
        ticks = np.array([math.nan if time is None else time for time in times])
        return seconds(ticks, unit)
    return text_seconds(pyarrow.array(map(str, times)), row, unit)
