"""Copies records of a complete dataset to new shards, as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from readers.format.decode.batches import ColumnDecoder
from readers.format.encode.records import map_order
from readers.format.index import HASH, HASH_LOW, Index, numbers_of
from readers.format.lookup.stored import stored_frames
from readers.format.manifest import Manifest
from readers.format.protobuf.wire import fields, varint
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame

# The bytes of records that are copied at a time.
_AT_ONCE = 16 << 20


@dataclass(frozen=True)
class Copier:
    """Copies records of a split to new shards.

    Attributes:
        directory, run, staging: Those of the run that writes.
        files: The shards, and those of families, each with the sections of their indexes.
        schema: The features of the records.
        names: Feature -> its name in statistics; empty to count nothing.
    """

    directory: str
    run: str
    staging: str
    files: Sequence[tuple[Sequence[Shard], Sequence[str]]]
    schema: Schema
    names: Mapping[str, str]

    @classmethod
    def of(cls, output: Holder, manifest: Manifest, split: Split) -> Copier:
        """Copies records of a split of a manifest in a run."""
        schema, families = manifest.schema, manifest.families
        others = [name for names in families.values() for name in names]
        of_files = [[name for name in schema if name not in others], *families.values()]
        several = [split.shards, *(split.families[name] for name in families)]
        sections = [[HASH, HASH_LOW, *numbers_of(schema.select([*names]))] for names in of_files]
        files = [*zip(several, sections, strict=True)]
        names = {name: manifest.name_of_job(name) for name in schema if not schema[name].step}
        return cls(output.directory, output.run, output.staging, files, schema, names)

    def copy(self, path: str, rows: np.ndarray) -> tuple[Shard, Statistics]:
        """Writes a shard of the records with some rows, int64 [n], in their order, and counts them."""
        statistics, indexes = self._statistics(), list[Index]()
        with unwritable(self.directory, path), ShardFile(self, path) as file:
            for data, index in self._counted(rows, statistics):
                file.write(data)
                indexes.append(index)
            shard = file.finish(Index.join(indexes))
            file.commit()
        return shard, statistics

    def count(self, rows: np.ndarray) -> Statistics:
        """The statistics of the records with some rows, int64 [n]."""
        statistics = self._statistics()
        for _ in self._counted(rows, statistics):
            pass
        return statistics

    def figures(self, several: Iterable[Statistics]) -> dict[str, dict[str, Any]]:
        """The statistics of all records as a manifest states them."""
        total = self._statistics()
        for statistics in several:
            total.merge(statistics)
        found = total.to_json() if total.records else {}
        return {name: found[job] for name, job in self.names.items() if found}

    def _statistics(self) -> Statistics:
        return Statistics({job: self.schema[name] for name, job in self.names.items()})

    def _counted(self, rows: np.ndarray, statistics: Statistics) -> Iterator[tuple[bytes, Index]]:
        """Yields the same as `_parts`, and adds the records to statistics."""
        decoder = ColumnDecoder(self.schema.select([*self.names])) if self.names else None
        for data, index in self._parts(rows):
            yield data, index
            if decoder:
                octets, ends = np.frombuffer(data, np.uint8), np.cumsum(index.lengths)
                columns, errors, _ = decoder.decode(octets, ends - index.lengths, ends)
                if errors:
                    raise DataError(f"{self.directory}: {min(errors.values())}")
                values = {self.names[name]: column.arrays() for name, column in columns.items()}
                statistics.add_columns(len(ends), values)

    def _parts(self, rows: np.ndarray) -> Iterator[tuple[bytes, Index]]:
        """Yields the frames of records, one after another, and their index, some megabytes at a time."""
        shards = self.files[0][0]
        size = sum(shard.bytes for shard in shards) // sum(shard.records for shard in shards)
        for some in np.split(rows, range(step := _AT_ONCE // size + 1, len(rows), step)):
            several, numbers = list[list[memoryview]](), dict[str, np.ndarray]()
            order = np.argsort(some)
            back = np.argsort(order)
            for files, names in self.files:
                parts = [*stored_frames(self.directory, files, some[order], names)]
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
            names = [n for n in (HASH, HASH_LOW, *numbers_of(self.schema)) if n in numbers]
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
