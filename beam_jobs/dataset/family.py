"""Writes the shards of a family: further features of the records of a dataset, in files next to its shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.resume import Note, ShardResult
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError, RejectError
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.mapping import Mapper
from beam_jobs.records.statistics import Statistics
from readers.format.dtypes import numpy_dtype
from readers.format.encode.index_rows import IndexRows
from readers.format.encode.records import Encoder
from readers.format.index import HASH, HASH_LOW, Index
from readers.format.lookup.sections import sections
from readers.format.lookup.stored import stored_values
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard
from readers.format.tfrecord import frame_parts


class FamilyShard(NamedTuple):
    """The path of a shard to write, and the shard with the records.

    `is_living`, bool [records], is whether readers see a record. `values` has their new features; None for a default.
    """

    path: str
    shard: Shard
    is_living: np.ndarray
    values: Sequence[dict[str, Any] | None]


@dataclass(frozen=True)
class Family:
    """Writes the shards of a family with a schema; `digest` identifies all that decides their bytes.

    A mapper makes the features, from those in the shards of the split, whose schema is `base`.
    """

    run: Holder
    digest: str
    base: Schema
    schema: Schema
    mapper: Mapper | None = None

    def write(self, task: FamilyShard) -> tuple[Shard, dict[str, Any]]:
        """Writes a shard, unless an earlier run has; returns it, and the state of the statistics of its living records.

        Raises:
            DataError: A record is damaged, the function fails, or the output cannot be written.
        """
        note, source = Note(self.run, task.path), task.shard.path
        path = note.find(lambda: self.digest)
        if not isinstance(path, str):
            assert path[0].shard
            return path[0].shard, path[1]
        encoder, rows, statistics = (
            Encoder(self.schema),
            IndexRows(self.schema),
            Statistics(self.schema),
        )
        found, packed, lengths = RecordEncoder(encoder, self.mapper), list[bytes](), list[int]()
        default = {name: _default(feature) for name, feature in self.schema.items()}
        filler = frame_parts(encoder.parts(default)), rows.pack(default)
        records = self._stored(task) if self.mapper else compress(task.values, task.is_living)
        with unwritable(self.run.directory, path), ShardFile(self.run, path) as file:
            for row, is_living in enumerate(task.is_living.tolist()):
                try:
                    record = next(records) if is_living else None
                    encoded = record and found.encode(0, record, f"{source}#{row}")
                except (RejectError, ValueError) as error:
                    raise DataError(f"{source}: record {row}: {error}") from None
                if is_living and not record:
                    statistics.add([default])
                framed, numbers = encoded or filler
                file.write(framed)
                packed.append(numbers)
                lengths.append(len(framed))
            (hashes,) = sections(self.run.directory, [task.shard], [HASH, HASH_LOW])
            index = {**hashes, **rows.unpack(b"".join(packed), {})}
            shard = file.finish(Index(np.array(lengths, np.int64), index))
            for _, some in found.statistics():
                statistics.merge(some)
            note.write(self.digest, ShardResult(0, 0, shard, 0, None), statistics.state())
            file.commit()
        return shard, statistics.state()

    def _stored(self, task: FamilyShard) -> Iterator[dict[str, Any]]:
        """Yields the living records of a shard."""
        rows = np.flatnonzero(task.is_living)
        for columns in stored_values(self.run.directory, [task.shard], self.base, rows):
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))


def _default(feature: Feature) -> Any:
    """Zeros, an empty text or an empty list, as from `Encoder.check`."""
    if feature.is_sequence or feature.codec.is_bytes:
        return [] if feature.is_sequence else b""
    shape = [size or 0 for size in feature.shape]
    is_text = feature.dtype == "string"
    return np.full(shape, b"", object) if is_text else np.zeros(shape, numpy_dtype(feature.dtype))
