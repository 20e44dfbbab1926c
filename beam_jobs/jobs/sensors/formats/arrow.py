"""Recordings in files that Arrow reads: Parquet, and Arrow's own format, which Feather uses too."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

from beam_jobs.engines.memory import limited
from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import seconds, unit_of_times
from beam_jobs.jobs.sensors.read_options import ReadOptions, column_places, lay_out
from beam_jobs.jobs.sensors.recording import Column, Recording
from beam_jobs.sources.arrow_rows import arrow_memory
from beam_jobs.storage.limits import check_bytes

_NUMBERS = frozenset(
    ("bool", "halffloat", "float", "double")
    + tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
)

_TIMES = ("timestamp", "date")

_TEXT = ("string", "large_string", "dictionary")

# float64 rounds larger whole numbers.
_MOST_WHOLE = 1 << 53

_ROUNDED = "whole numbers above 2**53 were rounded, because other columns are floats or have nulls"


def read_parquet(data: bytes, options: ReadOptions) -> Recording:
    """A signal [rows, channels] in the dtype that holds all of the columns; nulls are NaN."""
    file = pyarrow.parquet.ParquetFile(io.BytesIO(data))

    def read(names: list[str]) -> pyarrow.Table:
        # A text that is repeated in a billion rows may take only a few bytes of a file.
        table = pyarrow.parquet.ParquetFile(
            io.BytesIO(data), read_dictionary=list(options.own_columns)
        )
        with limited(arrow_memory(file.metadata.num_columns, options.max_bytes)):
            return table.read(names, use_threads=False)

    return _read(file.schema_arrow, file.metadata.num_rows, read, options)


def read_feather(data: bytes, options: ReadOptions) -> Recording:
    """The same, of a table in Arrow's own format."""
    # As part of a dataset, a file states its number of rows before any is unpacked.
    file = pyarrow.dataset.IpcFileFormat().make_fragment(pyarrow.py_buffer(data))

    def read(names: list[str]) -> pyarrow.Table:
        table = file.to_table(columns=names, use_threads=False)
        table.validate()  # or a damaged file has columns that reach beyond it
        return table

    return _read(file.physical_schema, file.count_rows(), read, options)


def _read(
    schema: pyarrow.Schema,
    rows: int,
    read: Callable[[list[str]], pyarrow.Table],
    options: ReadOptions,
) -> Recording:
    names, types = schema.names, schema.types
    kinds = ["" if str(_plain_type(kind)) in _NUMBERS else str(kind) for kind in types]
    layout = lay_out(names, len(names), options, kinds)
    for place in layout.channels:
        if kinds[place]:
            raise RejectError(
                f"column {names[place]!r} is not numeric but {kinds[place]}: choose others with --columns"
            )
    time, own_columns = layout.time, layout.own_columns
    if time is not None and kinds[time] and not kinds[time].startswith(_TIMES):
        raise RejectError(
            f"column {names[time]!r} is {kinds[time]}: expected numbers, timestamps or dates as times"
        )
    for name, place in own_columns.items():
        if kinds[place] and not kinds[place].startswith(_TEXT):
            raise RejectError(f"column {name!r} is {kinds[place]}, expected text or numbers")
    chosen = [names[place] for place in layout.channels]
    column_places(names, chosen)
    used = sorted({*chosen, options.time_column, *own_columns} - {""})
    check_bytes(8 * rows * len(used), options.max_bytes)
    table = read(used)
    if table.num_rows != rows:
        raise ValueError(f"it has {table.num_rows} of {rows} rows")
    columns = {name: _plain(table[name]) for name in used}
    signal = np.stack([_arrow_numbers(columns[name]) for name in chosen], 1)
    times = columns[options.time_column] if options.time_column else None
    unit, unit_note = unit_of_times(options.time_unit, options.time_column)
    rounds = signal.dtype.kind == "f" and any(_exceeds_float64(columns[name]) for name in chosen)
    return Recording(
        {"signal": signal},
        times=None if times is None else _arrow_seconds(times, unit),
        notes=(*layout.notes, *filter(None, [unit_note, _ROUNDED if rounds else ""])),
        channels=layout.signal,
        columns={name: Column.of_cells(columns[name].chunks) for name in own_columns},
    )


def _plain_type(kind: pyarrow.DataType) -> pyarrow.DataType:
    """The type in which numbers are read: float64 for decimals, and that of the values for categories."""
    if pyarrow.types.is_dictionary(kind) and str(kind.value_type) in _NUMBERS:
        return kind.value_type
    return pyarrow.float64() if pyarrow.types.is_decimal(kind) else kind


def _plain(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    kind = _plain_type(column.type)
    return column if kind == column.type else column.cast(kind)  # Arrow has no cast of float16


def _arrow_numbers(column: pyarrow.ChunkedArray) -> np.ndarray:
    if str(column.type) == "bool" and column.null_count:
        column = column.cast("uint8")  # or NumPy gets objects
    return column.to_numpy()


def _exceeds_float64(column: pyarrow.ChunkedArray) -> bool:
    """Whether a column has whole numbers that float64 rounds."""
    if str(column.type) not in ("int64", "uint64"):
        return False
    limits = pyarrow.compute.min_max(column).as_py().values()
    return any(abs(limit or 0) > _MOST_WHOLE for limit in limits)


def _arrow_seconds(column: Any, unit: str) -> np.ndarray:
    if str(column.type).startswith("date"):
        column = column.cast("timestamp[ms]")
    if str(column.type) not in _NUMBERS:
        unit, column = column.type.unit, column.cast("int64")
    return seconds(column.to_numpy(), unit)
