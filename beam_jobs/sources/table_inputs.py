"""Tables as inputs: each row names or contains a file, and may have other columns for its record."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_jobs.errors import RejectError, UsageError, did_you_mean
from beam_jobs.sources.archives.archive import archive_kind
from beam_jobs.sources.archives.member import DRIVE, checked_name
from beam_jobs.sources.arrow_rows import read_row_groups
from beam_jobs.sources.chunks import file_batches, row_group_sources
from beam_jobs.sources.inputs import SAMPLED_ROWS, Inputs
from beam_jobs.sources.labels import PATH_COLUMNS, column_text
from beam_jobs.sources.rows import DEFAULT, OBJECT_KINDS, Dialect, Row
from beam_jobs.sources.source import (
    COLUMN,
    Source,
    column_of,
    names_in,
    used_columns,
    values_at,
)
from beam_jobs.sources.tables import EXPECTED, column_names, read_rows, table_kind, usage_errors
from beam_jobs.storage.files import file_infos, open_seekable
from beam_jobs.storage.listing import ALL, Span, match
from beam_jobs.storage.paths import absolute, absolute_path, common_root, spellings
from readers.files.files import FileInfo
from readers.files.local import is_local, path_text

# The fields of a struct with a file.
_BYTES, _PATH = ".bytes", ".path"

# The first bytes name the format of audio that has no path.
_ENDINGS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


@dataclass(frozen=True)
class RowInputs(Inputs):
    """Files of the rows of tables, which `patterns` match.

    Attributes:
        path_column: The column with the files or their paths, in every table.
        key: The source of keys: "path" for the path, "row" for the path and the row's number, or
            `column:NAME` for the value of a column.
        next_to_table: Whether paths are relative to the folder of their table, not to `root`.
    """

    path_column: str = ""
    next_to_table: bool = False

    @property
    def in_one_folder(self) -> bool:
        return False


@dataclass(frozen=True)
class TableInputs(RowInputs):
    """Files that the rows of tables name."""

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
            root: The folder to which paths are relative; empty for the folder of each table.
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
        patterns = tuple(map(absolute, tables))
        folder = _folder(root) if root else common_root([*patterns])
        kinds = set[bool]()
        for path in itertools.chain.from_iterable(map(tables_of, tables)):
            path_column, holds_files = _path_column(path, path_column, needed, dialect)
            kinds.add(holds_files)
        if len(kinds) > 1:
            raise UsageError(
                f"--table: column {path_column!r} holds files in some tables and paths in others: make "
                "a dataset of each"
            )
        if True in kinds and root:
            raise UsageError(
                f"--input {root}: the files are in --table itself, in column {path_column!r}: drop it"
            )
        kind = EmbeddedInputs if True in kinds else cls
        return kind(
            patterns,
            folder,
            output,
            columns=columns,
            dialect=dialect,
            path_column=path_column,
            key=key,
            next_to_table=not root,
        )

    @property
    def packed(self) -> bool:
        return False

    @cached_property
    def _above(self) -> str:
        """The common folder of all tables, to which the keys of invalid rows are relative."""
        return common_root(list(self.patterns))

    def spans(self, pattern: str, processes: int = 1) -> list[Span]:
        return [ALL]

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the files that the rows of some tables name, with a limit the first ones of the first tables by name.

        A row that cannot be read, or whose file is missing, is a source with an error.
        """
        for batch, _ in file_batches(self._named(pattern, limit)):
            infos = iter(file_infos([self.path_of(source) for source in batch if not source.error]))
            for source in batch:
                if source.error:
                    yield source
                    continue
                info = next(infos)
                if isinstance(info, FileNotFoundError):
                    source, info = self._spelled_otherwise(source, info)
                if isinstance(info, FileNotFoundError):
                    yield source._replace(error=_missing(source.file))
                elif isinstance(info, OSError):
                    yield source._replace(error=f"cannot be read: {info.strerror or info}")
                else:
                    yield source._replace(size=info.size, modified=info.modified)

    def _spelled_otherwise(
        self, source: Source, missing: OSError
    ) -> tuple[Source, FileInfo | OSError]:
        """A source whose file has the name in other letters or without blanks, and the file; else the error."""
        for path in spellings(source.file):
            if path != source.file:
                (info,) = file_infos([self.path(path)])
                if isinstance(info, FileInfo):
                    if source.path:
                        return source._replace(path=path), info
                    return source._replace(key=path), info
        return source, missing

    def named(self) -> Iterator[Source]:
        return itertools.chain.from_iterable(map(self._named, self.patterns))

    def _named(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        paths = (file.path for file in match(pattern, limit))
        return itertools.islice(itertools.chain.from_iterable(map(self._rows, paths)), limit)

    def _rows(self, path: str) -> Iterator[Source]:
        kind, gzipped = _kind_of(path)
        columns = {self.path_column, *self.columns}
        name = path[len(self._above) + 1 :]
        folder = name.rpartition("/")[0] if self.next_to_table else ""
        with open_seekable(path) as file:
            for row in read_rows(file, kind, gzipped, columns, self.dialect, self.max_bytes):
                key = f"{name}#{row.number}" if row.number else name
                try:
                    yield self._source(row, folder)
                except RejectError as error:
                    yield Source(key, error=str(error))

    def _source(self, row: Row, folder: str = "") -> Source:
        if row.values is None:
            raise RejectError(row.error)
        below = self._below(column_of(row.values, self.path_column), folder)
        key = below
        if self.key == "row":
            key = f"{below}#{row.number}"
        elif self.key != "path":
            key = column_text(row.values, self.key.removeprefix(COLUMN))
        columns = {name: _portable(v) for name, v in values_at(row.values, self.columns).items()}
        return Source(key, row=columns, path="" if self.key == "path" else below)

    def _below(self, path: Any, folder: str) -> str:
        """A path in a row, relative to the root; a relative one begins in a folder below it."""
        if not isinstance(path, str) or not path.strip() or "\0" in path:
            raise RejectError(f"column {self.path_column!r} is {path!r:.80}, expected a path")
        path = shown = path.replace("\\", "/")
        path = path_text(path) if path.startswith("file://") else path
        if path.startswith(f"{self.root}/"):
            path = path[len(self.root) + 1 :]
        elif path.startswith("/") or DRIVE.match(path) or not is_local(path):
            raise RejectError(
                f"{shown!r:.200}: it is not below {self.root or '/'}: name a folder above all files with --input"
            )
        elif folder:
            path = f"{folder}/{path}"
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not parts or ".." in parts:
            raise RejectError(f"{shown!r:.200}: expected the path of a file, without ..")
        if archive_kind(path):
            raise RejectError("an archive: name it with --input, without --table")
        return "/".join(parts)


@dataclass(frozen=True)
class EmbeddedInputs(RowInputs):
    """Files in a struct column `{bytes, path}` of Parquet tables, as Hugging Face writes images and audio.

    The rows of a row group are read from front to back, like the members of a `.tar.gz`: Parquet decodes a whole column
    chunk to return one value, so rows in another order would cost a chunk each. The path in a key is the table's path
    with the file's path or, without one, the row's number.
    """

    @property
    def packed(self) -> bool:
        return True

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields row groups, each with several megabytes; a table that cannot be read is an error."""
        groups = (row_group_sources(file, self.open) for file in self.files(pattern, limit))
        return itertools.islice(itertools.chain.from_iterable(groups), limit)

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the files in some row groups with their bytes; damaged groups end with an error."""
        start, end, first = source.groups or (0, 0, 1)
        columns = {self.path_column + _BYTES, self.path_column + _PATH, *self.columns}
        try:
            with open_seekable(self.path(source.file)) as file:
                groups = range(start, end)
                for row in read_row_groups(file, groups, columns, first, self.max_bytes):
                    yield self._file(source, row)
        except (OSError, RejectError) as error:
            yield Source(source.key, error=str(error)), b""

    def _file(self, source: Source, row: Row) -> tuple[Source, bytes]:
        """A row's file with its bytes, or with an error."""
        key = f"{source.file}#{row.number}" if row.number else source.key
        file = Source(key, 0, source.modified, source.file, error=row.error)
        if row.values is None:
            return file, b""
        try:
            data, path = self._contents(row.values)
            member = checked_name(path)
            named = f"{source.file}/{member[0]}" if member and not member[1] else ""
            if self.key.startswith(COLUMN):
                key = column_text(row.values, self.key.removeprefix(COLUMN))
            elif self.key == "path":
                key = named or key
        except RejectError as error:
            return file._replace(error=str(error)), b""
        columns = used_columns(row.values, self.columns)
        named = named or file.key + _ENDINGS.get(data[:4], "")
        return file._replace(key=key, size=len(data), row=columns, path=named), data

    def _contents(self, values: dict[str, Any]) -> tuple[bytes, str]:
        """The bytes and the path of a file; an empty path if the row has no text there."""
        value = column_of(values, self.path_column)
        if value is None:
            raise RejectError(f"column {self.path_column!r} is null")
        data, path = value["bytes"], value["path"]
        if not isinstance(data, bytes):
            raise RejectError(
                f"column {self.path_column!r} has no bytes, only the path {path!r:.200}; if such files "
                f"exist, name them with --path_column {self.path_column}{_PATH}"
            )
        return data, path if isinstance(path, str) else ""


def _folder(root: str) -> str:
    """The folder that `--input` names, without a final slash."""
    path = absolute_path(root).rstrip("/")
    if is_local(path) and not Path(path or "/").is_dir():
        raise UsageError(
            f"--input {root}: no such folder; with --table, --input is the folder that contains all files"
        )
    return path


def _path_column(
    path: str, path_column: str, columns: tuple[str, ...], dialect: Dialect
) -> tuple[str, bool]:
    """The column of a table with the paths or files, chosen if empty, and whether it holds files.

    Raises UsageError if the table lacks it, or one of the other columns.
    """
    header = _columns_of(path, dialect)
    has = f"it has {', '.join(header) or 'none'}"
    structs = [name for name in header if {name + _BYTES, name + _PATH} <= set(header)]
    if not path_column:
        usual = [name for name in PATH_COLUMNS if name in (structs or header)]
        names = structs if len(structs) == 1 else usual
        if not names:
            raise UsageError(
                f"--table {path}: no column {'/'.join(PATH_COLUMNS)}, {has}; name the one with paths: --path_column"
            )
        path_column = names[0]
    for column in (path_column, *columns):
        if column not in header:
            hint = did_you_mean(column, header)
            raise UsageError(f"--table {path}: no column {column!r}, {has}{hint}")
    if path_column in structs and table_kind(path) != ("parquet", False):
        raise UsageError(
            f"--table {path}: column {path_column!r} holds files, which are read only from .parquet: convert it"
        )
    return path_column, path_column in structs


def _portable(value: Any) -> Any:
    """The value as JSON allows it: bytes, numbers that are not finite, and the like become text."""
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
    """The paths that a `--table` flag names, sorted; UsageError if no file matches, or one is not a table."""
    paths = sorted(file.path for file in match(absolute(pattern)))
    if not paths:
        raise UsageError(f"--table {pattern}: no file matches; check it with ls")
    for path in paths:
        _kind_of(path)
    return paths


def _kind_of(path: str) -> tuple[str, bool]:
    """The kind of a table, and whether it is gzipped; UsageError if it is not a table."""
    kind = table_kind(path)
    if kind is None:
        raise UsageError(f"--table {path}: {EXPECTED}")
    return kind


def _columns_of(path: str, dialect: Dialect) -> tuple[str, ...]:
    """The names of a table's columns and of their fields; for .jsonl and .json, those in the first objects."""
    kind, gzipped = _kind_of(path)
    with usage_errors(f"--table {path}"), open_seekable(path) as file:
        names = dict.fromkeys(column_names(file, kind, gzipped, dialect))
        if kind in OBJECT_KINDS:
            file.seek(0)
            rows = read_rows(file, kind, gzipped, dialect=dialect)
            for row in itertools.islice(rows, SAMPLED_ROWS):
                names.update(dict.fromkeys(names_in(row.values or {})))
        return tuple(names)


def _missing(below: str) -> str:
    """Why a path of a table leads to no file; quoted, because reasons are counted without names.

    Rejects are part of the dataset, so they do not name the folder on this machine.
    """
    bare = "." not in below.rsplit("/", 1)[-1]
    ending = "; names need their ending, such as .jpg" if bare else ""
    return f"no file {below!r} in the folder of the table, or of --input{ending}"
