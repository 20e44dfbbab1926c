"""Reads records of a complete dataset as they are stored: their frames, and their numbers in the indexes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.files import files_of, read_bytes
from readers.files.files import Range
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder
from readers.format.encode.records import map_order
from readers.format.features import Features
from readers.format.index import HASH, OFFSET, Index, numbers_of
from readers.format.lookup.keys import ORDER, hashes64, order_seed
from readers.format.lookup.rows import SeenRows, unpack_rows
from readers.format.lookup.sections import sections
from readers.format.manifest import DatasetError, Manifest, join
from readers.format.protobuf.wire import fields, varint
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame_all, intact

# The bytes of records that are read and copied at a time, and those between two records that are read together.
_AT_ONCE, _GAP_BYTES = 16 << 20, 64 << 10


def rows_in(directory: str, split: Split) -> np.ndarray:
    """The rows of a split that readers see, int64 [n]; DataError if their list is damaged."""
    listed = split.gone or split.rows
    if listed is None:
        return np.arange(split.stored)
    path = join(directory, listed.path)
    try:
        rows = unpack_rows(read_bytes(path), listed, split.stored)
    except ValueError as error:
        raise DataError(f"{path}: {error}; copy it again from where it was written") from None
    seen = SeenRows(split.stored, rows, split.gone is not None)
    return seen.of(np.arange(len(seen)))


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
        return cls(directory, split.shards, [HASH, *numbers_of(own)], families)

    def section(self, name: str) -> np.ndarray:
        """A section of all indexes, array [n]; for `OFFSET` the size of each frame with all of its features."""
        found = [columns[name] for columns in sections(self.directory, self.shards, [name])]
        if name != OFFSET:
            return np.concatenate(found)
        sizes = np.concatenate([np.diff(offsets.astype(np.int64)) for offsets in found])
        return sum((family.section(name) for family in self.families), sizes)

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
class StoredKeys:
    """The keys of stored records.

    Attributes:
        name: The feature with the key.
        feature: Its spec.
        seed: Of their hashes.
    """

    name: str
    feature: Feature
    seed: int

    @classmethod
    def of(cls, manifest: Manifest) -> StoredKeys | None:
        """The keys of a dataset; None if they do not order its records."""
        name = Features.of(manifest).named("key")
        with contextlib.suppress(DatasetError):
            return cls(name, manifest.schema[name], order_seed(manifest)) if name else None
        return None

    def of_rows(self, directory: str, shards: Sequence[Shard], rows: np.ndarray) -> list[bytes]:
        """The key of each of some records, given their rows, int64 [n]."""
        decoder, stored = (
            Decoder(Schema({self.name: self.feature})),
            StoredRecords(directory, shards),
        )
        examples = (example for part in stored.parts(rows) for example in part.records())
        return [bytes(decoder.decode(example)[self.name].item()) for example in examples]


def in_order(
    directory: str, shards: Sequence[Shard], rows: np.ndarray, keys: StoredKeys | None
) -> np.ndarray:
    """The rows of some shards, int64 [n], in the order of the hashes of their records, then of their keys.

    An index has half of each hash; the key gives the rest where it is needed. Without it such rows keep their order.
    """
    hashes = StoredRecords(directory, shards).section(HASH)[rows]
    order = np.argsort(hashes, kind="stable")
    rows, hashes = rows[order], hashes[order]
    is_equal = np.append(hashes[1:] == hashes[:-1], False)
    places = np.flatnonzero(is_equal | np.roll(is_equal, 1))
    if keys and len(places):
        found = keys.of_rows(directory, shards, rows[places])
        exact = hashes64(keys.seed, ORDER, found).tolist()
        # The upper halves are those of the index, so records with other hashes keep their places.
        ranks = sorted(range(len(found)), key=lambda n: (hashes[places[n]], exact[n], found[n]))
        rows[places] = rows[places[ranks]]
    return rows


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
                order = [name for name in (HASH, *numbers_of(self.schema)) if name in numbers]
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
