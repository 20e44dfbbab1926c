"""Tables of all formats: their rows, one by one in constant memory, and the names of their columns."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.arrow_rows import ARROW_KINDS, arrow_columns, arrow_rows
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.rows import (
    DEFAULT,
    DELIMITERS,
    OBJECT_KINDS,
    TEXT_KINDS,
    Dialect,
    Row,
    text_header,
    text_rows,
)
from beam_jobs.sources.source import names_in
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES


EXPECTED = f"expected .{', .'.join(TEXT_KINDS)} (each also .gz), .{', .'.join(ARROW_KINDS)}; convert other files"


def table_kind(path: str) -> tuple[str, bool] | None:
    """A table's kind, as its name indicates, and whether it is gzipped.

    Returns:
        (one of `TEXT_KINDS` or `ARROW_KINDS`, whether gzipped); None for a file that is not a table.
    """
    name = path.lower()
    gzipped = name.endswith(".gz")
    _, dot, kind = name.removesuffix(".gz").rpartition(".")
    if not dot or kind not in (*TEXT_KINDS, *ARROW_KINDS):
        return None
    return None if gzipped and kind in ARROW_KINDS else (kind, gzipped)


def has_delimiter(path: str) -> bool:
    """Whether a file is a table whose columns have a delimiter, as its name indicates."""
    kind = table_kind(path)
    return kind is not None and kind[0] in DELIMITERS


def read_rows(
    file: BinaryIO,
    kind: str,
    gzipped: bool,
    columns: Collection[str] | None = None,
    dialect: Dialect = DEFAULT,
    most_bytes: int = DEFAULT_RECORD_BYTES,
) -> Iterator[Row]:
    """Yields every row of a table, including those that cannot be read.

    Values are text in .csv and .tsv, JSON values in .jsonl and .json, and Python's own in other
    formats, except that dates and times are text in ISO 8601 (in UTC if they have a time zone), and decimals are text.
    A file that cannot be read to its end ends with a row of number 0.

    Args:
        file: The table, at its beginning; seekable if its kind is one of `ARROW_KINDS`.
        kind, gzipped: The kind, from `table_kind`.
        columns: The columns or fields to read from formats in `ARROW_KINDS`; other tables yield all.
        dialect: How a table of text is written.
        most_bytes: The most bytes of a row in formats in `ARROW_KINDS`; `MAX_LINE_BYTES` in others.

    Raises:
        UsageError: two columns have the same name.
    """
    try:
        if kind in ARROW_KINDS:
            yield from arrow_rows(file, kind, columns, most_bytes)
        else:
            yield from text_rows(file, kind, gzipped, dialect)
    except RejectError as error:
        yield Row(0, None, str(error))


def column_names(
    file: BinaryIO, kind: str, gzipped: bool, dialect: Dialect = DEFAULT
) -> tuple[str, ...]:
    """The column names of a table, and those of fields in columns of objects, such as `meta.cls`.

    Those of .jsonl and .json are the keys of the first object.

    Takes the arguments of `read_rows`.

    Raises:
        RejectError: the file cannot be read.
        UsageError: two columns have the same name.
    """
    if kind in ARROW_KINDS:
        return arrow_columns(file, kind)
    if kind not in OBJECT_KINDS:
        return text_header(file, kind, gzipped, dialect)
    rows = text_rows(file, kind, gzipped, dialect)
    return next((tuple(names_in(row.values)) for row in rows if row.values is not None), ())


def distinct(rows: Iterable[Row], column: str, limit: int) -> list[str]:
    """The different labels in a column, sorted.

    Rows without a valid label are ignored; they are rejected where records are made.

    Raises:
        UsageError: the column has more than `limit` labels.
    """
    found: set[str] = set()
    for row in rows:
        with contextlib.suppress(RejectError):
            found.add(column_text(row.values or {}, column))
        if len(found) > limit:
            raise UsageError(
                f"column {column!r} has more than {limit} different values: these are not "
                "classes; name another column"
            )
    return sorted(found)
