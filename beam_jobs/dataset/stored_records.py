"""Copies records of a complete dataset to new shards, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.files import files_of
from readers.format.decode.batches import ColumnDecoder
from readers.format.encode.records import map_order
from readers.format.index import HASH, HASH_LOW, OFFSET, Index, numbers_of
from readers.format.lookup.sections import sections
from readers.format.manifest import Manifest, join
from readers.format.protobuf.wire import fields, varint
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame, intact

# The bytes of records that are copied at a time, and those between two records that are read together.
_AT_ONCE, _GAP_BYTES = 16 << 20, 64 << 10


def hashes_of(directory: str, split: Split) -> np.ndarray:
    """The hash of the key of each stored record of a split, uint64 [n]; errors as for `sections`."""
    found = [np.empty(0, np.uint64)]
    for columns in sections(directory, split.shards, [HASH, HASH_LOW]):
        found.append(columns[HASH].astype(np.uint64) << np.uint64(32) | columns[HASH_LOW])
    return np.concatenate(found)


# Files with some features of the records of a split, and the sections of their indexes. The row of a record is its number
# among those of all files.
Files = tuple[Sequence[Shard], list[str]]


@dataclass(frozen=True)
class Copier:
    """Copies records of a split to new shards.

    Attributes:
        directory, run, staging: Those of the run that writes.
        files: The shards, and those of families.
        schema: The features of the records.
        names: Feature -> its name in statistics.
    """

    directory: str
    run: str
    staging: str
    files: list[Files]
    schema: Schema
    names: Mapping[str, str]
    _indexes: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Holder, manifest: Manifest, split: Split) -> Copier:
        """Copies records of a split of a manifest in a run."""
        schema, families = manifest.schema, manifest.families
        others = [name for names in families.values() for name in names]
        own = numbers_of({name: f for name, f in schema.items() if name not in others})
        files: list[Files] = [(split.shards, [HASH, HASH_LOW, *own])]
        for name, features in families.items():
            files.append((split.families[name], [*numbers_of(schema.select(features))]))
        names = {name: manifest.name_of_job(name) for name in schema}
        return cls(output.directory, output.run, output.staging, files, schema, names)

    def copy(self, counts: bool, path: str, rows: np.ndarray) -> tuple[Shard, Statistics]:
        """Writes a shard of the records with some rows, int64 [n], in their order; counts them if asked to."""
        features = Schema({name: f for name, f in self.schema.items() if not f.step})
        statistics = Statistics({self.names[name]: feature for name, feature in features.items()})
        decoder, indexes = ColumnDecoder(features), list[Index]()
        with unwritable(self.directory, path), ShardFile(self, path) as file:
            for data, index in self._parts(rows):
                file.write(data)
                indexes.append(index)
                if counts:
                    ends = np.cumsum(index.lengths)
                    octets = np.frombuffer(data, np.uint8)
                    columns, errors, _ = decoder.decode(octets, ends - index.lengths, ends)
                    if errors:
                        raise DataError(f"{path}: {min(errors.values())}")
                    values = {self.names[name]: c.arrays() for name, c in columns.items()}
                    statistics.add_columns(len(ends), values)
            shard = file.finish(Index.join(indexes))
            file.commit()
        return shard, statistics

    def _parts(self, rows: np.ndarray) -> Iterator[tuple[bytes, Index]]:
        """Yields the frames of records, one after another, and their index, some megabytes at a time."""
        shards = self.files[0][0]
        size = sum(shard.bytes for shard in shards) // sum(shard.records for shard in shards)
        for some in np.split(rows, range(step := _AT_ONCE // size + 1, len(rows), step)):
            numbers: dict[str, np.ndarray] = {}
            several = [self._frames(*files, some, numbers) for files in self.files]
            joined = several[0] if len(several) == 1 else [*map(_joined, *several)]
            for frames in [*several[1:], several[0], joined] if len(several) > 1 else several:
                lengths, data = np.fromiter(map(len, frames), np.int64), b"".join(frames)
                if lengths.min() < FRAME_BYTES or not intact(data, lengths).all():
                    raise DataError(
                        f"{self.directory}: damaged; beam-shards verify names the record"
                    )
            order = (HASH, HASH_LOW, *numbers_of(self.schema))
            yield data, Index(lengths, {name: numbers[name] for name in order if name in numbers})

    def _frames(
        self,
        shards: Sequence[Shard],
        names: Sequence[str],
        rows: np.ndarray,
        numbers: dict[str, np.ndarray],
    ) -> list[memoryview]:
        """The frames of records in some files; adds their sections to `numbers`."""
        frames = [memoryview(b"")] * len(rows)
        firsts = np.cumsum([0, *(shard.records for shard in shards)])
        owners = firsts.searchsorted(rows, side="right") - 1
        for owner in np.unique(owners).tolist():
            shard, mine = shards[owner], np.flatnonzero(owners == owner)
            if shard.path not in self._indexes:
                found = sections(self.directory, [shard], [OFFSET, *names])
                self._indexes[shard.path] = next(found)
            columns, inside = self._indexes[shard.path], rows[mine] - firsts[owner]
            for name in names:
                empty = np.empty(len(rows), columns[name].dtype)
                numbers.setdefault(name, empty)[mine] = columns[name][inside]
            starts, stops = (columns[OFFSET][inside + end].astype(np.int64) for end in (0, 1))
            is_far = np.abs(starts[1:] - stops[:-1]) > _GAP_BYTES
            path = join(self.directory, shard.path)
            for near in np.split(np.arange(len(mine)), np.flatnonzero(is_far) + 1):
                first, last = int(starts[near].min()), int(stops[near].max())
                data = memoryview(files_of(path).read(path, first, last - first))
                places = mine[near], starts[near] - first, stops[near] - first
                for row, start, stop in zip(*(place.tolist() for place in places), strict=True):
                    frames[row] = data[start:stop]
        return frames


def _joined(*frames: memoryview) -> bytes:
    """A framed Example with the features of several, in the order in which a job writes them."""
    examples = [each[HEADER_BYTES:-FOOTER_BYTES] for each in frames]
    messages = [message for example in examples for _, _, message in fields(example)]
    entries = [entry for message in messages for _, _, entry in fields(message)]
    names = [next(str(v, "utf-8") for number, _, v in fields(e) if number == 1) for e in entries]
    order = sorted(range(len(entries)), key=lambda n: map_order(names[n]))
    body = b"".join(b"\x0a" + varint(len(entries[n])) + entries[n] for n in order)
    return frame(b"\x0a" + varint(len(body)) + body)
