"""Writes the shards of jobs whose record is a file: opens, decodes and encodes each file of a shard.

A process writes a whole shard. Where whole shards would not keep all processes busy, it writes pieces of them,
which are joined without passing through another process. Nothing here imports Beam.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import os
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import (
    ShardWriter,
    Stretch,
    check_records,
    rows_in_order,
    unwritable,
)
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.errors import RejectError
from beam_jobs.jobs.file_passes import FileSecondPass
from beam_jobs.jobs.record import Record, complete, source_values
from beam_jobs.plan.shards import Plan
from beam_jobs.records.blocks import Block, is_reject, unpack_reject
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject, format_rejects
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.source import Source, reference_key, unpack_reference
from beam_jobs.storage.atomic import Piece
from beam_jobs.storage.files import reading_ahead
from readers.files.stores.ahead import Window


class Loader(FileSecondPass):
    """Loads and encodes whole files, each of which is a record."""

    def record(self, source: Source) -> Record:
        """The whole record of a source.

        Raises:
            RejectError: The source cannot become a record.
            UsageError: The record does not fit the other records.
        """
        values = source_values(self.job, source)
        return complete(self.job.load(source), source.key, values, self.class_ids)

    def load(
        self, encoder: RecordEncoder, hashes: np.ndarray, references: Sequence[bytes]
    ) -> Stretch:
        """The records of n references, in order, framed, given their hashes, uint64 [n], and an `encoder()`.

        Raises:
            UsageError: A record does not fit the others.
        """
        sources = list(map(unpack_reference, references))
        with self._reading_ahead(sources):
            return self._framed(encoder, hashes, sources)

    def measure(self, references: Sequence[bytes]) -> list[int | Reject]:
        """The size of each framed record in bytes, or its reject."""
        sources = list(map(unpack_reference, references))
        with self._reading_ahead(sources):
            encoder, order = self.encoder(), np.zeros(1, np.uint64)
            loaded = [self._framed(encoder, order, [source]) for source in sources]
        return [part.rejects[0] if part.rejects else int(part.lengths[0]) for part in loaded]

    def _reading_ahead(self, sources: Sequence[Source]) -> Window:
        return reading_ahead(itertools.chain.from_iterable(map(self.job.reads, sources)))

    def _framed(
        self, encoder: RecordEncoder, hashes: np.ndarray, sources: Sequence[Source]
    ) -> Stretch:
        loaded: deque[tuple[int, Record]] = deque()
        encoded: list[tuple[int, bytes, bytes]] = []
        rejects: dict[int, Reject] = {}
        # Loading all before the first is encoded takes a sixth less time than loading and encoding each.
        for number, source in enumerate(sources):
            try:
                loaded.append((number, self.record(source)))
            except (RejectError, ValueError) as error:
                rejects[number] = _reject_of(source, error)
        while loaded:
            number, record = loaded.popleft()  # So that its memory is free once it is encoded.
            try:
                encoded.append((number, *encoder.encode(0, record)))
            except (RejectError, ValueError) as error:
                rejects[number] = _reject_of(sources[number], error)
        numbers = [number for number, _, _ in encoded]
        frames = [frame for _, frame, _ in encoded]
        rows = b"".join([row for _, _, row in encoded])
        lengths = np.fromiter(map(len, frames), np.int64, len(frames))
        listed = [rejects[number] for number in sorted(rejects)]
        return Stretch(b"".join(frames), lengths, hashes[numbers], rows, listed)


def _reject_of(source: Source, error: Exception) -> Reject:
    return Reject.of(source.key, "decode" if isinstance(error, RejectError) else "encode", error)


# Files of about this many bytes of records are loaded at a time, so that a shard takes little memory; in a store
# more, because a process waits only for the first of its requests, about 60 ms.
_BATCH_BYTES, _STORE_BATCH_BYTES = 1 << 20, 16 << 20

_BATCH_FILES = 256

# Pieces of shards for each process, so that none is idle while the others write their last ones.
_PIECES_PER_PROCESS = 2

# Processes write whole shards if these keep them busy for this share of the time. Shards have one size, so sixteen
# processes are as busy with sixteen shards as with pieces of them, which a thread of the driver has to join.
_BUSY = 0.75


class Pieces(NamedTuple):
    """The processes that write pieces of shards.

    Attributes:
        pool: The processes.
        write: The pickled method `FileShards.piece`.
        folder: The local folder in which pieces wait.
        records: The number of records of a piece.
    """

    pool: Pool
    write: bytes
    folder: str
    records: int


@dataclass(frozen=True)
class FileShards:
    """Writes shards of whole files, in any process."""

    loader: Loader
    plan: bytes

    @cached_property
    def _known_plan(self) -> Plan:
        return Plan.unpack(self.plan)

    @cached_property
    def sizes(self) -> list[int]:
        """The numbers of records of all shards, the largest first."""
        splits = self._known_plan.splits
        sizes = [size for s in splits for size in [s.records // max(s.shards, 1)] * s.shards]
        return sorted(sizes, reverse=True)

    def piece_records(self, processes: int) -> int:
        """The number of records in a piece of a shard, for some processes; 0 if each process writes whole shards."""
        loads = [0] * processes
        for size in self.sizes:
            heapq.heapreplace(loads, loads[0] + size)
        total = sum(loads)
        busy = total > _BUSY * processes * max(loads)
        return 0 if busy else -(-total // (_PIECES_PER_PROCESS * processes))

    def write(
        self, shard: tuple[int, list[bytes]], pieces: Pieces | None = None
    ) -> tuple[ShardResult, Statistics]:
        """Writes a shard, unless a finished one exists: split and shard in one number, and packed blocks of references.

        This process loads all of it without `pieces`.

        Raises:
            JobError: References are missing or repeated, or the shard cannot be written.
        """
        key, packed = shard
        output, schema = self.loader.output, self.loader.output.schema
        writer = ShardWriter(output, self._known_plan, key, schema)
        hashes, references, rejects = _in_order(writer, packed)
        digest = writer.digest(self.loader.learned.names).update(references)
        digest.update([hashes.tobytes(), format_rejects(rejects)])
        if found := writer.find_done(digest.text):
            return found[0], Statistics.of_state(schema, found[1])
        statistics = Statistics(schema)
        load = functools.partial(self._loaded_elsewhere, pieces) if pieces else self._loaded
        loaded = load(hashes, references, writer.record_bytes, statistics)
        stretches = itertools.chain(loaded, [Stretch.of_rejects(rejects)])
        return writer.write(stretches, digest, statistics.state), statistics

    def _loaded_elsewhere(
        self,
        pieces: Pieces,
        hashes: np.ndarray,
        references: list[bytes],
        record_bytes: int,
        statistics: Statistics,
    ) -> Iterator[Stretch]:
        """As `_loaded`, in pieces that other processes write."""
        step = max(pieces.records, self._batch_files(record_bytes))
        tasks = (
            (pieces.write, hashes[rows], references[rows], record_bytes, pieces.folder)
            for rows in _slices(len(references), step)
        )
        for stretch, counted in pieces.pool.map(call_pickled, tasks):
            statistics.merge(counted)
            yield stretch
            os.unlink(stretch.piece.path)

    def piece(
        self, hashes: np.ndarray, references: list[bytes], record_bytes: int, folder: str
    ) -> tuple[Stretch, Statistics]:
        """The records of a piece of a shard, whose frames wait in a file in a folder, and their statistics."""
        path, size, crc = Path(folder, f"piece.{uuid.uuid4().hex}"), 0, 0
        parts: list[Stretch] = []
        statistics = Statistics(self.loader.output.schema)
        with unwritable(folder, path.name), path.open("xb") as file:
            for part in self._loaded(hashes, references, record_bytes, statistics):
                file.write(part.frames)
                size += len(part.frames)
                crc = google_crc32c.extend(crc, part.frames)
                parts.append(part._replace(frames=b""))
        _, lengths, hash_parts, rows, rejects, _ = zip(*parts, strict=True)
        return Stretch(
            b"",
            np.concatenate(lengths),
            np.concatenate(hash_parts),
            b"".join(rows),
            list(itertools.chain.from_iterable(rejects)),
            Piece(str(path), size, crc),
        ), statistics

    def _loaded(
        self,
        hashes: np.ndarray,
        references: list[bytes],
        record_bytes: int,
        statistics: Statistics,
    ) -> Iterator[Stretch]:
        """Yields some references' records, a few at a time; in the end, their statistics are added."""
        encoder = self.loader.encoder()
        for rows in _slices(len(references), self._batch_files(record_bytes)):
            yield self.loader.load(encoder, hashes[rows], references[rows])
        for _, counted in encoder.statistics():
            statistics.merge(counted)

    def _batch_files(self, record_bytes: int) -> int:
        batch_bytes = _STORE_BATCH_BYTES if self.loader.job.inputs.in_store else _BATCH_BYTES
        return max(1, min(batch_bytes // max(record_bytes, 1), _BATCH_FILES))


def _in_order(
    writer: ShardWriter, packed: list[bytes]
) -> tuple[np.ndarray, list[bytes], list[Reject]]:
    """The hashes, uint64 [n], and references of a shard's records, in order, and its rejects, from packed blocks."""
    blocks = [Block.unpack(block) for block in packed]
    hashes = np.concatenate([block.hashes for block in blocks])
    payloads = [payload for block in blocks for payload in block.payloads]
    rejected = np.fromiter(map(is_reject, payloads), bool, len(payloads))
    rejects = [unpack_reject(payload) for payload in itertools.compress(payloads, rejected)]
    hashes, payloads = hashes[~rejected], list(itertools.compress(payloads, ~rejected))
    order = rows_in_order(hashes, lambda row: reference_key(payloads[row]))
    hashes, references = hashes[order], [payloads[row] for row in order]
    check_records(hashes, lambda row: reference_key(references[row]), writer.name, writer.expected)
    return hashes, references, rejects


def _slices(count: int, step: int) -> Iterator[slice]:
    """Yields slices of `step` that cover `count` items."""
    return (slice(start, start + step) for start in range(0, count, step))
