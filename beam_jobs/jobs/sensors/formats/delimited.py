"""Recordings in tables of text: .csv, .tsv and .txt files."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np
import pyarrow.compute
import pyarrow.csv

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.inside.columns import Column
from beam_jobs.jobs.sensors.recording import (
    TEXT_DTYPE,
    ReadOptions,
    Recording,
    single_signal,
)
from beam_jobs.jobs.sensors.tables.cells import (
    is_number,
    is_time,
    numbers,
    text_seconds,
    with_points,
)
from beam_jobs.jobs.sensors.tables.channels import lay_out
from beam_jobs.jobs.sensors.tables.text import as_text
from beam_jobs.storage.limits import check_bytes

# Bytes that are held as text at a time. A row cannot be longer; wide tables get more.
_BLOCK_BYTES = 1 << 22

# Arrow's message. A handler of invalid rows would fail, with a traceback, on rows that are not UTF-8.
_ARROW_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")

# What a byte of a row may take while its cells are objects of Python, and what a column of Arrow takes: a
# table of 50,000 columns and one row took 508 MB.
_MEMORY_OF_A_BYTE, _MEMORY_OF_A_COLUMN = 128, 10_000

# What any table may take beside its values.
_MEMORY_OF_A_ROW = 1 << 20

_COMMENTS = re.compile(rb"\A(?:[ \t]*[#%][^\r\n]*[\r\n]+)+")


def read_csv(data: bytes, options: ReadOptions) -> Recording:
    """Reads a table whose columns are separated by commas, or by ; or tabs if its first lines are."""
    text = as_text(data, options)
    return _read(text, options.delimiter or _delimiter(text, ",;\t", options) or ",", options)


def read_tsv(data: bytes, options: ReadOptions) -> Recording:
    """Reads a table whose columns are separated by tabs."""
    return _read(as_text(data, options), options.delimiter or "\t", options)


def read_txt(data: bytes, options: ReadOptions) -> Recording:
    """Reads a table whose columns are separated by tabs, ; or commas as its first lines are, or by spaces.

    Lines before it that begin with # or % are comments.
    """
    text = _COMMENTS.sub(b"", as_text(data, options))
    delimiter = options.delimiter or _delimiter(text, "\t;,", options)
    if not delimiter:
        text = b"\n".join(b"\t".join(line.split()) for line in text.splitlines())
        delimiter = "\t"
    recording = _read(text, delimiter, options)
    if not len(recording.arrays["signal"]):
        raise RejectError("it has no row of numbers")  # Any text of one line looks like a header.
    return recording


def _delimiter(text: bytes, choices: str, options: ReadOptions) -> str:
    """Returns the first of the characters that divides the first two rows into as many cells; or "".

    One that divides the second row into numbers goes before all others.
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


def _read(text: bytes, delimiter: str, options: ReadOptions) -> Recording:
    """Reads float64 [rows, channels].

    The first row names the columns, unless all of its cells are numbers. If the next has none, and the
    one after it has some, it has the units of the columns. In tables separated by ;, a comma is a
    decimal point.
    """
    # Every cell but the last ends in one of these.
    ends = max(text.count(b"\n"), text.count(b"\r"))
    check_bytes(8 * (1 + text.count(delimiter.encode()) + ends), options.max_bytes)
    if b"\0" in text:  # Python's csv module accepts these since 3.11
        raise ValueError("it holds bytes that are zero")
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
    texts: dict[str, list[Any]] = {name: [] for name in layout.inside}
    for row, cells in _blocks(text, delimiter, width, has_names, has_units):
        if delimiter == ";":
            cells = [with_points(column) if i in read else column for i, column in enumerate(cells)]
        columns = [numbers(cells[i], row, names[i] if names else None) for i in places]
        blocks.append(np.stack(columns, 1))
        if time is not None:
            times.append(text_seconds(cells[time], row, options.time_unit))
        for name, place in layout.inside.items():
            texts[name].append(pyarrow.compute.utf8_trim_whitespace(cells[place]))
    signal = np.concatenate(blocks)
    if not names and len(places) > 1 and np.isnan(signal[:, -1]).all():
        signal = signal[:, :-1]  # every line ends in a delimiter
    units = f"its second line has no number and was taken for units: {top[1]}" if has_units else ""
    return single_signal(
        signal,
        options,
        times=None if time is None else np.concatenate(times),
        notes=(*layout.notes, *filter(None, [units])),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
        dtype=TEXT_DTYPE,
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
