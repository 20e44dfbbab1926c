"""Rows of Arrow's record batches as Python objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from beam_jobs.packages import require

# Rows in memory at once: only a few if they hold images, but each batch costs 0.1 ms.
BATCH_ROWS = 1024


def fields_of(parent: Any) -> dict[str, Any]:
    """The fields of an Arrow schema or struct by name: None, or fields in turn."""
    pa = require("pyarrow", "beam", ".parquet files")
    return {f.name: fields_of(f.type) if pa.types.is_struct(f.type) else None for f in parent}


def batch_rows(batch: Any) -> Iterator[tuple[dict[str, Any] | None, str]]:
    """Yields (values, "") for each row of a batch, or (None, why it cannot be read)."""
    try:
        batch.validate(full=True)
        columns = [_values(column) for column in batch.columns]
    except Exception as error:
        if batch.num_rows == 1:
            yield None, f"cannot be read: {error}"
        else:
            for i in range(batch.num_rows):
                yield from batch_rows(batch.slice(i, 1))
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
