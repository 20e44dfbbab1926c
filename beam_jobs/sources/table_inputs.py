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

from beam_jobs.errors import RejectError, UsageError, did_you_mean
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.embedded import EmbeddedInputs, columns_of_files
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import PATH_COLUMNS, key_text
from beam_jobs.sources.rows import DEFAULT, OBJECT_KINDS, Dialect, delimiter_hint
from beam_jobs.sources.source import COLUMN, Source, column_of, names_in, values_at
from beam_jobs.sources.tables import EXPECTED, column_names, read_rows, table_kind
from beam_jobs.storage.files import open_seekable
from beam_jobs.storage.listing import match
from beam_jobs.storage.paths import absolute, absolute_path, common_root
from beam_jobs.storage.ranges import ALL, Span
from readers.files.local import is_local

# Rows that are read to learn the columns of a table: not every line of .jsonl has all of them.
SAMPLED_ROWS = 100


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
        resolved = tuple(map(absolute, tables))
        folder = _folder(root) if root else common_root([*resolved])
        paths = [path for table in tables for path in tables_of(table)]
        path_column, holds_files = _path_column(paths, path_column, needed, dialect)
        if not holds_files:
            return cls(
                resolved,
                folder,
                output,
                columns=columns,
                dialect=dialect,
                path_column=path_column,
                key=key,
            )
        if root:
            raise UsageError(
                f"--input {root}: the files are in --table itself, in column {path_column!r}: drop it"
            )
        return EmbeddedInputs(
            resolved, folder, output, columns=columns, column=path_column, key=key
        )

    @property
    def packed(self) -> bool:
        return False

    @cached_property
    def _above(self) -> str:
        """The common folder of all tables, which the keys of invalid rows are relative to."""
        return common_root(list(self.patterns))

    def spans(self, pattern: str, processes: int = 1) -> list[Span]:
        return [ALL]

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
            for row in read_rows(file, kind, gzipped, wanted, self.dialect, self.max_bytes):
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


def _path_column(
    tables: list[str], path_column: str, columns: tuple[str, ...], dialect: Dialect
) -> tuple[str, bool]:
    """The column of all tables with the paths or files, and whether it holds files.

    Takes the arguments of `_check_columns`.

    Raises:
        UsageError: a table lacks a column, or the column holds files in some tables alone.
    """
    kinds = set()
    for table in tables:
        path_column, holds_files = _check_columns(table, path_column, columns, dialect)
        kinds.add(holds_files)
    if len(kinds) > 1:
        raise UsageError(
            f"--table: column {path_column!r} holds files in some tables and paths in others: make "
            "a dataset of each"
        )
    return path_column, True in kinds


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
            hint = did_you_mean(column, header)
            raise UsageError(f"--table {path}: no column {column!r}, {found}{hint}")
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
    with usage_errors(f"--table {path}"), open_seekable(path) as file:
        names = dict.fromkeys(column_names(file, kind, gzipped, dialect))
        if kind in OBJECT_KINDS:
            file.seek(0)
            rows = read_rows(file, kind, gzipped, dialect=dialect)
            for row in itertools.islice(rows, SAMPLED_ROWS):
                names.update(dict.fromkeys(names_in(row.values or {})))
        return tuple(names)


@contextlib.contextmanager
def usage_errors(where: str) -> Iterator[None]:
    """Raises all errors of reading a table as UsageError, with a prefix."""
    try:
        yield
    except (OSError, RejectError) as error:
        raise UsageError(f"{where}: cannot be read: {error}") from None
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}") from None


def _missing(below: str) -> str:
    """Why a path of a table leads to no file; quoted, because reasons are counted without names.

    Rejects are part of the dataset, so they do not say where the folder is on this machine.
    """
    bare = "." not in below.rsplit("/", 1)[-1]
    ending = "; names need their ending, such as .jpg" if bare else ""
    return f"there is no file {below!r} below the folder of the table, or that which --input names{ending}"
