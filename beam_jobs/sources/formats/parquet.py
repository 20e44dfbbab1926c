"""Rows of Parquet files, one row group at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO

import orjson

from beam_jobs.engines.memory import limited
from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.formats.arrow_rows import BATCH_ROWS, arrow_memory, batch_rows, fields_of
from beam_jobs.sources.rows import Row, check_names
from beam_jobs.sources.source import names_in, value_at
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

_BATCH_BYTES = 8 << 20

_BUFFER_BYTES = 1 << 20

# How many times smaller batches are that are read again for lack of memory.
_FEWER = 8


def row_groups(file: BinaryIO) -> list[int]:
    """The number of rows in each row group of a Parquet file.

    Raises:
        RejectError: the file cannot be read.
    """
    footer = _open_parquet(file).metadata
    return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]


def read_row_groups(
    file: BinaryIO,
    groups: Iterable[int] | None = None,
    columns: Collection[str] | None = None,
    first: int = 1,
    most_bytes: int = DEFAULT_RECORD_BYTES,
) -> Iterator[Row]:
    """Yields the rows of some row groups of a Parquet file, including those that cannot be read.

    A damaged group ends with a row of number 0, after which the next group follows.

    Args:
        file: The file, seekable.
        groups: Consecutive numbers of row groups, from 0; None for all.
        columns: The columns to read, and fields in them, such as `meta.cls`; None for all.
        first: Number of the first row.
        most_bytes: The most bytes that a row may take.

    Raises:
        RejectError: the file cannot be read.
        UsageError: two columns have the same name.
    """
    table = _open_parquet(file)
    for group in range(table.num_row_groups) if groups is None else groups:
        try:
            yield from _group_rows(table, group, columns, first, most_bytes)
        except RejectError as error:
            yield Row(0, None, str(error))
        first += table.metadata.row_group(group).num_rows


def _open_parquet(file: BinaryIO) -> Any:
    """Opens a `pyarrow.parquet.ParquetFile`.

    Raises:
        RejectError: the file is not Parquet, or Arrow cannot read its schema.
        UsageError: pyarrow is not installed.
    """
    parquet = require("pyarrow.parquet", "beam", ".parquet files")
    try:
        table = parquet.ParquetFile(
            file,
            # By default, whole columns of a row group are read at once.
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            # The default, nanoseconds, overflows in the year 2262.
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
        table.schema_arrow  # noqa: B018  (The property parses the schema.)
    except Exception as error:  # Arrow raises errors of nearly all kinds on damaged input.
        raise RejectError(f"not a Parquet file that can be read: {error}") from None
    return table


def parquet_columns(file: BinaryIO) -> tuple[str, ...]:
    """The names of the columns of a Parquet file, each before those of its fields.

    Raises:
        RejectError: the file cannot be read.
        UsageError: two columns have the same name.
    """
    schema = _open_parquet(file).schema_arrow
    check_names(schema.names)
    return tuple(names_in(fields_of(schema)))


def class_names(file: BinaryIO, column: str) -> tuple[str, ...]:
    """The names of the classes in a column by id, as Hugging Face states them in a schema; else empty.

    Args:
        file: The file, seekable.
        column: The column or field, whole numbers or lists of them.

    Raises:
        RejectError: the file cannot be read.
    """
    stated = (_open_parquet(file).schema_arrow.metadata or {}).get(b"huggingface", b"")
    try:
        feature = value_at(orjson.loads(stated)["info"]["features"], column)
        names = feature.get("feature", feature)["names"]  # Those of a list are those of its items.
    except (ValueError, LookupError, TypeError, AttributeError):
        return ()
    whole = isinstance(names, list) and all(isinstance(n, str) and n for n in names)
    return tuple(names) if whole and len(set(names)) == len(names) else ()


def _group_rows(
    table: Any,
    number: int,
    columns: Collection[str] | None,
    first: int,
    most_bytes: int,
) -> Iterator[Row]:
    names = table.schema_arrow.names
    check_names(names)
    group = table.metadata.row_group(number)
    known = names if columns is None else names_in(fields_of(table.schema_arrow))
    wanted = [name for name in known if columns is None or name in columns]
    # At least one column: rows are counted by reading them, not taken from the footer.
    wanted = wanted or names[:1]
    fit = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    at = first
    try:
        for batch in _batches(table, number, wanted, min(max(1, fit), BATCH_ROWS), most_bytes):
            for values, error in batch_rows(batch, most_bytes):
                yield Row(at, values, error)
                at += 1
    except Exception as error:
        raise RejectError(f"cannot be read to its end: {error}") from None
    if at - first != group.num_rows:
        raise RejectError(
            f"cannot be read to its end: row group {number} should have {group.num_rows} rows, "
            f"it has {at - first}"
        )


def _batches(
    table: Any, number: int, columns: list[str], rows: int, most_bytes: int
) -> Iterator[Any]:
    """Yields the record batches of a row group, with fewer rows from where memory does not suffice on.

    Args:
        rows: The most rows of a batch.

    Raises:
        MemoryError: A single row takes too much.
    """
    memory, done = arrow_memory(table.metadata.num_columns, most_bytes), 0
    while True:
        batches = table.iter_batches(rows, [number], columns, use_threads=False)
        skipped = 0
        try:
            while True:
                with limited(memory):
                    batch = next(batches, None)
                if batch is None:
                    return
                new = batch.slice(max(done - skipped, 0))
                skipped += batch.num_rows
                if new.num_rows:
                    yield new
                    done += new.num_rows
        except MemoryError:
            if rows == 1:
                raise
            rows = max(rows // _FEWER, 1)
