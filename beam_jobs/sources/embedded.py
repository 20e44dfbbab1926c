"""Files inside Parquet: images or audio in a struct column `{bytes, path}`, as Hugging Face writes them.

The rows of a row group are read from front to back, like the members of a `.tar.gz`: Parquet decodes
a whole column chunk to return one value, so rows in another order would cost a chunk each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import checked_name
from beam_jobs.sources.arrow_rows import read_row_groups
from beam_jobs.sources.chunks import row_group_sources
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.rows import Row
from beam_jobs.sources.source import COLUMN, RowGroups, Source, column_of, used_columns
from beam_jobs.storage.files import open_seekable

# The fields of a struct that holds a file.
_BYTES, _PATH = ".bytes", ".path"

# The first bytes name the format of audio that has no path.
_ENDINGS = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}


def columns_of_files(names: tuple[str, ...]) -> list[str]:
    """The columns of a Parquet table, named as by `column_names`, that hold files."""
    return [name for name in names if {name + _BYTES, name + _PATH} <= set(names)]


@dataclass(frozen=True)
class EmbeddedInputs(Inputs):
    """The files in a column of Parquet tables; `patterns` match the tables.

    Attributes:
        column: The struct column with the files.
        key: What a record's key is: "path" for the table's path with the file's own or, if it has none,
            the row's number; "row" for the number; or `column:NAME` for the value of a column.
    """

    column: str = ""
    key: str = "path"

    @property
    def packed(self) -> bool:
        return True

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields row groups, each with several megabytes; a table that cannot be read is an error."""
        groups = (row_group_sources(file, self.open) for file in self.files(pattern, limit))
        return itertools.islice(itertools.chain.from_iterable(groups), limit)

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the files in some row groups with their bytes; damaged groups end with an error."""
        start, end, first = source.groups or RowGroups(0, 0, 1)
        wanted = {self.column + _BYTES, self.column + _PATH, *self.columns}
        try:
            with open_seekable(self.path(source.file)) as opened:
                for row in read_row_groups(
                    opened, range(start, end), wanted, first, self.max_bytes
                ):
                    yield self._file(source, row)
        except (OSError, RejectError) as error:
            yield Source(source.key, error=str(error)), b""

    def _file(self, source: Source, row: Row) -> tuple[Source, bytes]:
        """A row's file with its bytes, or with an error."""
        key = f"{source.file}#{row.number}" if row.number else source.key
        found = Source(key, 0, source.modified, source.file, error=row.error)
        if row.values is None:
            return found, b""
        try:
            data, path = self._contents(row.values)
            inside = checked_name(path)
            named = f"{source.file}/{inside[0]}" if inside and not inside[1] else ""
            if self.key.startswith(COLUMN):
                key = column_text(row.values, self.key.removeprefix(COLUMN))
            elif self.key == "path":
                key = named or key
        except RejectError as error:
            return found._replace(error=str(error)), b""
        return (
            found._replace(
                key=key,
                size=len(data),
                row=used_columns(row.values, self.columns),
                path=named or found.key + _ENDINGS.get(data[:4], ""),
            ),
            data,
        )

    def _contents(self, values: dict[str, Any]) -> tuple[bytes, str]:
        """The bytes and the path of a file; an empty path if the row has no text there.

        Raises:
            RejectError: the row has no bytes.
        """
        held = column_of(values, self.column)
        if held is None:
            raise RejectError(f"column {self.column!r} is null")
        data, path = held["bytes"], held["path"]
        if not isinstance(data, bytes):
            raise RejectError(
                f"column {self.column!r} has no bytes, only the path {path!r:.200}; if such files "
                f"exist, name them with --path_column {self.column}{_PATH}"
            )
        return data, path if isinstance(path, str) else ""
