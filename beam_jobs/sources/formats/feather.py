"""Rows of Arrow's own files: .feather (version 2) and .arrow, one record batch at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.sources.formats.arrow_rows import BATCH_ROWS, batch_rows, fields_of
from beam_jobs.sources.rows import Row, check_names
from beam_jobs.sources.source import names_in
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES

_OF_FILES = b"ARROW1"

# The end of a stream. Without it, a file that was cut between two batches would look whole.
_END = b"\xff\xff\xff\xff\0\0\0\0"


def feather_rows(
    file: BinaryIO,
    columns: Collection[str] | None = None,
    most_bytes: int = DEFAULT_RECORD_BYTES,
) -> Iterator[Row]:
    """Yields the rows of a file, including those that cannot be read.

    Args:
        file: The file, seekable, in Arrow's file format or its stream format.
        columns: The columns to read, and fields in them; None for all.
        most_bytes: The most bytes that a row may take.

    Raises:
        RejectError: the file cannot be read to its end.
        UsageError: two columns have the same name.
    """
    names = _open(file).schema.names
    check_names(names)
    wanted = [
        number
        for number, name in enumerate(names)
        if columns is None or any(f"{column}.".startswith(f"{name}.") for column in columns)
    ]
    number = 1
    try:
        for batch in _batches(_open(file, wanted or [0])):
            for start in range(0, batch.num_rows, BATCH_ROWS):
                for values, error in batch_rows(batch.slice(start, BATCH_ROWS), most_bytes):
                    yield Row(number, values, error)
                    number += 1
        if _is_stream(file):
            file.seek(-len(_END), 2)
            if file.read() != _END:
                raise RejectError("the stream has no end")
    except Exception as error:  # Arrow raises errors of nearly all kinds on damaged input.
        raise RejectError(f"cannot be read to its end: {error}") from None


def feather_columns(file: BinaryIO) -> tuple[str, ...]:
    """The names of the columns, each before those of its fields; errors as for `feather_rows`."""
    schema = _open(file).schema
    check_names(schema.names)
    return tuple(names_in(fields_of(schema)))


def _open(file: BinaryIO, wanted: list[int] | None = None) -> Any:
    pa = require("pyarrow", "beam", ".feather and .arrow files")
    options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
    open_ = pa.ipc.open_stream if _is_stream(file) else pa.ipc.open_file
    file.seek(0)
    try:
        reader = open_(file, options=options)
        fields_of(reader.schema)  # Raises if a name is not UTF-8.
        return reader
    except Exception as error:
        raise RejectError(f"not an Arrow file that can be read: {error}") from None


def _batches(reader: Any) -> Iterator[Any]:
    if not hasattr(reader, "num_record_batches"):
        return iter(reader)
    return map(reader.get_batch, range(reader.num_record_batches))


def _is_stream(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(len(_OF_FILES)) != _OF_FILES
