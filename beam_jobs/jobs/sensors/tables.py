"""Recordings in .csv and Parquet files."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.recording import (
    Reading,
    Recording,
    _alone,
    _check_size,
    _checked,
    _place,
    _seconds,
)
from beam_jobs.packages import require

# Rows of a table that are text at the same time.
_BLOCK = 4096

# What 64-bit nanoseconds can hold; NumPy takes words such as "now" for times, too.
_ISO_8601 = re.compile(
    r"(?:1[7-9]|2[01])[0-9]{2}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
)

_ARROW_NUMBERS = frozenset(
    ("bool", "halffloat", "float", "double")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)

_ARROW_TIMES = ("timestamp", "date")


def _load_csv(data: bytes, reading: Reading) -> Recording:
    """Rows are times; the first line names the columns, unless it is of numbers itself."""
    # Every cell but the last ends in one of these.
    _check_size(8 * (1 + data.count(b",") + max(data.count(b"\n"), data.count(b"\r"))))
    if b"\0" in data:  # which Python takes from 3.11 on
        raise ValueError("it holds bytes that are zero")
    first = next(_csv_rows(data), None)
    if first is None:
        raise RejectError("the file is empty")
    names = [] if all(map(_is_number, first)) else [name.strip() for name in first]
    if not names and (reading.columns or reading.time_column):
        raise RejectError("its first line has no names for --columns and --time_column")
    time = _place(names, reading.time_column) if reading.time_column else None
    places = [_place(names, name) for name in reading.columns]
    places = places or [place for place in range(len(first)) if place != time]
    if not places:
        raise RejectError(f"it has no column but the time {reading.time_column!r}")
    table = _plain_table(data, bool(names), len(first))
    if table is None:
        signal, times = _mixed_table(data, names, len(first), places, time, reading.time_unit)
    else:
        signal = table[:, places]
        times = None if time is None else _seconds(table[:, time], reading.time_unit)
    return _alone(signal, reading, times=None if times is None else _checked(times))


def _csv_text(data: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")


def _csv_rows(data: bytes) -> Iterator[list[str]]:
    return filter(None, csv.reader(_csv_text(data)))


def _plain_table(data: bytes, header: bool, width: int) -> np.ndarray | None:
    """The numbers of a table of nothing else, in a quarter of the time of `_mixed_table`."""
    text = _csv_text(data)
    if header:
        next(filter(None, csv.reader(text)))
    line = next((line for line in text if line.strip("\r\n")), "")
    if not line:
        return None
    try:
        table = np.loadtxt(
            itertools.chain([line], text), delimiter=",", comments=None, quotechar='"', ndmin=2
        )
    except ValueError:
        return None
    return table if table.shape[1] == width else None


def _mixed_table(
    data: bytes, names: list[str], width: int, places: list[int], time: int | None, unit: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Columns of numbers, empty cells NaN, and of times, among others of anything."""
    rows = _csv_rows(data)
    if names:
        next(rows)
    blocks, times, row = [np.empty((0, len(places)))], [np.empty(0)], 1
    while block := list(itertools.islice(rows, _BLOCK)):
        for number, cells in enumerate(block, row):
            if len(cells) != width:
                raise RejectError(f"row {number} has {len(cells)} values, not {width}")
        columns = list(zip(*block, strict=True))
        signal = [_numbers(columns[i], row, names[i] if names else None) for i in places]
        blocks.append(np.stack(signal, 1))
        if time is not None:
            times.append(_csv_seconds(columns[time], row, unit))
        row += len(block)
    return np.concatenate(blocks), None if time is None else np.concatenate(times)


def _number(cell: str) -> float:
    return float(cell) if cell.strip() else math.nan


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Sequence[str], row: int, column: str | None) -> np.ndarray:
    try:
        return np.fromiter(map(_number, cells), np.float64, len(cells))
    except ValueError:
        at = next(i for i, cell in enumerate(cells) if not _is_number(cell))
    found = f"{cells[at]!r:.80} in row {row + at}"
    if column is None:
        raise ValueError(f"{found} is no number")
    raise RejectError(f"column {column!r} is not numeric: {found}; choose others with --columns")


def _csv_seconds(cells: Sequence[str], row: int, unit: str) -> np.ndarray:
    cells = [cell.strip() for cell in cells]
    try:
        return _seconds(np.fromiter(map(_number, cells), np.float64, len(cells)), unit)
    except ValueError:
        is_time = _ISO_8601.fullmatch if _ISO_8601.fullmatch(cells[0]) else _is_number
    for number, cell in enumerate(cells, row):
        if not is_time(cell):
            raise RejectError(
                f"row {number}: time {cell!r:.80} is neither a number nor ISO 8601, or not the one "
                "that the others are"
            )
    return _seconds(np.array(cells, "M8[ns]").astype(np.int64), "ns")


def _load_parquet(data: bytes, reading: Reading) -> Recording:
    """Columns of numbers in the dtype that holds all of them, nulls NaN."""
    parquet = require("pyarrow.parquet", "beam", ".parquet files")
    file = parquet.ParquetFile(io.BytesIO(data))
    names, time = file.schema_arrow.names, reading.time_column
    types = dict(zip(names, map(str, file.schema_arrow.types), strict=True))
    numeric = [name for name in names if types[name] in _ARROW_NUMBERS and name != time]
    chosen = list(reading.columns) or numeric
    if not chosen:
        raise RejectError(f"no column of numbers but the time: the file has {', '.join(names)}")
    for name in filter(None, (*chosen, time)):
        _place(names, name)
    for name in chosen:
        if types[name] not in _ARROW_NUMBERS:
            raise RejectError(
                f"column {name!r} is not numeric but {types[name]}: choose others with --columns"
            )
    if time and types[time] not in _ARROW_NUMBERS and not types[time].startswith(_ARROW_TIMES):
        raise RejectError(
            f"column {time!r} is {types[time]}: expected numbers, timestamps or dates as times"
        )
    wanted = sorted({*chosen, time} - {""})
    rows = file.metadata.num_rows
    _check_size(8 * rows * len(wanted))
    table = file.read(wanted, use_threads=False)
    if table.num_rows != rows:
        raise ValueError(f"it has {table.num_rows} of {rows} rows")
    signal = np.stack([_arrow_numbers(table[name]) for name in chosen], 1)
    times = _checked(_arrow_seconds(table[time], reading.time_unit)) if time else None
    return _alone(signal, reading, times=times)


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
