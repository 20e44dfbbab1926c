"""Tables as inputs: each row names a file, and may have other columns for its record."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.embedded import EmbeddedInputs, columns_of_files
from beam_jobs.sources.formats.parquet import class_names
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import PATH_COLUMNS, key_text
from beam_jobs.sources.rows import DEFAULT, DELIMITERS, OBJECT_KINDS, Dialect, delimiter_hint
from beam_jobs.sources.source import COLUMN, Source, column_of, names_in, values_at
from beam_jobs.sources.tables import EXPECTED, column_names, distinct, read_rows, table_kind
from beam_jobs.storage.files import open_seekable
from beam_jobs.storage.listing import match
from beam_jobs.storage.paths import absolute, absolute_path, common_root, is_local

# With more names of splits, it is the wrong column. A dataset has at most `placement.MAX_SPLITS`.
_MAX_SPLIT_NAMES = 256

# Rows that are read to learn the columns of a table: not every line of .jsonl has all of them.
_SAMPLED_ROWS = 100


@dataclass(frozen=True)
class TableInputs(Inputs):
    """Files that the rows of tables name, by paths relative to `root`; `patterns` match the tables.

    Attributes:
        path_column: The column with the paths, in every table.
        key: What a record's key is: "path" for the path, "row" for the path and the row's number, or
            `column:NAME` for the value of a column.
    """

    path_column: str = ""

    @classmethod
    def of_tables(
        cls,
        tables: list[str],
        root: str,
        path_column: str,
        columns: tuple[str, ...],
        key: str = "path",
        output: str = "",
        dialect: Dialect = DEFAULT,
        complete: bool = True,
    ) -> TableInputs | EmbeddedInputs:
        """The inputs that `--table` flags name: files by their paths, or files inside Parquet.

        Args:
            tables: Patterns of tables.
            root: The folder that paths are relative to; empty for the tables' common folder.
            path_column: The column with the paths or files; empty for the only one with files, or one
                of `PATH_COLUMNS`.
            columns: The other columns to read.
            key: The attribute `key`.
            output: A directory whose files are skipped.
            dialect: How the tables are written.
            complete: Whether the tables must have all of `columns`.

        Raises:
            UsageError: a table is missing or lacks a column, `root` is not a folder, or `key` is invalid.
        """
        if key not in ("path", "row") and not key.startswith(COLUMN):
            raise UsageError(f"--key {key}: expected path, row or {COLUMN}NAME")
        needed = columns if complete else ()
        if key.startswith(COLUMN):
            needed = (*needed, key.removeprefix(COLUMN))
            columns = (*columns, key.removeprefix(COLUMN))
        resolved = [absolute(table) for table in tables]
        folder = _folder(root) if root else common_root(resolved)
        paths = [path for given in tables for path in tables_of(given)]
        if dialect.delimiter and not any(_kind_of(path)[0] in DELIMITERS for path in paths):
            raise UsageError(
                f"--delimiter {dialect.delimiter}: none of the tables is a .csv or .tsv: drop it"
            )
        kinds = set()
        for path in paths:
            path_column, holds_files = _check_columns(path, path_column, needed, dialect)
            kinds.add(holds_files)
        if len(kinds) > 1:
            raise UsageError(
                f"--table: column {path_column!r} holds files in some tables and paths in others: make "
                "a dataset of each"
            )
        if True in kinds:
            if root:
                raise UsageError(
                    f"--input {root}: the files are in --table itself, in column {path_column!r}: drop it"
                )
            return EmbeddedInputs(
                tuple(resolved), folder, output, columns=columns, column=path_column, key=key
            )
        return cls(
            tuple(resolved),
            folder,
            output,
            columns=columns,
            dialect=dialect,
            path_column=path_column,
            key=key,
        )

    @property
    def packed(self) -> bool:
        return False

    @cached_property
    def _above(self) -> str:
        """The common folder of all tables, which the keys of invalid rows are relative to."""
        return common_root(list(self.patterns))

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the files that the rows of some tables name.

        A row that cannot be read is a source with an error.

        Args:
            pattern: One of `patterns`.
            limit: Maximum number of rows, the first ones of the first tables by name.
        """
        paths = (file.path for file in match(pattern, limit))
        return itertools.islice(itertools.chain.from_iterable(map(self._rows, paths)), limit)

    def _rows(self, path: str) -> Iterator[Source]:
        kind, gzipped = _kind_of(path)
        wanted = {self.path_column, *self.columns}
        name = path[len(self._above) + 1 :]
        with open_seekable(path) as file:
            for row in read_rows(file, kind, gzipped, wanted, self.dialect):
                key = f"{name}#{row.number}" if row.number else name
                if row.values is None:
                    yield Source(key, error=row.error)
                    continue
                try:
                    yield self._source(row.number, row.values)
                except RejectError as error:
                    yield Source(key, error=str(error))

    def _source(self, number: int, values: dict[str, Any]) -> Source:
        below = self._below(column_of(values, self.path_column))
        row = {name: _portable(v) for name, v in values_at(values, self.columns).items()}
        source = Source(below, row=row)
        if self.key == "row":
            source = source._replace(key=f"{below}#{number}", path=below)
        elif self.key != "path":
            name = key_text(values, self.key.removeprefix(COLUMN))
            source = source._replace(key=name, path=below)
        path = self.path(below)
        if not is_local(path):
            return source
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return source._replace(error=_missing(below))
        except OSError as error:
            return source._replace(error=f"cannot be read: {error.strerror}")
        if not stat.S_ISREG(status.st_mode):
            return source._replace(error="not a file")
        return source._replace(size=status.st_size, modified=status.st_mtime_ns)

    def _below(self, path: Any) -> str:
        """A path in a row, relative to the root.

        Raises:
            RejectError: the value is not a path of a file under the root.
        """
        if not isinstance(path, str) or not path or "\0" in path:
            raise RejectError(f"column {self.path_column!r} is {path!r:.80}, expected a path")
        key = path
        if path.startswith("/") or not is_local(path):
            key = path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else ""
        parts = [part for part in key.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise RejectError(
                f"{path!r:.200}: expected a path without .. below {self.root or '/'}: name a folder "
                "above all files with --input"
            )
        if archive_kind(key):
            raise RejectError("an archive: name it with --input, without a --table")
        return "/".join(parts)


def _folder(root: str) -> str:
    """The folder that `--input` names, without a final slash.

    Raises:
        UsageError: there is no such local folder.
    """
    path = absolute_path(root).rstrip("/")
    if is_local(path) and not Path(path or "/").is_dir():
        raise UsageError(
            f"--input {root}: no such folder; with --table, --input is the folder that contains all files"
        )
    return path


def _check_columns(
    path: str, path_column: str, columns: tuple[str, ...], dialect: Dialect
) -> tuple[str, bool]:
    """Checks that a table has all columns; returns the one with the paths, and whether it holds files.

    Args:
        path: The table's path.
        path_column: The column with the paths; empty to choose one.
        columns: The other columns.
        dialect: How the table is written.

    Raises:
        UsageError: the table lacks a column.
    """
    header = _columns_of(path, dialect)
    found = f"it has {', '.join(header) or 'none'}{delimiter_hint(header)}"
    held = columns_of_files(header)
    if not path_column:
        names = held if len(held) == 1 else [n for n in PATH_COLUMNS if n in (held or header)]
        if not names:
            raise UsageError(
                f"--table {path}: no column {'/'.join(PATH_COLUMNS)}, {found}; name the one with "
                "the paths: --path_column"
            )
        path_column = names[0]
    for column in (path_column, *columns):
        if column not in header:
            raise UsageError(f"--table {path}: no column {column!r}, {found}")
    if path_column in held and table_kind(path) != ("parquet", False):
        raise UsageError(
            f"--table {path}: column {path_column!r} holds files, which are read from .parquet alone: "
            "write the table as Parquet, such as with to_parquet"
        )
    return path_column, path_column in held


def _portable(value: Any) -> Any:
    """A value that JSON can hold: bytes, numbers that are not finite, and the like become text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return list(map(_portable, value))
    if isinstance(value, dict):
        return {str(name): _portable(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def tables_of(pattern: str) -> list[str]:
    """The paths that a `--table` flag names, sorted.

    Raises:
        UsageError: no file matches, or one is not a table.
    """
    paths = sorted(file.path for file in match(absolute(pattern)))
    if not paths:
        raise UsageError(f"--table {pattern}: no file matches; check it with ls")
    for path in paths:
        _kind_of(path)
    return paths


def _kind_of(path: str) -> tuple[str, bool]:
    """The kind of a table, and whether it is gzipped.

    Raises:
        UsageError: the file is not a table.
    """
    kind = table_kind(path)
    if kind is None:
        raise UsageError(f"--table {path}: {EXPECTED}")
    return kind


def _columns_of(path: str, dialect: Dialect) -> tuple[str, ...]:
    """The names of the columns of a table and of their fields; of .jsonl and .json those in the first
    objects.

    Raises:
        UsageError: the table cannot be read, or two columns have the same name.
    """
    kind, gzipped = _kind_of(path)
    with _usage_errors(f"--table {path}"), open_seekable(path) as file:
        names = dict.fromkeys(column_names(file, kind, gzipped, dialect))
        if kind in OBJECT_KINDS:
            file.seek(0)
            rows = read_rows(file, kind, gzipped, dialect=dialect)
            for row in itertools.islice(rows, _SAMPLED_ROWS):
                names.update(dict.fromkeys(names_in(row.values or {})))
        return tuple(names)


@contextlib.contextmanager
def _usage_errors(where: str) -> Iterator[None]:
    """Raises all errors of reading a table as UsageError, with a prefix."""
    try:
        yield
    except (OSError, RejectError) as error:
        raise UsageError(f"{where}: cannot be read: {error}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None


def known_columns(inputs: Inputs) -> set[str]:
    """The names of the columns that the first inputs have as metadata."""
    first = (inputs.first(pattern, _SAMPLED_ROWS) for pattern in inputs.patterns)
    return {name for source, _ in itertools.chain.from_iterable(first) for name in source.row}


def first_value(inputs: Inputs, column: str) -> Any:
    """The first value of a column in the first rows; None if they have none."""
    for pattern in inputs.patterns:
        for source, _ in inputs.first(pattern, _SAMPLED_ROWS):
            if source.row.get(column) not in (None, ""):
                return source.row[column]
    return None


def stated_classes(inputs: Inputs, column: str) -> tuple[str, ...]:
    """The names of classes by id that Parquet tables state of a column; empty if they state none.

    Tables that cannot be read are passed over; they become rejects where records are made.

    Raises:
        UsageError: a table states others than the first.
    """
    first = ""
    names: tuple[str, ...] = ()
    for path in sorted(file.path for pattern in inputs.patterns for file in match(pattern)):
        if table_kind(path) != ("parquet", False):
            return ()
        try:
            with open_seekable(path) as file:
                found = class_names(file, column)
        except (OSError, RejectError):
            continue
        if first and found != names:
            raise UsageError(
                f"label column {column!r}: {path} states other classes than {first}: make a dataset of "
                "each"
            )
        first, names = path, found
        if not names:
            return ()
    return names


def holds_lists(column: str, value: Any) -> bool:
    """Whether a column of labels holds lists of them.

    Args:
        column: The column.
        value: Its first value; None if it has none.

    Raises:
        UsageError: the value is a number that is not whole.
    """
    if isinstance(value, float) and not value.is_integer() and not math.isnan(value):
        raise UsageError(
            f"label column {column!r} holds {value!r}, and labels are classes: keep numbers with "
            f"--target {COLUMN}{column} instead"
        )
    return isinstance(value, list)


def split_names(inputs: Inputs, column: str, flag: str = "--split_column") -> list[str]:
    """The names of splits in a column of tables: `train` first, the others sorted.

    Rows without a valid name are ignored; they are rejected where records are made.

    Raises:
        UsageError: a file is not a table or cannot be read, or there are no names, or too many.
    """
    found: set[str] = set()
    for pattern in inputs.patterns:
        for path, *_ in match(pattern):
            kind = table_kind(path)
            if kind is None:
                raise UsageError(
                    f"{flag} {column}: {path} is not a table, so the names in the column are not known "
                    "before its records are read: give --splits train,val, or for groups --folds 10"
                )
            where = f"{flag} {column}: {path}"
            with _usage_errors(where), open_seekable(path) as file:
                rows = read_rows(file, *kind, {column}, inputs.dialect)
                found |= set(distinct(rows, column, _MAX_SPLIT_NAMES))
    if not found:
        raise UsageError(f"{flag} {column}: no row has a name there; is it the right column?")
    return sorted(found, key=lambda name: (name != "train", name))


def _missing(below: str) -> str:
    """Why a path of a table leads to no file; quoted, because reasons are counted without names.

    Rejects are part of the dataset, so they do not say where the folder is on this machine.
    """
    bare = "." not in below.rsplit("/", 1)[-1]
    ending = "; names need their ending, such as .jpg" if bare else ""
    return f"there is no file {below!r} below the folder of the table, or that which --input names{ending}"
