"""The plan of a reader: files, runs of records in them, and their schema."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import google_crc32c
import numpy as np

from readers.decoders.decoder import Decoder
from readers.decoders.record_work import RecordWork
from readers.format.lookup.index_file import IndexFile
from readers.format.lookup.rows import SeenRows
from readers.format.schema import Feature, Schema
from readers.order.mixture import Mix
from readers.order.split import shard_ranges
from readers.shards.rows import Rows

# The name of the single split of files without a manifest.
ALL = "all"

# The smallest and the largest shape of a feature.
Sizes = tuple[tuple[int, ...], tuple[int, ...]]

# Features to read, or also the names of the channels to keep of each; None for all.
ColumnNames = Sequence[str] | Mapping[str, Sequence[str] | None]

Paths = str | os.PathLike[str] | Rows | Sequence[str | os.PathLike[str] | Rows] | Mix


class Keys(NamedTuple):
    """What orders the records of a generation: its SHA-256, and the seed of the hashes of their keys."""

    generation: str
    seed: int


@dataclass(frozen=True)
class Part:
    """A run of records in one file.

    Attributes:
        path: The file's path; without `file://` if it is local.
        skip, take: The numbers of records before the run and in it.
        total: The number of records in the whole file; None before its index is read.
        index: The index of the file.
        bytes, crc32c: The file's size and CRC32C according to the manifest; None without a manifest.
        version: The inode and the time of the last change of a local file when the plan was made; None for other files.
        smallest_hash: The smallest hash of its records according to the manifest.
        keys: What orders its records; None if they cannot be looked up by a key.
    """

    path: str
    skip: int
    take: int
    total: int | None
    index: IndexFile
    bytes: int | None = None
    crc32c: int | None = None
    version: tuple[int, int] | None = None
    smallest_hash: int = 0
    keys: Keys | None = None

    def whole(self) -> Part:
        """All records of the file."""
        return replace(self, skip=0, take=self.total or 0)


Parts = tuple[Part, ...]


@dataclass(frozen=True)
class Plan:
    """The records to read, and their schema.

    Attributes:
        name: The split, with its slice, as the caller gave it.
        schema: The features of each record, after the work on it.
        parts: The runs of records to read, in the order of the files.
        record_bytes: The mean size of a framed record; None if there are no records.
        fingerprint: Values that change whenever the records or their order change, but not when the dataset is moved.
        mixed: The number of records and the weight of each dataset in a mixture; empty for a single dataset.
        sizes: The sizes in all splits of features of unknown shape, if the manifest has them.
        work: The work on each record after it is read; None if there is none.
        meanings: The meaning of the numbers of each feature according to the manifest, such as names of channels.
        decoders: The decoders that keep some of these channels.
        rows: The records of the parts that are read, and their order; None for all, one part after another.
        generations: The SHA-256 of the manifests, if the datasets have one.
        elsewhere: Feature -> the parts that have it, with as many records, for features that are not in `parts`.
    """

    name: str
    schema: Schema
    parts: Parts
    records: int
    record_bytes: float | None
    fingerprint: tuple[Any, ...]
    mixed: tuple[tuple[int, float], ...] = ()
    sizes: Mapping[str, Sizes] = field(default_factory=dict)
    work: RecordWork | None = None
    meanings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    rows: SeenRows | None = None
    generations: tuple[str, ...] = ()
    elsewhere: Mapping[str, Parts] = field(default_factory=dict)

    @property
    def takes(self) -> list[int]:
        """The number of stored records in each part."""
        return [part.take for part in self.parts]

    @property
    def counts(self) -> list[int]:
        """The number of records that are read of each part."""
        if self.rows is None:
            return self.takes
        return self.rows.counts(np.cumsum(self.takes)).tolist()

    @property
    def undecoded(self) -> Mapping[str, Feature]:
        """The features before the work on each record, except those that a decoder makes."""
        if self.work is None:
            return self.schema
        decoders = self.work.decoders
        return {name: f for name, f in self.work.stored.items() if name not in decoders}

    @property
    def stored(self) -> Schema:
        """The features before the work on each record."""
        return self.work.stored if self.work else self.schema

    @property
    def files(self) -> list[Plan]:
        """The plans of the files to read, each with the features that are there."""
        if not self.elsewhere:
            return [self]
        names, found = dict[Parts, list[str]](), []
        for name in self.stored:
            names.setdefault(self.parts_of(name), []).append(name)
        for parts, some in names.items():
            schema = self.stored.select(some)
            work = replace(self.work, stored=schema) if self.work else None
            found.append(replace(self, schema=schema, parts=parts, work=work, elsewhere={}))
        return found

    def parts_of(self, feature: str) -> Parts:
        """The parts that have a feature."""
        return self.elsewhere.get(feature, self.parts)

    def _with_parts(self, change: Callable[[Parts], Parts]) -> dict[str, Any]:
        """The fields with other parts, given a function of those of the same files."""
        elsewhere = {name: change(parts) for name, parts in self.elsewhere.items()}
        return {"parts": change(self.parts), "elsewhere": elsewhere}

    def slice(self, start: int, stop: int) -> Plan:
        """The plan for the records from `start` to before `stop`."""
        first, last, rows = (
            self.rows.cut(start, stop) if self.rows is not None else (start, stop, None)
        )
        ranges = shard_ranges(self.takes, first, last)

        def cut(parts: Parts) -> Parts:
            found = ((parts[number], skip, take) for number, skip, take in ranges)
            return tuple(replace(p, skip=p.skip + skip, take=take) for p, skip, take in found)

        return replace(self, **self._with_parts(cut), records=stop - start, rows=rows)

    def of(self, numbers: np.ndarray) -> Plan:
        """The plan for the records with some numbers, int64 [n], in this order."""
        rows = self.rows.of(numbers) if self.rows is not None else numbers
        seen = SeenRows(sum(self.takes), rows, False)
        fingerprint = (*self.fingerprint, seen.digest())
        return replace(self, records=len(numbers), rows=seen, fingerprint=fingerprint)

    def __getstate__(self) -> dict[str, Any]:
        # Another process may be on another machine, where files have other inodes.
        def moved(parts: Parts) -> Parts:
            return tuple(replace(part, version=None) for part in parts)

        return {**self.__dict__, **self._with_parts(moved)}

    @functools.cached_property
    def digest(self) -> str:
        """The fingerprint as eight hexadecimal digits."""
        return f"{google_crc32c.value(repr(self.fingerprint).encode()):08x}"
