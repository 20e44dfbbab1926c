"""The records to read: files, ranges of records, and their schema."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c

from readers.format.schema import Schema
from readers.order.split import shard_ranges

# The split of files that no manifest describes.
ALL = "all"

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True)
class Part:
    """A run of records in one file.

    Attributes:
        path: Of the file; a local one without `file://`.
        skip: Records before the run.
        take: Records of the run; None for all there are, where their number is unknown.
        total: Records of the whole file; None where unknown.
        bytes: Of the file, as the manifest says; None where there is none.
        gzipped: Whether the file is compressed with GZIP.
        crc32c: Of the file, as the manifest says; None where there is none.
    """

    path: str
    skip: int
    take: int | None
    total: int | None
    bytes: int | None = None
    gzipped: bool = False
    crc32c: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the run is the whole file."""
        return self.skip == 0 and self.take == self.total


@dataclass(frozen=True)
class Plan:
    """The records to read, and what is in them.

    Attributes:
        name: The split, with its slice, as it was asked for.
        schema: The features to decode.
        parts: In the order of the files.
        records: How many there are; None where files without manifest lack an index.
        record_bytes: Mean size of a framed record, or that of the first one; None where there is none.
        fingerprint: A text that changes whenever the records or their order do, but not when the
            dataset is moved.
        mixed: Records of each dataset, where there are several to be mixed.
    """

    name: str
    schema: Schema
    parts: tuple[Part, ...]
    records: int | None
    record_bytes: float | None
    fingerprint: tuple[Any, ...]
    mixed: tuple[int, ...] = ()

    def cut(self, start: int, stop: int) -> Plan:
        """The plan of some of its records, where their number is known."""
        takes = [part.take or 0 for part in self.parts]
        parts = tuple(
            replace(self.parts[number], skip=self.parts[number].skip + skip, take=take)
            for number, skip, take in shard_ranges(takes, start, stop)
        )
        return replace(self, parts=parts, records=stop - start)

    @property
    def gzipped(self) -> bool:
        """Whether a file is compressed with GZIP, so that it has to be read from its front."""
        return any(part.gzipped for part in self.parts)

    @property
    def digest(self) -> str:
        """The fingerprint in eight hexadecimal digits."""
        return f"{google_crc32c.value(repr(self.fingerprint).encode()):08x}"
