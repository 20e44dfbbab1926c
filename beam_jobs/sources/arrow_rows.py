"""Rows of .parquet, .feather and .arrow files as Python objects, one record batch at a time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, BinaryIO

import orjson

from beam_jobs.engines.memory import limited
from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.rows import Row, check_names
from beam_jobs.sources.source import names_in, value_at
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes

# The kinds of tables, by the endings of their names.
ARROW_KINDS = ("parquet", "feather", "arrow")

# Rows in memory at once: only a few, because they may have images, but each batch costs 0.1 ms.
_BATCH_ROWS = 1024

# Bytes of a record batch of Parquet, and of a read from a file.
_FIT_BYTES, _BUFFER_BYTES = 8 << 20, 1 << 20

# If memory does not suffice, batches are read again, smaller by this factor.
_FEWER = 8

# Bytes of rows to unpack at once, in which values of dictionaries are repeated.
_UNPACKED_BYTES = 64 << 20

# A fraction of a second that Python does not write.
_NO_FRACTION = re.compile(r"\.0+$")

# The memory that Arrow may allocate for a batch in addition to its largest row, and for the pages of a column: a
# buffer, a page and a dictionary have a megabyte each. But the header of a page may state 2 GiB, and a few bytes
# may repeat a large value in each row.
_BATCH_BYTES = 512 << 20
_COLUMN_BYTES = 4 << 20

# How an Arrow file with a footer begins, and how a stream ends. Without its end, a stream that was cut between two
# batches would look whole.
_WITH_FOOTER, _END = b"ARROW1", b"\xff\xff\xff\xff\0\0\0\0"


def arrow_memory(columns: int, most_bytes: int) -> int:
    """The bytes that Arrow may allocate to unpack rows of a Parquet file.

    Args:
        columns: The number of columns in the file, and of fields in them.
        most_bytes: The most bytes that a row may take, or a recording.
    """
    return _BATCH_BYTES + columns * _COLUMN_BYTES + 2 * most_bytes


def arrow_columns(file: BinaryIO, kind: str) -> tuple[str, ...]:
    """The names of the columns of a seekable file of one of `ARROW_KINDS`, each before those of its fields.

    Raises:
        RejectError: the file cannot be read.
        UsageError: two columns have the same name.
    """
    schema = _open_parquet(file).schema_arrow if kind == "parquet" else _open_feather(file).schema
    check_names(schema.names)
    return tuple(names_in(_fields_of(schema)))


def row_groups(file: BinaryIO) -> list[int]:
    """The number of rows in each row group of a Parquet file; RejectError if it cannot be read."""
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

    A damaged group ends with a row of number 0, after which the next group follows. Errors as for `arrow_columns`.

    Args:
        file: The file, seekable.
        groups: Consecutive numbers of row groups, from 0; None for all.
        columns: The columns to read, and fields in them, such as `meta.cls`; None for all.
        first: Number of the first row.
        most_bytes: The most bytes that a row may take.
    """
    table = _open_parquet(file)
    names = table.schema_arrow.names
    check_names(names)
    fields = names if columns is None else names_in(_fields_of(table.schema_arrow))
    # At least one column: rows are counted by reading them, not taken from the footer.
    chosen = [name for name in fields if columns is None or name in columns] or names[:1]
    for group in range(table.num_row_groups) if groups is None else groups:
        count = table.metadata.row_group(group).num_rows
        at = first
        try:
            for batch in _batches(table, group, chosen, most_bytes):
                for values, error in batch_rows(batch, most_bytes):
                    yield Row(at, values, error)
                    at += 1
            if at - first != count:
                raise RejectError(
                    f"row group {group} should have {count} rows, it has {at - first}"
                )
        except Exception as error:
            yield Row(0, None, f"cannot be read to its end: {error}")
        first += count


def class_names(file: BinaryIO, column: str) -> tuple[str, ...]:
    """The names of the classes in a column by id, as Hugging Face states them in a schema; else empty.

    Args:
        file: A Parquet file, seekable; RejectError if it cannot be read.
        column: The column or field, whole numbers or lists of them.
    """
    stated = (_open_parquet(file).schema_arrow.metadata or {}).get(b"huggingface", b"")
    try:
        feature = value_at(orjson.loads(stated)["info"]["features"], column)
        names = feature.get("feature", feature)["names"]  # A list has the classes of its items.
    except (ValueError, LookupError, TypeError, AttributeError):
        return ()
    whole = isinstance(names, list) and all(isinstance(n, str) and n for n in names)
    return tuple(names) if whole and len(set(names)) == len(names) else ()


def _open_parquet(file: BinaryIO) -> Any:
    """A `pyarrow.parquet.ParquetFile`."""
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


def _batches(table: Any, group: int, columns: list[str], most_bytes: int) -> Iterator[Any]:
    """Yields the record batches of a row group, with fewer rows once memory does not suffice."""
    about = table.metadata.row_group(group)
    fit = _FIT_BYTES * about.num_rows // max(about.total_byte_size, 1)
    rows = min(max(1, fit), _BATCH_ROWS)
    memory, done = arrow_memory(table.metadata.num_columns, most_bytes), 0
    while True:
        batches = table.iter_batches(rows, [group], columns, use_threads=False)
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


