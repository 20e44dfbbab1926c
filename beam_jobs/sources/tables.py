"""Tables of all formats: their rows, one by one in constant memory, and the names of their columns."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.arrow_rows import (
    ARROW_KINDS,
    arrow_columns,
    class_names,
    feather_rows,
    read_row_groups,
)
from beam_jobs.sources.delimited import DELIMITERS
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.rows import (
    DEFAULT,
    OBJECT_KINDS,
    TEXT_KINDS,
    Dialect,
    Row,
    text_header,
    text_rows,
)
from beam_jobs.sources.source import names_in
from beam_jobs.storage.files import open_seekable
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES
from beam_jobs.storage.listing import match

# A column with more names of splits is the wrong one. A dataset has at most `placement.MAX_SPLITS`.
_MAX_SPLIT_NAMES = 256

EXPECTED = f"expected .{', .'.join(TEXT_KINDS)} (each also .gz), .{', .'.join(ARROW_KINDS)}; convert other files"


def table_kind(path: str) -> tuple[str, bool] | None:
    """A table's kind, as its name indicates, and whether it is gzipped; None for a file that is not a table."""
    name = path.lower()
    gzipped = name.endswith(".gz")
    _, dot, kind = name.removesuffix(".gz").rpartition(".")
    kinds = TEXT_KINDS if gzipped else (*TEXT_KINDS, *ARROW_KINDS)
    return (kind, gzipped) if dot and kind in kinds else None


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
        if kind == "parquet":
            for row in read_row_groups(file, None, columns, 1, most_bytes):
                yield row
                if not row.number:
                    return
        elif kind in ARROW_KINDS:
            yield from feather_rows(file, columns, most_bytes)
        else:
            yield from text_rows(file, kind, gzipped, dialect)
    except RejectError as error:
        yield Row(0, None, str(error))


def column_names(
    file: BinaryIO, kind: str, gzipped: bool, dialect: Dialect = DEFAULT
) -> tuple[str, ...]:
    """The column names of a table, and those of fields in columns of objects, such as `meta.cls`.

    The columns of .jsonl and .json are the keys of the first object. Arguments and errors as for `read_rows`, but a
    file that cannot be read is a RejectError.
    """
    if kind in ARROW_KINDS:
        return arrow_columns(file, kind)
    if kind not in OBJECT_KINDS:
        return text_header(file, kind, gzipped, dialect)
    rows = text_rows(file, kind, gzipped, dialect)
    return next((tuple(names_in(row.values)) for row in rows if row.values is not None), ())


def stated_classes(inputs: Inputs, column: str) -> tuple[str, ...]:
    """The names of classes by id that Parquet tables state for a column; empty if they state none.

    Tables that cannot be read are skipped; they are rejected when records are made. Raises UsageError if a table states
    other names than the first.
    """
    # One file shows whether they are Parquet. Listing all of a million texts would take as long as the job.
    first_files = (file for pattern in inputs.patterns for file in match(pattern, limit=1))
    if any(table_kind(file.path) != ("parquet", False) for file in first_files):
        return ()
    first, names = "", tuple[str, ...]()
    for path in sorted(file.path for pattern in inputs.patterns for file in match(pattern)):
        if table_kind(path) != ("parquet", False):
            return ()
        try:
            with open_seekable(path) as file:
                stated = class_names(file, column)
        except (OSError, RejectError):
            continue
        if first and stated != names:
            raise UsageError(
                f"label column {column!r}: {path} states other classes than {first}: make a dataset of each"
            )
        first, names = path, stated
        if not names:
            return ()
    return names


def split_names(inputs: Inputs, column: str) -> list[str]:
    """The names of splits in a column of tables: `train` first, the others sorted.

    Rows without a valid name are ignored; they are rejected when records are made.

    Raises:
        UsageError: a file is not a table or cannot be read, or it has no names, or too many.
    """
    names: set[str] = set()
    for path in (file.path for pattern in inputs.patterns for file in match(pattern)):
        kind = table_kind(path)
        if kind is None:
            raise UsageError(
                f"--split_column {column}: {path} is not a table, so its names are not known: add --splits train,val"
            )
        with usage_errors(f"--split_column {column}: {path}"), open_seekable(path) as file:
            for row in read_rows(file, *kind, {column}, inputs.dialect):
                with contextlib.suppress(RejectError):
                    names.add(column_text(row.values or {}, column))
                if len(names) > _MAX_SPLIT_NAMES:
                    raise UsageError(
                        f"it has more than {_MAX_SPLIT_NAMES} different values, too many for splits"
                    )
    if not names:
        raise UsageError(
            f"--split_column {column}: no row has a name in it; is it the right column?"
        )
    return sorted(names, key=lambda name: (name != "train", name))


@contextlib.contextmanager
def usage_errors(where: str) -> Iterator[None]:
    """Raises all errors of reading a table as UsageError, with a prefix."""
    try:
        yield
    except (OSError, RejectError) as error:
        raise UsageError(f"{where}: cannot be read: {error}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None
