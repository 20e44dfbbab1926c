"""Reads TFRecord files that stay as they are: facts for a schema, the index of a file, and its statistics."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import cast

import google_crc32c
import numpy as np

from beam_jobs import progress
from beam_jobs.dataset.changes import Change
from beam_jobs.errors import DataError, RejectError, reason_of
from beam_jobs.jobs.reshard.record_fit import RecordFit
from beam_jobs.jobs.reshard.record_frames import FrameBatch, decompressed, frame_batches
from beam_jobs.jobs.reshard.schema_guess import LEARNED, SchemaGuess
from beam_jobs.records.statistics import Statistics
from beam_jobs.storage.files import open_file
from readers.format.decode.column import FeatureColumn
from readers.format.index import HASH, HASH_LOW, VALUE, Index, head_crc32c, numbers_of
from readers.format.lookup.keys import KEY, ORDER, has_keys, hashes64
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.format.tfrecord import MAX_RECORD_BYTES

# The phase in the progress of a command.
INDEXING = "indexing"

_RESHARD = "beam-shards reshard makes a dataset of"


def learned_from(path: str) -> SchemaGuess:
    """Facts about the first records of a file, in at most a few megabytes; errors as for `index_file`."""
    guess = SchemaGuess()
    if batch := next(_batches(path), None):
        for row, (start, stop) in enumerate(zip(*batch.spans, strict=True)):
            if row < LEARNED:
                guess.learn(f"{path}: record {row}", batch.data.data[start:stop])
    return guess


def index_file(
    change: Change, prefix: str, path: str, listed: str, schema: Schema, learned: bool
) -> tuple[Shard, Statistics]:
    """Writes the index of a file; returns the file as a shard, and the statistics of its records.

    The manifest lists the file as `listed`; the path of its index begins with `prefix`. Raises DataError if the file is
    damaged, compressed or cannot be read, or a record does not fit the schema, which may be learned from other records.
    """
    fit = RecordFit(schema, lambda _: True, learned)
    statistics = Statistics({name: feature for name, feature in schema.items() if not feature.step})
    hashes = dict.fromkeys((HASH, HASH_LOW) if has_keys(schema) else (), np.dtype("<u4"))
    dtypes, crc = {**hashes, **numbers_of(schema)}, 0
    parts = [Index(np.empty(0, np.int64), {n: np.empty(0, dtype) for n, dtype in dtypes.items()})]
    for batch in _batches(path):
        starts, stops = batch.spans
        columns, _, errors = fit.check(batch.data, starts, stops)
        errors |= dict.fromkeys(np.flatnonzero(starts == stops).tolist(), "it is empty")
        for row in sorted(errors)[:1]:
            where = f"{path}: record {batch.first - 1 + row} at {batch.place_of(starts[row])}"
            raise DataError(
                f"{where}: {errors[row]}; or {_RESHARD} the records that fit, and lists the others"
            )
        statistics.add_decoded(len(starts), columns)
        numbers = {n: _numbers(n, schema, columns).astype(dtype) for n, dtype in dtypes.items()}
        parts.append(Index(batch.lengths, numbers))
        size = int(batch.lengths.sum())
        crc = google_crc32c.extend(crc, batch.data[:size])
        progress.advance(INDEXING, size)
    index = Index.join(parts)
    data = index.to_bytes()
    # With the checksum, because the file may have changed since an interrupted run.
    index_path = f"{prefix}-{crc:08x}.tfrecord.index"
    change.write(index_path, data)
    sizes = len(index.lengths), int(index.lengths.sum()), crc, len(data), head_crc32c(data)
    smallest = int(index.sections[HASH].min(initial=(1 << 32) - 1)) if HASH in dtypes else 0
    return Shard(listed, *sizes, smallest, index_path), statistics


def _numbers(section: str, schema: Schema, columns: Mapping[str, FeatureColumn]) -> np.ndarray:
    """The numbers of a section for the records of some columns."""
    if section in (HASH, HASH_LOW):
        hashes = hashes64(0, ORDER, columns[KEY].arrays())
        return hashes >> np.uint64(32) if section == HASH else hashes & np.uint64(0xFFFFFFFF)
    kind, name = section.split("/", 1)
    shapes = columns[name].shapes
    if f"{kind}/" == VALUE:
        return columns[name].flat()
    if shapes is None:  # Lists of arrays.
        return np.array([len(value) for value in columns[name].flat()])
    return shapes[:, schema[name].first_unknown]


def _batches(path: str) -> Iterator[FrameBatch]:
    """Yields the records of a file, all of them intact; errors as for `index_file`."""
    try:
        with open_file(path) as file:
            stream = cast(io.BufferedReader, file)
            if decompressed(stream) is not stream:
                raise DataError(f"{path}: compressed with GZIP; {_RESHARD} such files")
            for batch in frame_batches(stream, MAX_RECORD_BYTES):
                if batch.broken:
                    number, reason = batch.broken[0]
                    raise DataError(
                        f"{path}: record {number - 1} at {reason}; copy the file again, or {_RESHARD} the intact "
                        "records, and lists the others"
                    )
                yield batch
    except (OSError, RejectError) as error:
        raise DataError(f"{path}: {reason_of(error)}") from None
