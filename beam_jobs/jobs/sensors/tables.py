"""Recordings in .csv and Parquet files."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.channels import (
    choose_channels,
    column_index,
    note_left_out,
    note_twice,
)
from beam_jobs.jobs.sensors.inside.columns import Column
from beam_jobs.jobs.sensors.recording import (
    ReadOptions,
    Recording,
    check_size,
    single_signal,
)
from beam_jobs.packages import require

# Bytes of a .csv file that are held as text at a time. A row cannot be longer; wide tables get more.
_BLOCK_BYTES = 1 << 22

# Ticks in a second.
_PER_SECOND: dict[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

# The range of 64-bit nanoseconds; NumPy would also take words such as "now" for times.
_ISO_8601 = re.compile(
    r"(?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)

_ARROW_NUMBERS = frozenset(
    ("bool", "halffloat", "float", "double")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)

# Where columns are looked for first.
_METADATA = " in its metadata"

_ARROW_TEXT = ("string", "large_string", "dictionary")

# Arrow's message. A handler of invalid rows would fail, with a traceback, on rows that are not UTF-8.
_ARROW_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+)")


def load_csv(data: bytes, options: ReadOptions) -> Recording:
    """Reads float64 [rows, channels]; empty cells are NaN.

    The first row names the columns, unless all of its cells are numbers.
    """
    # Every cell but the last ends in one of these.
    check_size(8 * (1 + data.count(b",") + max(data.count(b"\n"), data.count(b"\r"))))
    if b"\0" in data:  # Python's csv module accepts these since 3.11
        raise ValueError("it holds bytes that are zero")
    first = next(
        filter(None, csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""))), None
    )
    if first is None:
        raise RejectError("the file is empty")
    names = [] if all(map(_is_number, first)) else [name.strip() for name in first]
    if not names and options.inside:
        raise RejectError(
            f"no column {options.inside[0]!r}{_METADATA}: its first line has no names"
        )
    if not names and (options.columns or options.drop_columns or options.time_column):
        raise RejectError(
            "its first line has no names for --columns, --drop_columns or --time_column"
        )
    time = column_index(names, options.time_column) if options.time_column else None
    inside = {name: column_index(names, name, _METADATA) for name in options.inside}
    texts: dict[str, list[Any]] = {name: [] for name in inside}
    compute = require("pyarrow.compute", "beam", ".csv files")
    places, left_out = choose_channels(names, options) if names else (range(len(first)), [])
    blocks, times = [np.empty((0, len(places)))], [np.empty(0)]
    for row, cells in _csv_blocks(data, len(first), header=bool(names)):
        columns = [_numbers(cells[i], row, names[i] if names else None) for i in places]
        blocks.append(np.stack(columns, 1))
        if time is not None:
            times.append(_csv_seconds(cells[time], row, options.time_unit))
        for name, place in inside.items():
            texts[name].append(compute.utf8_trim_whitespace(cells[place]))
    signal = np.concatenate(blocks)
    if not names and len(places) > 1 and np.isnan(signal[:, -1]).all():
        signal = signal[:, :-1]  # every line ends in a comma
    return single_signal(
        signal,
        options,
        times=None if time is None else np.concatenate(times),
        notes=(*note_left_out(left_out), *note_twice(names, options)),
        columns={name: Column.of_cells(chunks) for name, chunks in texts.items()},
    )


def _csv_blocks(data: bytes, width: int, header: bool) -> Iterator[tuple[int, list[Any]]]:
    """Yields blocks of rows below the header: the first row's number, and columns of Arrow strings."""
    arrow = require("pyarrow", "beam", ".csv files")
    reader = require("pyarrow.csv", "beam", ".csv files")
    names = [str(place) for place in range(width)]
    row = 1 - header
    try:
        for block in reader.open_csv(
            arrow.BufferReader(data),
            reader.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES, 64 * width), column_names=names
            ),
            reader.ParseOptions(newlines_in_values=True),
            reader.ConvertOptions(column_types=dict.fromkeys(names, arrow.string())),
        ):
            yield max(row, 1), (block if row else block.slice(1)).columns
            row += block.num_rows
    except arrow.ArrowInvalid as error:
        ragged = _ARROW_RAGGED.search(str(error))
        if not ragged:
            raise
        number, values = int(ragged[1]) - header, ragged[2]
        raise RejectError(f"row {number} has {values} values, not {width}") from None


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Any, row: int, column: str | None = None) -> np.ndarray:
    """Returns the cells, Arrow strings from a row on, as Python reads them; NaN for empty ones.

    Raises:
        RejectError: a cell is not a number and the column has a name. Without one: ValueError.
    """
    with contextlib.suppress(ValueError):
        return cells.cast("float64").to_numpy()
    compute = require("pyarrow.compute", "beam", ".csv files")
    trimmed = compute.utf8_trim_whitespace(cells)
    filled = compute.replace_with_mask(trimmed, compute.equal(trimmed, ""), "nan")
    with contextlib.suppress(ValueError):
        return filled.cast("float64").to_numpy()
    # Python reads a few numbers that Arrow does not, such as digits of other scripts.
    texts = cells.to_pylist()
    try:
        return np.fromiter(map(_number, texts), np.float64, len(texts))
    except ValueError:
        at = next(i for i, text in enumerate(texts) if not _is_number(text))
    found = f"{texts[at]!r:.80} in row {row + at}"
    if column is None:
        raise ValueError(f"{found} is not a number")
    raise RejectError(
        f"column {column!r} is not numeric: {found}; choose others with --columns, or leave it out "
        f"with --drop_columns {column}"
    )


