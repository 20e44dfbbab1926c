"""Reads records of a complete dataset as they are stored: their frames, and their numbers in the indexes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.files import files_of
from readers.files.files import Range
from readers.format.decode.batches import ColumnDecoder
from readers.format.encode.records import map_order
from readers.format.index import HASH, HASH_LOW, OFFSET, Index, numbers_of
from readers.format.lookup.sections import sections
from readers.format.lookup.seen import seen_rows
from readers.format.manifest import Manifest, join
from readers.format.protobuf.wire import fields, varint
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame_all, intact

# The bytes of records that are read and copied at a time, and those between two records that are read together.
_AT_ONCE, _GAP_BYTES = 16 << 20, 64 << 10


def rows_in_order(directory: str, split: Split) -> np.ndarray:
    """The rows of a split that readers see, int64 [n], in the order of the hashes of their keys.

    Raises the errors of `seen_rows` and of `sections`.
    """
    seen, hashes = seen_rows(directory, split), [np.empty(0, np.uint64)]
    rows = np.arange(split.stored) if seen is None else seen.of(np.arange(len(seen)))
    for columns in sections(directory, split.shards, [HASH, HASH_LOW]):
        hashes.append(columns[HASH].astype(np.uint64) << np.uint64(32) | columns[HASH_LOW])
    return rows[np.argsort(np.concatenate(hashes)[rows], kind="stable")]


class Frames(NamedTuple):
    """Some stored records: their frames, one after another, the size of each, int64 [n], and sections of the index."""

    data: bytes
    lengths: np.ndarray
    numbers: dict[str, np.ndarray]

    def records(self) -> list[memoryview]:
        """The Example in each frame."""
        view, ends = memoryview(self.data), np.cumsum(self.lengths).tolist()
        edges = itertools.pairwise([0, *ends])
        return [view[start + HEADER_BYTES : stop - FOOTER_BYTES] for start, stop in edges]


@dataclass(frozen=True)
class StoredRecords:
    """The records of the shards of a split, numbered by their rows.

    Attributes:
        directory: The dataset.
        shards: The shards.
        numbers: The sections of their indexes.
        families: Further features of the same records.
    """

    directory: str
    shards: Sequence[Shard]
    numbers: Sequence[str] = ()
    families: Sequence[StoredRecords] = ()
    _indexes: dict[int, dict[str, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def of(cls, directory: str, manifest: Manifest, split: Split) -> StoredRecords:
        """The records of a split with all of their features."""
        of_family = {
            name: manifest.schema.select(names) for name, names in manifest.families.items()
        }
        others = {name for names in manifest.families.values() for name in names}
        own = Schema({name: f for name, f in manifest.schema.items() if name not in others})
        families = [
            cls(directory, split.families[name], [*numbers_of(schema)])
            for name, schema in of_family.items()
        ]
        return cls(directory, split.shards, [HASH, HASH_LOW, *numbers_of(own)], families)

    def sizes(self) -> np.ndarray:
        """The size of each record's frame in bytes, int64 [n]."""
        found = sections(self.directory, self.shards, [OFFSET])
        sizes = np.concatenate([np.diff(each[OFFSET].astype(np.int64)) for each in found])
        return sum((family.sizes() for family in self.families), sizes)

    def parts(self, rows: np.ndarray) -> Iterator[Frames]:
        """Yields the records with some rows, int64 [n], in their order, some megabytes at a time."""
        size, records = sum(s.bytes for s in self.shards), sum(s.records for s in self.shards)
        step = max(1, _AT_ONCE * records // max(size, 1))
        for start in range(0, len(rows), step):
            several = [each.read(rows[start : start + step]) for each in (self, *self.families)]
            if len(several) == 1:
                yield several[0]
                continue
            framed = frame_all(list(map(_joined, *(some.records() for some in several))))
            numbers = {name: array for some in several for name, array in some.numbers.items()}
            yield Frames(b"".join(framed), np.array(list(map(len, framed)), np.int64), numbers)

    def read(self, rows: np.ndarray) -> Frames:
        """The records with some rows, int64 [n], without those of families; DataError if one is damaged."""
        firsts = np.cumsum([0, *(shard.records for shard in self.shards)])
        owners = np.searchsorted(firsts, rows, side="right") - 1
        starts, stops = np.empty((2, len(rows)), np.int64)
        numbers = dict[str, np.ndarray]()
        for owner in np.unique(owners).tolist():
            columns, mine = self._index(owner), owners == owner
            inside = rows[mine] - firsts[owner]
            starts[mine], stops[mine] = columns[OFFSET][inside], columns[OFFSET][inside + 1]
            for name in self.numbers:
                empty = np.empty(len(rows), columns[name].dtype)
                numbers.setdefault(name, empty)[mine] = columns[name][inside]
        data = b"".join(self._spans(owners, starts, stops))
        whole = intact(data, stops - starts)
        if not whole.all():
            row = int(whole.argmin())
            path = join(self.directory, self.shards[owners[row]].path)
            raise DataError(
                f"{path}: the record at byte {starts[row]} is damaged; copy the shard again from where it was written"
            )
        return Frames(data, stops - starts, numbers)

    def _index(self, number: int) -> dict[str, np.ndarray]:
        if number not in self._indexes:
            some = sections(self.directory, [self.shards[number]], [OFFSET, *self.numbers])
            self._indexes[number] = next(some)
        return self._indexes[number]

    def _spans(self, owners: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> list[memoryview]:
        """Ranges of bytes in shards; those that are near to each other in a file are read together."""
        spans = [memoryview(b"")] * len(owners)
        order = np.lexsort((starts, owners))
        gaps = starts[order[1:]] - stops[order[:-1]]
        is_far = (np.diff(owners[order]) != 0) | (gaps > _GAP_BYTES)
        groups = np.split(order, np.flatnonzero(is_far) + 1)
        for owner, group in itertools.groupby(groups, lambda rows: int(owners[rows[0]])):
            path, some = join(self.directory, self.shards[owner].path), list(group)
            ranges = [Range(path, int(starts[rows[0]]), int(stops[rows[-1]])) for rows in some]
            datas = files_of(path).read_ranges(ranges)
            for rows, (_, first, _), data in zip(some, ranges, datas, strict=True):
                view = memoryview(data)
                for row in rows.tolist():
                    spans[row] = view[starts[row] - first : stops[row] - first]
        return spans


def _joined(*records: memoryview) -> bytes:
    """An Example with the features of several, in the order in which a job writes them."""
    entries = [
        e for record in records for _, _, message in fields(record) for _, _, e in fields(message)
    ]
    names = [next(str(v, "utf-8") for number, _, v in fields(e) if number == 1) for e in entries]
    order = sorted(range(len(entries)), key=lambda row: map_order(names[row]))
    body = b"".join(b"\x0a" + varint(len(entries[row])) + entries[row] for row in order)
    return b"\x0a" + varint(len(body)) + body


@dataclass(frozen=True)
class Copier:
    """Copies stored records to new shards of a dataset, as they are.

    Attributes:
        directory, run, staging: Those of a `Holder`.
        schema: The features of the records.
        names: Feature -> its name in statistics.
    """

    directory: str
    run: str
    staging: str
    schema: Schema
    names: Mapping[str, str]

    @classmethod
    def of(cls, output: Holder, manifest: Manifest) -> Copier:
        """Copies records of a manifest in a run."""
        names = {name: manifest.name_of_job(name) for name in manifest.schema}
        return cls(output.directory, output.run, output.staging, manifest.schema, names)

    def copy(
        self, stored: StoredRecords, counts: bool, path: str, rows: np.ndarray
    ) -> tuple[Shard, Statistics]:
        """Writes a shard of the records with some rows, int64 [n], in their order; counts them if asked to."""
        features = Schema({name: f for name, f in self.schema.items() if not f.step})
        statistics = Statistics({self.names[name]: feature for name, feature in features.items()})
        decoder, indexes = ColumnDecoder(features), list[Index]()
        with unwritable(self.directory, path), ShardFile(self, path) as file:
            for data, lengths, numbers in stored.parts(rows):
                file.write(data)
                order = [
                    name for name in (HASH, HASH_LOW, *numbers_of(self.schema)) if name in numbers
                ]
                indexes.append(Index(lengths, {name: numbers[name] for name in order}))
                if counts:
                    ends = np.cumsum(lengths)
                    octets = np.frombuffer(data, np.uint8)
                    columns, errors, _ = decoder.decode(octets, ends - lengths, ends)
                    if errors:
                        raise DataError(f"{path}: {min(errors.values())}")
                    values = {self.names[name]: c.arrays() for name, c in columns.items()}
                    statistics.add_columns(len(lengths), values)
            shard = file.finish(Index.join(indexes))
            file.commit()
        return shard, statistics
