"""Tables: the rows of .csv, .tsv, .jsonl and .parquet files, one by one in constant memory."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.labels import label_text
from beam_jobs.sources.parquet import _open_parquet, _parquet_rows
from beam_jobs.sources.rows import (
    _DELIMITERS,
    Row,
    _check_names,
    _delimited_rows,
    _header,
    _read_to_its_end,
    _split_rows,
    _unpacked,
    json_row,
    numbered_lines,
)


def table_kind(path: str) -> tuple[str, bool] | None:
    """A table's kind ("csv", "tsv", "jsonl" or "parquet") by its name, and whether it is gzipped.

    None for a file that is no table.
    """
    name = path.lower()
    packed = name.endswith(".gz")
    _, dot, kind = name.removesuffix(".gz").rpartition(".")
    if not dot or kind not in (*_DELIMITERS, "jsonl", "parquet"):
        return None
    return None if packed and kind == "parquet" else (kind, packed)


def read_rows(
    file: BinaryIO, kind: str, gzipped: bool, columns: Collection[str] | None = None
) -> Iterator[Row]:
    """Yields every row of a table, those that cannot be read included.

    The values are text in .csv and .tsv, what JSON has in .jsonl, and Python's own in .parquet:
    dates and times are ISO 8601 there (those with a time zone in UTC), decimal numbers text.
    A file that cannot be read to its end ends with a row of number 0.

    Args:
        file: At its beginning; of .parquet one that can seek.
        kind, gzipped: As `table_kind` gives them.
        columns: Those to read of .parquet, of which there may be fewer; other tables give all.

    Raises:
        UsageError: Two columns have one name.
    """
    try:
        if kind == "parquet":
            yield from _parquet_rows(_open_parquet(file), columns)
            return
        with _read_to_its_end():
            text = _unpacked(file, gzipped)
            if kind == "jsonl":
                yield from itertools.starmap(json_row, numbered_lines(text))
            else:
                yield from _delimited_rows(text, _DELIMITERS[kind])
    except RejectError as error:
        yield Row(0, None, str(error))


def column_names(file: BinaryIO, kind: str, gzipped: bool) -> tuple[str, ...]:
    """The names of a table's columns; of .jsonl the keys of the first line that is an object.

    Args:
        file, kind, gzipped: As `read_rows` takes them.

    Raises:
        RejectError: The file cannot be read.
        UsageError: Two columns have one name.
    """
    if kind == "parquet":
        names = _open_parquet(file).schema_arrow.names
        _check_names(names)
        return tuple(names)
    if kind == "jsonl":
        for row in read_rows(file, kind, gzipped):
            if row.values is not None:
                return tuple(row.values)
            if not row.number:
                raise RejectError(row.error)
        return ()
    with _read_to_its_end():
        rows = _split_rows(_unpacked(file, gzipped), _DELIMITERS[kind])
        return tuple(_header(rows))


def distinct(rows: Iterable[Row], column: str, limit: int) -> list[str]:
    """The different labels that a column holds, sorted.

    Rows without a usable one are passed over: they are rejected where records are made.

    Raises:
        UsageError: There are more than `limit`.
    """
    found: set[str] = set()
    for row in rows:
        with contextlib.suppress(RejectError):
            found.add(label_text((row.values or {}).get(column)))
        if len(found) > limit:
            raise UsageError(
                f"column {column!r} has more than {limit} different values: these are no "
                "classes; name another column"
            )
    return sorted(found)
