"""Recordings in tables of text: .csv, .tsv and .txt files, and .jsonl files, whose lines are arrays or objects."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
import re
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute as compute
import pyarrow.csv

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import (
    is_number,
    is_time,
    numbers,
    seconds,
    text_seconds,
    unit_of_times,
)
from beam_jobs.jobs.sensors.formats.headers import TOP_ROWS, has_names, is_units
from beam_jobs.jobs.sensors.read_options import ReadOptions, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
from beam_jobs.sources.delimited import BROKEN_QUOTES, DELIMITERS, find_table, split_rows
from beam_jobs.sources.rows import json_row, numbered_lines, opened_text
from beam_jobs.storage.encodings import not_decodable
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

_JSON_NUMBERS = frozenset([type(None), bool, int, float])
_JSON_LABELS = _JSON_NUMBERS | {str}
_JSON_TYPES: dict[type, str] = {str: "text", list: "a list, but a line is a sample", dict: "object"}

# The memory that any table may take in addition to its values.
_MEMORY_OF_A_ROW = 1 << 20

_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))[ \t]*[\r\n]")
_LINE_END = re.compile(rb"[\r\n]")


def _text(data: bytes, options: ReadOptions) -> bytes:
    """The text of a file in UTF-8, unpacked if it is gzipped."""
    source = opened_text(io.BytesIO(data), data.startswith(_GZIP), options.encoding)
    text = io.BytesIO()
    while part := source.read(_PART_BYTES):
        text.write(part)
        check_bytes(text.tell(), options.max_bytes)
    try:
        text.getvalue().decode()
    except UnicodeDecodeError as error:
        raise RejectError(not_decodable(options.encoding, error)) from None
    return text.getvalue()


def _delimiter(text: bytes, choices: str, options: ReadOptions) -> str:
    """The first character that splits the first two rows into equally many cells; else a blank, or the first.

    A character that splits the second row into numbers takes precedence.
    """

    def fit(choice: str) -> int:
        rows: list[list[str]] = []
        with contextlib.suppress(csv.Error, RejectError):  # It may not be the right choice.
            rows += itertools.islice(_rows(text, choice, options), 2)
        widths = {len(row) for row in rows}
        several = max(widths, default=1) > 1
        if len(widths) == 1 and (several or choice == choices[0]):
            numbers = all(map(is_number, _pointed(rows[-1], choice if several else ",")))
            return 2 * numbers + several
        return int(choice == " ")

    return max(choices, key=fit)


def _pointed(row: list[str], delimiter: str) -> list[str]:
    """The cells with points for decimal commas, which only tables not separated by commas have."""
    return row if delimiter == "," else [cell.replace(",", ".") for cell in row]


def _rows(text: bytes, delimiter: str, options: ReadOptions) -> Iterator[list[str]]:
    """Yields the rows that are not blank; a blank as the delimiter stands for several."""
    lines = io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="")
    limit = max(options.max_bytes, _MEMORY_OF_A_ROW) // _MEMORY_OF_A_BYTE
    for row in split_rows(lines, delimiter.strip(" "), limit):
        if row is None:
            raise RejectError(BROKEN_QUOTES)
        yield row


def _open(data: bytes, choices: str, options: ReadOptions) -> tuple[bytes, str]:
    """The rows of a file in UTF-8, and their delimiter; a blank as the last of the choices stands for several."""
    text = _text(data, options)
    if b"\0" in text:  # Python's csv module accepts these since 3.11
        raise ValueError("it contains zero bytes")
    skipped = rb"\A(?:[^\r\n]*(?:\r\n?|\n)){0,%d}" % options.skip_lines
    text = re.sub(skipped, b"", text, count=1)
    above, stated, _ = find_table(text)
    text = text[above:]
    delimiter = options.delimiter or stated or _delimiter(text, choices, options)
    if delimiter == " ":
        text = b"\n".join(b"\t".join(line.split()) for line in text.splitlines())
        delimiter = "\t"
    if delimiter == "\t" and b'"' in text:
        quoted = io.StringIO(newline="")  # with the quotes that Arrow reads
        csv.writer(quoted, "excel-tab").writerows(_rows(text, "\t", options))
        text = quoted.getvalue().encode()
    return text, delimiter


def _read(choices: str, data: bytes, options: ReadOptions) -> Recording:
    """A signal float64 [rows, channels].

    The first rows are understood as `has_names` and `is_units` do. In tables not separated by commas, a
    comma is a decimal point.
    """
    text, delimiter = _open(data, choices, options)
    last = _LINE_END.search(text, len(text.rstrip(b" \t\r\n" + delimiter.encode())))
    has_empty_rows = bool(last and text[last.start() :].strip(b"\r\n"))
    text = text[: last.start()] if last and has_empty_rows else text
    # Every cell but the last ends in this character.
    ends = max(text.count(b"\n"), text.count(b"\r"))
    check_bytes(8 * (1 + text.count(delimiter.encode()) + ends), options.max_bytes)
    top = list(itertools.islice(_rows(text, delimiter, options), TOP_ROWS))
    if not top:
        raise RejectError("the file is empty")
    width, limit = len(top[0]), max(options.max_bytes, _MEMORY_OF_A_ROW)
    check_bytes(_MEMORY_OF_A_COLUMN * width, limit, f"its {width} columns take")
    rows = [_pointed(row, delimiter) for row in top]
    named, note = has_names(rows, options.header)
    # A name is empty where the next row has text.
    pairs = zip(rows[0][1:], rows[1][1:] if named and rows[1:] else (), strict=False)
    title = any(not name.strip() and not is_time(below) for name, below in pairs)
    names = [name.strip() for name in top[title]] if named else []
    names[:1] = [name.lstrip("#% ") or name for name in names[:1]]
    layout = lay_out(names, width, options)
    time, read = layout.time, {*layout.channels, *([] if layout.time is None else [layout.time])}
    units = top[title + 1] if named and is_units(rows[title + 1 :], read) else []
    unit_of_time = units[time] if units and time is not None else ""
    unit, unit_note = unit_of_times(options.time_unit, options.time_column, unit_of_time)
    signals, times, signs = [], [], set[str]()
    texts: dict[str, list[Any]] = {name: [] for name in layout.own_columns}
    for row, cells in _blocks(text, delimiter, width, title + named, bool(units)):
        if delimiter != "," and b"," in text:
            signs |= {
                sign
                for sign, place in itertools.product(",.", layout.channels)
                if compute.any(compute.match_substring(cells[place], sign)).as_py()
            }
            for place in read:
                cells[place] = compute.replace_substring(cells[place], ",", ".")
        channels = [numbers(cells[i], row, layout.titles[i]) for i in layout.channels]
        signals.append(np.stack(channels, 1))
        if time is not None:
            times.append(text_seconds(cells[time], row, unit))
        for name, place in layout.own_columns.items():
            texts[name].append(compute.utf8_trim_whitespace(cells[place]))
    if len(signs) > 1:
        raise RejectError("some of its numbers have decimal commas, others have points")
    signal = np.concatenate(signals)
    # Every line ends in a delimiter.
    has_empty_column = not names and signal.shape[1] > 1 and bool(np.isnan(signal[:, -1]).all())
    has_blank_lines = width == 1 and bool(_BLANK_LINE.search(text.rstrip()))
    notes = [
        note,
        unit_note,
        has_empty_column * "its last column is empty and left out",
        has_empty_rows * "rows without values at its end are left out",
        title * "its first line is left out as a title, because the next one has more names",
        bool(units) * "its second line has no number and was taken for the units of the columns",
        ("," in signs) * "commas are read as decimal points",
        has_blank_lines * "blank lines between its samples are not read; a missing value is NA",
    ]
    return Recording(
        {"signal": signal[:, :-1] if has_empty_column else signal},
        times=np.concatenate(times) if times else None,
        notes=(*layout.notes, *filter(None, notes)),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
        dtype=_DTYPE,
        channels=layout.signal,
        units={"signal": tuple(units[i].strip() for i in layout.channels)} if units else {},
    )


# Columns are separated by commas, or by ;, tabs or | if the first lines are; by tabs; and by tabs, ;, commas
# or | as the first lines are, or by blanks.
read_csv = functools.partial(_read, DELIMITERS["csv"])
read_tsv = functools.partial(_read, DELIMITERS["tsv"])
read_txt = functools.partial(_read, "\t;,| ")


def _blocks(
    text: bytes, delimiter: str, width: int, names: int, units: int
) -> Iterator[tuple[int, list[Any]]]:
    """Yields blocks of the rows below some lines of names and units: columns of Arrow strings.

    With them comes the number of the first row; that below the names is 1.
    """
    columns, row = [str(place) for place in range(width)], 1 - names
    try:
        for block in pyarrow.csv.open_csv(
            pyarrow.BufferReader(text),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 64 * width), column_names=columns
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(columns, pyarrow.string())),
        ):
            above = min(max(1 + units - row, 0), block.num_rows)
            yield row + above, block.slice(above).columns
            row += block.num_rows
    except pyarrow.ArrowInvalid as error:
        ragged = _ARROW_RAGGED.search(str(error))
        if not ragged:
            raise
        raise RejectError(
            f"row {int(ragged[1]) - names} has {ragged[2]} values, not {width}; --skip_lines leaves out lines above "
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
    named = isinstance(first[1], dict)
    top = list(first[1].values()) if named else first[1]
    kinds = ["" if type(value) in _JSON_NUMBERS else _JSON_TYPES[type(value)] for value in top]
    layout = lay_out(list(first[1]) if named else [], len(top), options, kinds)
    unit, note = unit_of_times(options.time_unit, options.time_column)
    checks = [(layout.titles[i], i, _JSON_NUMBERS, "a number") for i in layout.channels]
    checks += [(*own, _JSON_LABELS, "text or a number") for own in layout.own_columns.items()]
    signals, times = [], []
    # The code of each value, and those of all lines. Python takes True for 1.
    codes: dict[str, dict[tuple[bool, Any], int]] = {name: {} for name in layout.own_columns}
    columns: dict[str, array[int]] = {name: array("q") for name in layout.own_columns}
    lines = itertools.chain([first], lines)
    like = dict.fromkeys(first[1]) if named else top
    while block := list(itertools.islice(lines, _BLOCK_LINES)):
        cells = list(zip(*(_row(number, values, like) for number, values in block), strict=True))
        for name, place, types, expected in checks:
            if not types.issuperset(map(type, cells[place])):
                at, value = next((i, v) for i, v in enumerate(cells[place]) if type(v) not in types)
                raise RejectError(
                    f"line {block[at][0]}: {value!r:.80} of {name!r} is not {expected}"
                )
        # None becomes NaN.
        signals.append(np.stack([np.array(cells[i], np.float64) for i in layout.channels], 1))
        if layout.time is not None:
            ticks = cells[layout.time]
            if _JSON_NUMBERS.issuperset(map(type, ticks)):
                exact = np.array(ticks, np.float64 if None in ticks else None)
                times.append(seconds(exact, unit))
            else:
                times.append(text_seconds(pyarrow.array(map(str, ticks)), block[0][0], unit))
        for name, place in layout.own_columns.items():
            values = ((type(value) is bool, value) for value in cells[place])
            code_of = codes[name]
            columns[name].extend(code_of.setdefault(value, len(code_of)) for value in values)
    return Recording(
        {"signal": np.concatenate(signals)},
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
    """Yields the number of each line that is not blank, and its object or list, of one value for a single value."""
    for number, line in numbered_lines(io.BytesIO(text)):
        _, value, error = json_row(number, line, types=object)
        if error:
            raise ValueError(f"line {number}: {error}")
        yield number, value if isinstance(value, (dict, list)) else [value]


def _row(number: int, values: Any, like: Any) -> list[Any]:
    """The values of a line in the order of another line, with None for names that it lacks."""
    same_type = type(values) is type(like)
    row = [*(like | values).values()] if same_type and isinstance(values, dict) else values
    if not same_type or len(row) != len(like):
        raise RejectError(f"line {number} has other columns than the first")
    return row
