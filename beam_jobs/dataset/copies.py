"""Copies records of a complete dataset to new shards, as they are stored."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from beam_jobs.dataset.output import Holder
from beam_jobs.dataset.shard_writer import ShardFile, unwritable
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.records.statistics import Statistics
from readers.format.encode.records import map_order
from readers.format.index import HASH, HASH_LOW, Index, numbers_of
from readers.format.lookup.stored import StoredSplit
from readers.format.protobuf.wire import fields, varint
from readers.format.splits import Shard
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, frame

# The bytes of records that are copied at a time.
_AT_ONCE = 16 << 20


def statistics_of(stored: StoredSplit, rows: np.ndarray) -> Statistics:
    """The statistics of the records of a split with some rows, int64 [n], ascending."""
    schema, statistics = stored.manifest.schema, Statistics.of(stored.manifest)
    statistics.records = len(rows)
    for family, names in stored.manifest.features_of.items():
        if known := [name for name in names if name in statistics.features]:
            for columns in stored.columns(rows, schema.select(known), family):
                for name in known:
                    statistics.features[name].add_column(schema[name], columns[name])
    return statistics


def figures_of(stored: StoredSplit, rows: np.ndarray, pool: Pool) -> dict[str, dict[str, Any]]:
    """The same as a manifest states them, counted by the processes of a pool."""
    count, total = pickle.dumps(partial(statistics_of, stored)), Statistics.of(stored.manifest)
    parts = np.array_split(rows, max(len(stored.split.shards), pool.processes))
    for statistics in pool.map(call_pickled, ((count, part) for part in parts if len(part))):
        total.merge(statistics)
    return total.to_json() if total.records else {}


def copied(
    run: Holder, stored: StoredSplit, families: Sequence[str], path: str, rows: np.ndarray
) -> Shard:
    """Writes a shard of the records of a split with some rows, int64 [n], in their order.

    They have the features of some families; "" for those in the shards of the split.
    """
    indexes = list[Index]()
    with unwritable(run.directory, path), ShardFile(run, path) as file:
        for data, index in _parts(stored, families, rows):
            file.write(data)
            indexes.append(index)
        shard = file.finish(Index.join(indexes))
        file.commit()
    return shard


def _parts(
    stored: StoredSplit, families: Sequence[str], rows: np.ndarray
) -> Iterator[tuple[bytes, Index]]:
    """Yields the frames of records, one after another, and their index, some megabytes at a time."""
    split, manifest = stored.split, stored.manifest
    shards = (shard for family in families for shard in split.shards_of(family))
    size = sum(shard.bytes for shard in shards) // split.stored
    for some in np.split(rows, range(step := _AT_ONCE // size + 1, len(rows), step)):
        several, numbers = list[list[memoryview]](), dict[str, np.ndarray]()
        order = np.argsort(some)
        back = np.argsort(order)
        for family in families:
            features = manifest.schema.select(manifest.features_of[family])
            names = [HASH, HASH_LOW, *numbers_of(features)]
            parts = [*stored.frames(some[order], family, names)]
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
