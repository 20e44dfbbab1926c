"""Recordings in tables of text: .csv, .tsv and .txt files, and .jsonl files, whose lines are arrays or objects."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from array import array
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import pyarrow.compute
import pyarrow.csv

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import (
    is_number,
    is_time,
    numbers,
    seconds,
    text_seconds,
    with_points,
)
from beam_jobs.jobs.sensors.read_options import Layout, ReadOptions, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
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

# The memory that any table may take in addition to its values.
_MEMORY_OF_A_ROW = 1 << 20

_COMMENTS = re.compile(rb"\A(?:[ \t]*[#%][^\r\n]*[\r\n]+)+")


def _text(data: bytes, options: ReadOptions) -> bytes:
    """The text of a table in UTF-8, unpacked if it is gzipped."""
    source = opened_text(io.BytesIO(data), data.startswith(_GZIP), options.encoding)
    text = io.BytesIO()
    while part := source.read(_PART_BYTES):
        text.write(part)
        check_bytes(text.tell(), options.max_bytes)
    return text.getvalue()


def read_csv(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by commas, or by ; or tabs if its first lines are."""
    text = _text(data, options)
    return _delimited(text, options.delimiter or _delimiter(text, ",;\t", options) or ",", options)


def read_tsv(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by tabs."""
    return _delimited(_text(data, options), options.delimiter or "\t", options)


def read_txt(data: bytes, options: ReadOptions) -> Recording:
    """A table whose columns are separated by tabs, ; or commas as its first lines are, or by spaces.

    Lines before it that begin with # or % are comments.
    """
    text = _COMMENTS.sub(b"", _text(data, options))
    delimiter = options.delimiter or _delimiter(text, "\t;,", options)
    if not delimiter:
        text = b"\n".join(b"\t".join(line.split()) for line in text.splitlines())
        delimiter = "\t"
    recording = _delimited(text, delimiter, options)
    if not len(recording.arrays["signal"]):
        raise RejectError("it has no row of numbers")  # Any text of one line looks like a header.
    return recording


def _delimiter(text: bytes, choices: str, options: ReadOptions) -> str:
    """The first character that splits the first two rows into equally many cells; or "".

    A character that splits the second row into numbers takes precedence.
    """
    several = ""
    for choice in choices:
        least = 1 if choice == choices[0] else 2
        if least == 2 and choice.encode() not in text:
            continue
        rows = list(itertools.islice(_rows(text, choice, options), 2))
        if len({len(row) for row in rows}) == 1 and len(rows[0]) >= least:
            if all(is_number(_with_point(cell) if choice == ";" else cell) for cell in rows[-1]):
                return choice
            several += choice * (len(rows[0]) > 1)
    return several[:1]


def _with_point(cell: str) -> str:
    return cell if "." in cell else cell.replace(",", ".")


def _rows(text: bytes, delimiter: str, options: ReadOptions) -> Iterator[list[str]]:
    """Yields the rows that are not blank."""
    lines = io.TextIOWrapper(io.BytesIO(text), "utf-8-sig", newline="")
    size, limit = 0, max(options.max_bytes, _MEMORY_OF_A_ROW)

    def checked_lines() -> Iterator[str]:
        nonlocal size
        for line in lines:
            size += len(line)  # Cells in quotes may hold line breaks.
            check_bytes(_MEMORY_OF_A_BYTE * size, limit, "a row of its table takes")
            yield line

    try:
        for row in csv.reader(checked_lines(), delimiter=delimiter):
            size = 0
            if row:
                yield row
    except UnicodeDecodeError:
        raise RejectError(
            "its text is not UTF-8: name its encoding with --text_encoding, such as cp1252"
        ) from None


def _delimited(text: bytes, delimiter: str, options: ReadOptions) -> Recording:
    """A signal float64 [rows, channels].

    The first row names the columns, unless all of its cells are numbers. If the next has none, and the
    one after it has some, it has the units of the columns. In tables separated by ;, a comma is a
    decimal point.
    """
    # Every cell but the last ends in this character.
    ends = max(text.count(b"\n"), text.count(b"\r"))
    check_bytes(8 * (1 + text.count(delimiter.encode()) + ends), options.max_bytes)
    if b"\0" in text:  # Python's csv module accepts these since 3.11
        raise ValueError("it contains zero bytes")
    top = list(itertools.islice(_rows(text, delimiter, options), 3))
    if not top:
        raise RejectError("the file is empty")
    width, limit = len(top[0]), max(options.max_bytes, _MEMORY_OF_A_ROW)
    check_bytes(_MEMORY_OF_A_COLUMN * width, limit, f"its {width} columns take")
    point = _with_point if delimiter == ";" else str
    has_names = not all(is_number(point(cell)) for cell in top[0])
    names = [name.strip() for name in top[0]] if has_names else []
    layout = lay_out(names, width, options)
    places, time = layout.channels, layout.time
    read = {*places, *([] if time is None else [time])}
    has_units = has_names and _is_units([list(map(point, row)) for row in top[1:]], read)
    blocks, times = [np.empty((0, len(places)))], [np.empty(0)]
    texts: dict[str, list[Any]] = {name: [] for name in layout.own_columns}
    for row, cells in _blocks(text, delimiter, width, has_names, has_units):
        if delimiter == ";":
            cells = [with_points(column) if i in read else column for i, column in enumerate(cells)]
        columns = [numbers(cells[i], row, names[i] if names else None) for i in places]
        blocks.append(np.stack(columns, 1))
        if time is not None:
            times.append(text_seconds(cells[time], row, options.time_unit))
        for name, place in layout.own_columns.items():
            texts[name].append(pyarrow.compute.utf8_trim_whitespace(cells[place]))
    signal = np.concatenate(blocks)
    if not names and len(places) > 1 and np.isnan(signal[:, -1]).all():
        signal = signal[:, :-1]  # every line ends in a delimiter
    units = f"its second line has no number and was taken for units: {top[1]}" if has_units else ""
    return Recording(
        {"signal": signal},
        times=None if time is None else np.concatenate(times),
        notes=(*layout.notes, *filter(None, [units])),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
        dtype=_DTYPE,
        channels=layout.signal,
    )


def _is_units(rows: Sequence[Sequence[str]], places: Set[int]) -> bool:
    """Whether the first of two rows below a header has the units of the columns at some places."""
    if len(rows) < 2 or any(len(row) <= max(places) for row in rows):
        return False
    units, values = ([row[place] for place in places] for row in rows)
    stated = [cell for cell in units if cell.strip()]
    return (
        bool(stated) and not any(map(is_time, stated)) and any(map(is_number, filter(None, values)))
    )


def _blocks(
    text: bytes, delimiter: str, width: int, header: bool, units: bool
) -> Iterator[tuple[int, list[Any]]]:
    """Yields blocks of rows below the header: the first row's number, and columns of Arrow strings."""
    names = [str(place) for place in range(width)]
    row, above = 1 - header, header + units
    try:
        for block in pyarrow.csv.open_csv(
            pyarrow.BufferReader(text),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 64 * width), column_names=names
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string())),
        ):
            skipped = min(above, block.num_rows)
            yield row + skipped, block.slice(skipped).columns
            row, above = row + block.num_rows, above - skipped
    except pyarrow.ArrowInvalid as error:
        ragged = _ARROW_RAGGED.search(str(error))
        if not ragged:
            raise
        number, values = int(ragged[1]) - header, ragged[2]
        raise RejectError(f"row {number} has {values} values, not {width}") from None


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
    layout = lay_out(names, len(top), options, lambda place: _is_json_number(top[place]))
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
            times.append(_json_seconds(cells, block[0][0], options.time_unit))
        for name, place in layout.own_columns.items():
            values = ((isinstance(row[place], bool), row[place]) for row in rows)
            code_of = codes[name]
            columns[name].extend(code_of.setdefault(value, len(code_of)) for value in values)
    return Recording(
        {"signal": np.concatenate(signal)},
        times=np.concatenate(times) if times else None,
        notes=layout.notes,
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