def feather_rows(file: BinaryIO, columns: Collection[str] | None, most_bytes: int) -> Iterator[Row]:
    """Yields the rows of a file in Arrow's file format or its stream format; arguments and errors as for `read_row_groups`."""
    names = _open_feather(file).schema.names
    check_names(names)
    chosen = [
        place
        for place, name in enumerate(names)
        if columns is None or any(f"{column}.".startswith(f"{name}.") for column in columns)
    ]
    reader = _open_feather(file, chosen or [0])
    in_stream = not hasattr(reader, "num_record_batches")
    batches = reader if in_stream else map(reader.get_batch, range(reader.num_record_batches))
    number = itertools.count(1)
    try:
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                for values, error in batch_rows(batch.slice(start, _BATCH_ROWS), most_bytes):
                    yield Row(next(number), values, error)
        if in_stream:
            file.seek(-len(_END), 2)
            if file.read() != _END:
                raise RejectError("the stream has no end")
    except Exception as error:  # Arrow raises errors of nearly all kinds on damaged input.
        raise RejectError(f"cannot be read to its end: {error}") from None


def _open_feather(file: BinaryIO, fields: list[int] | None = None) -> Any:
    """A reader of a file or a stream, of some top-level columns."""
    ipc = require("pyarrow", "beam", ".feather and .arrow files").ipc
    file.seek(0)
    open_ = ipc.open_file if file.read(len(_WITH_FOOTER)) == _WITH_FOOTER else ipc.open_stream
    file.seek(0)
    try:
        reader = open_(file, options=ipc.IpcReadOptions(included_fields=fields, use_threads=False))
        _fields_of(reader.schema)  # Raises if a name is not UTF-8.
        return reader
    except Exception as error:
        raise RejectError(f"not an Arrow file that can be read: {error}") from None


def _fields_of(parent: Any) -> dict[str, Any]:
    """The fields of an Arrow schema or struct by name: None, or fields in turn."""
    pa = require("pyarrow", "beam", ".parquet files")
    return {f.name: _fields_of(f.type) if pa.types.is_struct(f.type) else None for f in parent}


def batch_rows(batch: Any, most_bytes: int) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yields (values, "") for each row of a batch, or (None, why it cannot be read).

    Args:
        batch: A `pyarrow.RecordBatch`.
        most_bytes: The most bytes that the values of a row may take.
    """
    try:
        batch.validate(full=True)
        size = sum(map(_unpacked_bytes, batch.columns))
        if batch.num_rows > 1 and size > min(most_bytes, _UNPACKED_BYTES):
            middle = batch.num_rows // 2
            yield from batch_rows(batch.slice(0, middle), most_bytes)
            yield from batch_rows(batch.slice(middle), most_bytes)
            return
        check_bytes(size, most_bytes, "it has")
        columns = [_values(column) for column in batch.columns]
    except RejectError as error:
        yield None, str(error)
        return
    except Exception as error:
        if batch.num_rows == 1:
            yield None, f"cannot be read: {error}"
        else:
            for i in range(batch.num_rows):
                yield from batch_rows(batch.slice(i, 1), most_bytes)
        return
    names = batch.schema.names
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True)), ""


def _unpacked_bytes(array: Any) -> int:
    """The bytes of an Arrow array without dictionaries; an upper bound if it has one inside."""
    pa = require("pyarrow", "beam", ".parquet files")
    if isinstance(array, pa.ExtensionArray):
        return _unpacked_bytes(array.storage)
    if pa.types.is_dictionary(array.type):
        if len(array) == 1:
            return int(array.dictionary_decode().nbytes)
        return _longest(array.dictionary) * len(array)
    if pa.types.is_struct(array.type):
        return sum(_unpacked_bytes(array.field(i)) for i in range(array.type.num_fields))
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _unpacked_bytes(array.flatten())
    return int(array.nbytes)


def _longest(values: Any) -> int:
    """The bytes of the longest text, or of all other values."""
    import pyarrow.compute

    try:
        lengths = pyarrow.compute.binary_length(values)
    except NotImplementedError:
        return int(values.nbytes)
    return int(pyarrow.compute.max(lengths).as_py() or 0)


def _values(array: Any) -> list[Any]:
    """The values of an Arrow array as Python objects."""
    pa = require("pyarrow", "beam", ".parquet files")
    kind, types = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage)
    if types.is_dictionary(kind):  # Ten times as fast as `to_pylist`.
        texts = array.dictionary
        if types.is_string_view(kind.value_type):  # which Arrow cannot take
            texts = texts.cast(pa.string())
        return _values(texts.take(array.indices))
    if types.is_struct(kind):
        names = [field.name for field in kind]
        rows = zip(*(_values(array.field(i)) for i in range(len(names))), strict=True)
        valid = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for is_valid, row in zip(valid, rows, strict=True)
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
    return [None if text == "NaT" else _NO_FRACTION.sub("", text) + zone for text in texts]