def _csv_seconds(cells: Any, row: int, unit: str) -> np.ndarray:
    with contextlib.suppress(ValueError):
        return _seconds(_numbers(cells, row), unit)
    times = [text.strip() for text in cells.to_pylist()]
    dates = [bool(_ISO_8601.fullmatch(time)) for time in times]
    for number, (time, date) in enumerate(zip(times, dates, strict=True), row):
        if not date and not _is_number(time):
            raise RejectError(
                f"row {number}: time {time!r:.80} is neither a number nor ISO 8601 such as "
                "2024-01-31T12:30:05.5"
            )
        if date != dates[0]:
            kinds = ("a date", "a number") if date else ("a number", "a date")
            raise RejectError(
                f"row {number}: time {time!r:.80} is {kinds[0]}, row {row} has {kinds[1]}"
            )
    return _seconds(np.array(times, "M8[ns]").astype(np.int64), "ns")


def load_parquet(data: bytes, options: ReadOptions) -> Recording:
    """Reads [rows, channels] in the dtype that holds all of the columns; nulls are NaN."""
    parquet = require("pyarrow.parquet", "beam", ".parquet files")
    file = parquet.ParquetFile(io.BytesIO(data))
    names, time = file.schema_arrow.names, options.time_column
    types = dict(zip(names, map(str, file.schema_arrow.types), strict=True))
    places, left_out = choose_channels(names, options)
    chosen = [names[place] for place in places]
    if not options.columns:
        chosen = [name for name in chosen if types[name] in _ARROW_NUMBERS]
    if not chosen:
        raise RejectError(f"no numeric column but the time: the file has {', '.join(names)}")
    for name in chosen:
        column_index(names, name)
        if types[name] not in _ARROW_NUMBERS:
            raise RejectError(
                f"column {name!r} is not numeric but {types[name]}: choose others with --columns"
            )
    if (
        time
        and types[time] not in _ARROW_NUMBERS
        and not types[time].startswith(("timestamp", "date"))
    ):
        raise RejectError(
            f"column {time!r} is {types[time]}: expected numbers, timestamps or dates as times"
        )
    for name in options.inside:
        column_index(names, name, _METADATA)
        if types[name] not in _ARROW_NUMBERS and not types[name].startswith(_ARROW_TEXT):
            raise RejectError(f"column {name!r} is {types[name]}, expected text or numbers")
    if (
        options.inside
    ):  # A text that is repeated in each of a billion rows takes a few bytes of a file.
        file = parquet.ParquetFile(io.BytesIO(data), read_dictionary=list(options.inside))
    wanted = sorted({*chosen, time, *options.inside} - {""})
    rows = file.metadata.num_rows
    check_size(8 * rows * len(wanted))
    table = file.read(wanted, use_threads=False)
    if table.num_rows != rows:
        raise ValueError(f"it has {table.num_rows} of {rows} rows")
    signal = np.stack([_arrow_numbers(table[name]) for name in chosen], 1)
    left_out = [name for name in left_out if types[name] in _ARROW_NUMBERS]
    return single_signal(
        signal,
        options,
        times=_arrow_seconds(table[time], options.time_unit) if time else None,
        notes=(*note_left_out(left_out), *note_twice(names, options)),
        columns={name: Column.of_cells(table[name].chunks) for name in options.inside},
    )


def _arrow_numbers(column: Any) -> np.ndarray:
    if str(column.type) == "bool" and column.null_count:
        column = column.cast("uint8")  # or NumPy gets objects
    return column.to_numpy()


def _arrow_seconds(column: Any, unit: str) -> np.ndarray:
    if str(column.type).startswith("date"):
        column = column.cast("timestamp[ms]")
    if str(column.type) not in _ARROW_NUMBERS:
        unit, column = column.type.unit, column.cast("int64")
    return _seconds(column.to_numpy(), unit)


def _seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Returns times in float64 seconds, rounded only once if they are integers."""
    per_second = _PER_SECOND[unit]
    if not np.can_cast(ticks.dtype, np.int64):
        return ticks.astype(np.float64) / per_second
    whole, rest = np.divmod(ticks.astype(np.int64), per_second)
    return whole + rest / per_second
