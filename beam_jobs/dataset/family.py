"""Writes the shards of a family: further features of the records of a dataset, in files next to its shards."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np

from beam_jobs.dataset.output import Holder
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
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import frame_parts


def write_shard(
    run: Holder,
    digest: str,
    base: Schema,
    schema: Schema,
    mapper: Mapper | None,
    name: str,
    shard: Shard,
    is_living: np.ndarray,
    values: Sequence[dict[str, Any] | None] = (),
) -> tuple[Shard, dict[str, Any]]:
    """Writes a shard of a family, unless an earlier run has; returns it, and the state of the statistics of its living records.

    `digest` identifies everything that decides the bytes of the family. A mapper makes the features in `schema` from those in
    `base`, which are in the shard of the split; without one, they are in `values`, with None for zeros and empty texts. So are
    the features of records that readers do not see, which `is_living`, bool [records], says.

    Raises:
        DataError: A record is damaged, the function fails, or the output cannot be written.
    """
    note = Note(run, name)
    path, done = note.find(lambda: digest)
    if done and done[0].shard:
        return done[0].shard, done[1]
    encoder, rows, statistics = Encoder(schema), IndexRows(schema), Statistics(schema)
    found, packed, lengths = RecordEncoder(encoder, mapper), list[bytes](), list[int]()
    default = {name: _default(feature) for name, feature in schema.items()}
    filler = frame_parts(encoder.parts(default)), rows.pack(default)
    of_shard = StoredSplit(run.directory, Manifest(base, {}), Split((shard,)))
    stored = (
        dict(zip(columns, record, strict=True))
        for columns in of_shard.columns(np.flatnonzero(is_living), base)
        for record in zip(*(column.arrays() for column in columns.values()), strict=True)
    )
    records = stored if mapper else compress(values, is_living)
    with unwritable(run.directory, path), ShardFile(run, path) as file:
        for row, is_seen in enumerate(is_living.tolist()):
            try:
                record = next(records) if is_seen else None
                encoded = record and found.encode(0, record, f"{shard.path}#{row}")
            except (RejectError, ValueError) as error:
                raise DataError(f"{shard.path}: record {row}: {error}") from None
            if is_seen and not record:
                statistics.add([default])
            framed, numbers = encoded or filler
            file.write(framed)
            packed.append(numbers)
            lengths.append(len(framed))
        (file_of_index,) = of_shard.indexes()
        data = file_of_index.fetch()
        head = file_of_index.head(data)
        hashes = {n: head.numbers(data, n) for n in (HASH, HASH_LOW) if n in head.sections}
        nothing = {HASH: np.zeros(shard.records, np.uint32)}  # Of records without keys.
        index = nothing | hashes | rows.unpack(b"".join(packed), {})
        written = file.finish(Index(np.array(lengths, np.int64), index))
        for _, some in found.statistics():
            statistics.merge(some)
        note.write(digest, ShardResult(0, 0, written, 0, None), statistics.state(), file.files)
        file.commit()
    return written, statistics.state()


def _default(feature: Feature) -> Any:
    """Zeros, an empty text or an empty list, as from `Encoder.check`."""
    if feature.is_sequence or feature.codec.is_bytes:
        return [] if feature.is_sequence else b""
    shape = [size or 0 for size in feature.shape]
    is_text = feature.dtype == "string"
    return np.full(shape, b"", object) if is_text else np.zeros(shape, numpy_dtype(feature.dtype))
