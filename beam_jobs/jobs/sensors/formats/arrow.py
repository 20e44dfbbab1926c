"""Recordings in files that Arrow reads: Parquet, and Arrow's own format, which Feather uses too."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.dataset
import pyarrow.parquet

from beam_jobs.engines.memory import limited
from beam_jobs.errors import RejectError
from beam_jobs.jobs.sensors.formats.cells import seconds
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
    names, types = schema.names, list(map(str, schema.types))
    layout = lay_out(names, len(names), options, lambda place: types[place] in _NUMBERS)
    for place in layout.channels:
        if types[place] not in _NUMBERS:
            raise RejectError(
                f"column {names[place]!r} is not numeric but {types[place]}: choose others with --columns"
            )
    time, own_columns = layout.time, layout.own_columns
    if time is not None and not (types[time] in _NUMBERS or types[time].startswith(_TIMES)):
        raise RejectError(
            f"column {names[time]!r} is {types[time]}: expected numbers, timestamps or dates as times"
        )
    for name, place in own_columns.items():
        if types[place] not in _NUMBERS and not types[place].startswith(_TEXT):
            raise RejectError(f"column {name!r} is {types[place]}, expected text or numbers")
    chosen = [names[place] for place in layout.channels]
    column_places(names, chosen)
    used = sorted({*chosen, options.time_column, *own_columns} - {""})
    check_bytes(8 * rows * len(used), options.max_bytes)
    table = read(used)
    if table.num_rows != rows:
        raise ValueError(f"it has {table.num_rows} of {rows} rows")
    times = table[options.time_column] if options.time_column else None
    return Recording(
        {"signal": np.stack([_arrow_numbers(table[name]) for name in chosen], 1)},
        times=None if times is None else _arrow_seconds(times, options.time_unit),
        notes=layout.notes,
        channels=layout.signal,
        columns={name: Column.of_cells(table[name].chunks) for name in own_columns},
    )


def _arrow_numbers(column: Any) -> np.ndarray:
    if str(column.type) == "bool" and column.null_count:
        column = column.cast("uint8")  # or NumPy gets objects
    return column.to_numpy()


def _arrow_seconds(column: Any, unit: str) -> np.ndarray:
    if str(column.type).startswith("date"):
        column = column.cast("timestamp[ms]")
    if str(column.type) not in _NUMBERS:
        unit, column = column.type.unit, column.cast("int64")
    return seconds(column.to_numpy(), unit)
