"""Copies records of a complete dataset to new shards, as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from beam_jobs.dataset.output import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from readers.format.decode.batches import ColumnDecoder
from readers.format.encode.records import map_order
from readers.format.index import HASH, HASH_LOW, Index, numbers_of
from readers.format.lookup.stored import StoredSplit
from readers.format.protobuf.wire import fields, varint
from readers.format.splits import Shard
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame

# The bytes of records that are copied at a time.
_AT_ONCE = 16 << 20


@dataclass(frozen=True)
class Copier:
    """Copies records of a split to new shards.

    Attributes:
        run: The run that writes.
        stored: The split.
        families: The families whose features the new records have; "" for those in the shards of the split.
        counts: Whether to count the records.
    """

    run: Holder
    stored: StoredSplit
    families: Sequence[str]
    counts: bool

    def copy(self, path: str, rows: np.ndarray) -> tuple[Shard, Statistics]:
        """Writes a shard of the records with some rows, int64 [n], in their order, and counts them."""
        statistics, indexes = Statistics.of(self.stored.manifest), list[Index]()
        with unwritable(self.run.directory, path), ShardFile(self.run, path) as file:
            for data, index in self._parts(rows):
                file.write(data)
                indexes.append(index)
                if self.counts:
                    self._count(data, index, statistics)
            shard = file.finish(Index.join(indexes))
            file.commit()
        return shard, statistics

    def count(self, rows: np.ndarray) -> Statistics:
        """The statistics of the records with some rows, int64 [n]."""
        statistics = Statistics.of(self.stored.manifest)
        for data, index in self._parts(rows):
            self._count(data, index, statistics)
        return statistics

    def _count(self, data: bytes, index: Index, statistics: Statistics) -> None:
        """Adds records to statistics."""
        schema = self.stored.manifest.schema
        names = [name for name, feature in schema.items() if not feature.step]
        if not names:
            return
        octets, ends = np.frombuffer(data, np.uint8), np.cumsum(index.lengths)
        decoder = ColumnDecoder(schema.select(names))
        columns, errors, _ = decoder.decode(octets, ends - index.lengths, ends)
        if errors:
            raise DataError(f"{self.run.directory}: {min(errors.values())}")
        statistics.add_decoded(len(ends), columns)

    def _parts(self, rows: np.ndarray) -> Iterator[tuple[bytes, Index]]:
        """Yields the frames of records, one after another, and their index, some megabytes at a time."""
        split, manifest = self.stored.split, self.stored.manifest
        shards = (shard for family in self.families for shard in split.shards_of(family))
        size = sum(shard.bytes for shard in shards) // split.stored
        for some in np.split(rows, range(step := _AT_ONCE // size + 1, len(rows), step)):
            several, numbers = list[list[memoryview]](), dict[str, np.ndarray]()
            order = np.argsort(some)
            back = np.argsort(order)
            for family in self.families:
                features = manifest.schema.select(manifest.features_of[family])
                names = [HASH, HASH_LOW, *numbers_of(features)]
                parts = [*self.stored.frames(some[order], family, names)]
                frames = [
                    part.data.data[start:stop]
                    for part in parts
                    for start, stop in zip(part.starts.tolist(), part.stops.tolist(), strict=True)
                ]
                several.append([frames[row] for row in back.tolist()])
                for name in names:
                    numbers[name] = np.concatenate([part.columns[name] for part in parts])[back]
            joined = several[0] if len(several) == 1 else [*map(_joined, *several)]
            lengths = np.fromiter(map(len, joined), np.int64)
            names = [n for n in (HASH, HASH_LOW, *numbers_of(manifest.schema)) if n in numbers]
            yield b"".join(joined), Index(lengths, {name: numbers[name] for name in names})


def _joined(*frames: memoryview) -> bytes:
    """A framed Example with the features of several, in the order in which a job writes them."""
    examples = [each[HEADER_BYTES:-FOOTER_BYTES] for each in frames]
    messages = [message for example in examples for _, _, message in fields(example)]
    entries = [entry for message in messages for _, _, entry in fields(message)]
    names = [next(str(v, "utf-8") for number, _, v in fields(e) if number == 1) for e in entries]
    order = sorted(range(len(entries)), key=lambda n: map_order(names[n]))
    body = b"".join(b"\x0a" + varint(len(entries[n])) + entries[n] for n in order)
    return frame(b"\x0a" + varint(len(body)) + body)
