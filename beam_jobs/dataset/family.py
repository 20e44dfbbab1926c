"""Writes the shards of a family: further features of the records of a dataset, in files next to its shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.dataset.lease import Holder
from beam_jobs.dataset.resume import Note, ShardResult
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.errors import DataError, RejectError
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.mapping import Mapper
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.files import open_file, read_bytes
from readers.format.decode.records import Decoder
from readers.format.dtypes import numpy_dtype
from readers.format.encode.index_rows import IndexRows
from readers.format.encode.records import Encoder
from readers.format.index import HASH, HASH_LOW, Index
from readers.format.manifest import INDEX_SUFFIX, join
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame_parts, record_length, unframe


class FamilyShard(NamedTuple):
    """A shard to write, and the shard of the split whose records get the features.

    `gone` are the numbers of the records that no reader sees. `values` has the features of others by their number, the rest
    have a default; None calls a function of each record.
    """

    path: str
    shard: Shard
    gone: frozenset[int]
    values: Mapping[int, dict[str, Any]] | None


@dataclass(frozen=True)
class Family:
    """Writes the shards of a family; `digest` identifies all that decides their bytes.

    `mapper` makes the features in `schema` from those in `base`, which are in the shards of the split.
    """

    run: Holder
    digest: str
    base: Schema
    schema: Schema
    mapper: Mapper | None = None

    def write(self, task: FamilyShard) -> tuple[Shard, dict[str, Any]]:
        """Writes a shard, unless an earlier run has; returns it, and `Statistics.state` of the records that readers see.

        Raises:
            DataError: A record is damaged, the function fails, or the output cannot be written.
        """
        directory, note = self.run.directory, Note(self.run, task.path)
        path = note.find(lambda: self.digest)
        if not isinstance(path, str):
            assert path[0].shard
            return path[0].shard, path[1]
        encoder, rows = Encoder(self.schema), IndexRows(self.schema)
        default = _default(self.schema)
        filler = frame_parts(encoder.parts(default)), rows.pack(default)
        found, encoded = RecordEncoder(encoder, self.mapper), list[tuple[int, bytes]]()
        defaults = -len(task.gone)
        with unwritable(directory, path), ShardFile(self.run, path) as file:
            for row, record in enumerate(self._records(task)):
                defaults += record is None
                try:
                    place = f"{task.shard.path}: record {row}"
                    framed, packed = found.encode(0, record, place) if record else filler
                except (RejectError, ValueError) as error:
                    raise DataError(f"{place}: {error}") from None
                file.write(framed)
                encoded.append((len(framed), packed))
            index_path = join(directory, task.shard.path + INDEX_SUFFIX)
            index = Index.of_bytes(read_bytes(index_path), index_path)
            sections = {n: s for n, s in index.sections.items() if n in (HASH, HASH_LOW)}
            sections |= rows.unpack(b"".join(packed for _, packed in encoded), {})
            shard = file.finish(Index(np.array([n for n, _ in encoded], np.int64), sections))
            statistics = Statistics(self.schema)
            statistics.add([default] * defaults)
            for _, some in found.statistics():
                statistics.merge(some)
            note.write(self.digest, ShardResult(0, 0, shard, 0, None), statistics.state())
            file.commit()
        return shard, statistics.state()

    def _records(self, task: FamilyShard) -> Iterator[dict[str, Any] | None]:
        """Yields what each record is encoded from; None if it has the default."""
        if task.values is not None:
            yield from map(task.values.get, range(task.shard.records))
            return
        path = join(self.run.directory, task.shard.path)
        for row, record in enumerate(records_of(path, self.base)):
            yield None if row in task.gone else record


def records_of(path: str, schema: Schema) -> Iterator[dict[str, Any]]:
    """Yields the records of a shard, one after another; DataError if one is damaged."""
    decoder, offset, row = Decoder(schema), 0, 0
    with open_file(path) as file:
        while header := file.read(HEADER_BYTES):
            try:
                frame = header + file.read(record_length(header, path, offset) + FOOTER_BYTES)
                record = decoder.decode(unframe(frame, path, offset, row))
            except ValueError as error:
                raise DataError(f"{path}: record {row} at byte {offset}: {error}") from None
            yield record
            offset, row = offset + len(frame), row + 1


def _default(schema: Schema) -> dict[str, Any]:
    """Zeros, empty texts and empty lists, as from `Encoder.check`."""
    record = dict[str, Any]()
    for name, feature in schema.items():
        shape = [size or 0 for size in feature.shape]
        zeros = np.zeros(shape, numpy_dtype(feature.dtype)) if feature.dtype != "string" else None
        record[name] = np.full(shape, b"", object) if zeros is None else zeros
        if feature.is_sequence or feature.codec.is_bytes:
            record[name] = [] if feature.is_sequence else b""
    return record
