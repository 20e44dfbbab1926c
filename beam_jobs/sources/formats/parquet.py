"""Rows of Parquet files, one row group at a time."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.rows import Row, check_names
from beam_jobs.sources.source import names_in, value_at

# Rows in memory at once: only a few if they hold images, but each batch costs 0.1 ms.
_BATCH_ROWS = 1024

_BATCH_BYTES = 8 << 20

_BUFFER_BYTES = 1 << 20


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
) -> Iterator[Row]:
    """Yields the rows of some row groups of a Parquet file, including those that cannot be read.

    A damaged group ends with a row of number 0, after which the next group follows.

    Args:
        file: The file, seekable.
        groups: Consecutive numbers of row groups, from 0; None for all.
        columns: The columns to read, and fields in them, such as `meta.cls`; None for all.
        first: Number of the first row.

    Raises:
        RejectError: the file cannot be read.
        UsageError: two columns have the same name.
    """
    table = _open_parquet(file)
    for group in range(table.num_row_groups) if groups is None else groups:
        try:
            yield from _group_rows(table, group, columns, first)
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
    return tuple(names_in(_fields(schema)))


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


def _fields(parent: Any) -> dict[str, Any]:
    """The fields of an Arrow schema or struct by name: None, or fields in turn."""
    pa = require("pyarrow", "beam", ".parquet files")
    return {f.name: _fields(f.type) if pa.types.is_struct(f.type) else None for f in parent}


def _group_rows(
    table: Any, number: int, columns: Collection[str] | None, first: int
) -> Iterator[Row]:
    names = table.schema_arrow.names
    check_names(names)
    group = table.metadata.row_group(number)
    known = names if columns is None else names_in(_fields(table.schema_arrow))
    wanted = [name for name in known if columns is None or name in columns]
    fit = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
    at = first
    try:
        for batch in table.iter_batches(
            batch_size=max(1, min(fit, _BATCH_ROWS)),
            row_groups=[number],
            # At least one column: rows are counted by reading them, not taken from the footer.
            columns=wanted or names[:1],
            use_threads=False,
        ):
            for values, error in _batch_rows(batch):
                yield Row(at, values, error)
                at += 1
    except Exception as error:
        raise RejectError(f"cannot be read to its end: {error}") from None
    if at - first != group.num_rows:
        raise RejectError(
            f"cannot be read to its end: row group {number} should have {group.num_rows} rows, "
            f"it has {at - first}"
        )


def _batch_rows(batch: Any) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yields (values, "") for each row of a batch, or (None, why it cannot be read)."""
    try:
        batch.validate(full=True)
        columns = [_values(column) for column in batch.columns]
    except Exception as error:
        if batch.num_rows == 1:
            yield None, f"cannot be read: {error}"
        else:
            for i in range(batch.num_rows):
                yield from _batch_rows(batch.slice(i, 1))
        return
    names = batch.schema.names
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True)), ""


def _values(array: Any) -> list[Any]:
    """The values of an Arrow array as Python objects."""
    pa = require("pyarrow", "beam", ".parquet files")
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if types.is_dictionary(kind):  # In a tenth of the time of its to_pylist.
        return _values(array.dictionary_decode())
    if types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(_values(array.field(i)) for i in range(len(names))), strict=True)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if whole else None
            for whole, row in zip(valid, rows, strict=True)
        ]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = iter(_values(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [None if n is None else list(itertools.islice(items, n)) for n in lengths]
    if types.is_timestamp(kind) or types.is_date(kind):
        return _iso_texts(array)
    if types.is_temporal(kind) or types.is_decimal(kind):
        return array.cast(pa.string()).to_pylist()
    return array.to_pylist()


def _iso_texts(array: Any) -> list[str | None]:
    """Dates and times in ISO 8601; None for missing ones.

    Python's types end in the year 9999, lack nanoseconds and need a database of time zones.
    """
    zone = "+00:00" if getattr(array.type, "tz", None) else ""
    texts = array.to_numpy(zero_copy_only=False).astype(str).tolist()
    return [None if text == "NaT" else _iso_text(text) + zone for text in texts]


def _iso_text(text: str) -> str:
    """A time without a fraction if that is zero, as Python writes it."""
    whole, _, fraction = text.partition(".")
    return text if fraction.strip("0") else whole
