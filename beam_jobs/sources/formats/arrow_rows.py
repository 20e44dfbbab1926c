"""Rows of Arrow's record batches as Python objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.packages import require
from beam_jobs.storage.limits import check_bytes

# Rows in memory at once: only a few if they hold images, but each batch costs 0.1 ms.
BATCH_ROWS = 1024

# Of rows that are unpacked at once, where values of dictionaries are repeated.
_UNPACKED_BYTES = 64 << 20


# What Arrow may allocate for a batch beside its largest row, and for the pages of a column: a buffer, a page
# and a dictionary have a megabyte each. But the header of a page may state 2 GiB, and a few bytes may repeat a
# large value in each row.
_BATCH_BYTES = 512 << 20
_COLUMN_BYTES = 4 << 20


def arrow_memory(columns: int, most_bytes: int) -> int:
    """How many bytes Arrow may allocate to unpack some rows of a Parquet file.

    Args:
        columns: The number of columns in the file, and of fields in them.
        most_bytes: The most bytes that a row may take, or a recording.
    """
    return _BATCH_BYTES + columns * _COLUMN_BYTES + 2 * most_bytes


def fields_of(parent: Any) -> dict[str, Any]:
    """The fields of an Arrow schema or struct by name: None, or fields in turn."""
    pa = require("pyarrow", "beam", ".parquet files")
    return {f.name: fields_of(f.type) if pa.types.is_struct(f.type) else None for f in parent}


def _longest(values: Any) -> int:
    """How many bytes the longest text takes; of other values, all."""
    import pyarrow.compute

    try:
        lengths = pyarrow.compute.binary_length(values)
    except NotImplementedError:
        return int(values.nbytes)
    return int(pyarrow.compute.max(lengths).as_py() or 0)


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
    """How many bytes an Arrow array takes without dictionaries; with one that is inside, at most."""
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
