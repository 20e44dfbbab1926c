"""Writes the shards of jobs whose record is a file: opens, decodes and encodes each file of a shard.

A process writes a whole shard. Where there are fewer shards than would keep all processes busy, it writes pieces of one,
which are joined without passing through another process. Nothing here imports Beam.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import numpy as np

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import (
    ShardWriter,
    Stretch,
    check_records,
    rows_in_order,
    unwritable,
)
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.jobs.loading import FramedRecords, Loader
from beam_jobs.plan.shards import Plan
from beam_jobs.records.blocks import Block, is_reject, unpack_reject
from beam_jobs.records.rejects import Reject, format_rejects
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.source import reference_key
from beam_jobs.storage.atomic import Piece

# Files of about this many bytes of records are loaded at a time, so that a shard takes little memory; in a store
# more, because a process waits only for the first of its requests, some 60 ms.
_BATCH_BYTES, _STORE_BATCH_BYTES = 1 << 20, 16 << 20

_BATCH_FILES = 256

# Shards, or pieces of them, for each process, so that none is idle while the others write their last ones.
_PARTS_PER_PROCESS = 2

# Records (by their place among references) and where their frames wait; None if the records have them.
_Loaded = Iterator[tuple[int, FramedRecords, Piece | None]]


class _Shard(NamedTuple):
    """The contents of a shard.

    Attributes:
        hashes: uint64 [n], the hashes of its records, in order.
        references: The reference of each.
        rejects: Inputs that became no record.
    """

    hashes: np.ndarray
    references: list[bytes]
    rejects: list[Reject]


class Pieces(NamedTuple):
    """Who writes pieces of shards.

    Attributes:
        pool: The processes.
        write: The pickled method `FileShards.piece`.
        folder: The local folder in which pieces wait.
    """

    pool: Pool
    write: bytes
    folder: str


@dataclass(frozen=True)
class FileShards:
    """Writes shards of whole files, in any process.

    Attributes:
        output: The dataset.
        plan: The packed plan of all shards.
        loader: Loads and encodes the records.
    """

    output: Output
    plan: bytes
    loader: Loader

    @cached_property
    def _known_plan(self) -> Plan:
        return Plan.unpack(self.plan)

    def pieces_of_shard(self, processes: int) -> int:
        """In how many pieces a shard is written by a number of processes; 1 if a process writes all of it."""
        shards = sum(split.shards for split in self._known_plan.splits)
        return -(-_PARTS_PER_PROCESS * processes // max(shards, 1)) if processes > 1 else 1

    def write(
        self, key: int, packed: list[bytes], pieces: Pieces | None = None
    ) -> tuple[ShardResult, Statistics]:
        """Writes a shard from the references of its files, unless a finished one exists.

        Args:
            key: Split and shard in one number.
            packed: Packed blocks of references.
            pieces: Who writes pieces of the shard; None if this process loads all of it.

        Raises:
            JobError: References are missing or repeated, a file is rejected and `on_reject` is "fail",
                or the shard cannot be written.
        """
        schema = self.output.schema
        writer = ShardWriter(self.output, self._known_plan, key, schema)
        shard = _in_order(writer, packed)
        digest = writer.digest(self.loader.names).update(shard.references)
        digest.update([shard.hashes.tobytes(), format_rejects(shard.rejects)])
        if found := writer.find_done(digest.text):
            result, state = found
            # If its statistics cannot be read, the shard is written again.
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                return result, Statistics.of_state(schema, state)
        statistics = Statistics(schema)
        if pieces:
            loaded = self._loaded_elsewhere(shard.references, writer.record_bytes, pieces)
        else:
            loaded = self._loaded(shard.references, writer.record_bytes)

        def stretches() -> Iterator[Stretch]:
            for at, records, piece in loaded:
                statistics.merge(records.statistics)
                hashes = shard.hashes[at + records.sources]
                columns = records.frames, records.lengths, hashes, records.rows, records.rejects
                yield Stretch(*columns, piece)
            yield Stretch.of_rejects(shard.rejects)

        return writer.write(stretches(), digest, statistics.state), statistics

    def _loaded_elsewhere(
        self, references: list[bytes], record_bytes: int, pieces: Pieces
    ) -> _Loaded:
        count = self.pieces_of_shard(pieces.pool.processes)
        step = max(-(-len(references) // count), self._batch_files(record_bytes))
        starts = range(0, len(references), step)
        tasks = (
            (pieces.write, references[at : at + step], record_bytes, pieces.folder) for at in starts
        )
        for at, (records, piece) in zip(starts, pieces.pool.map(call_pickled, tasks), strict=True):
            yield at, records, piece
            os.unlink(piece.path)

    def piece(
        self, references: list[bytes], record_bytes: int, folder: str
    ) -> tuple[FramedRecords, Piece]:
        """Writes a piece of a shard to a folder; returns its records without their frames."""
        path, size, crc = Path(folder, f"piece.{uuid.uuid4().hex}"), 0, 0
        loaded: list[FramedRecords] = []
        with unwritable(folder, path.name), path.open("xb") as file:
            for at, records, _ in self._loaded(references, record_bytes):
                file.write(records.frames)
                size += len(records.frames)
                crc = google_crc32c.extend(crc, records.frames)
                loaded.append(records._replace(frames=b"", sources=records.sources + at))
        return FramedRecords.joined(loaded, self.loader.schema), Piece(str(path), size, crc)

    def _loaded(self, references: list[bytes], record_bytes: int) -> _Loaded:
        step = self._batch_files(record_bytes)
        for at in range(0, len(references), step):
            yield at, self.loader.load(references[at : at + step]), None

    def _batch_files(self, record_bytes: int) -> int:
        batch_bytes = _STORE_BATCH_BYTES if self.loader.job.inputs.in_store else _BATCH_BYTES
        return max(1, min(batch_bytes // max(record_bytes, 1), _BATCH_FILES))


def _in_order(writer: ShardWriter, packed: list[bytes]) -> _Shard:
    """The contents of a shard, from packed blocks of references and rejects."""
    blocks = [Block.unpack(block) for block in packed]
    hashes = np.concatenate([block.hashes for block in blocks])
    payloads = [payload for block in blocks for payload in block.payloads]
    rejected = np.fromiter(map(is_reject, payloads), bool, len(payloads))
    rejects = [unpack_reject(payload) for payload in itertools.compress(payloads, rejected)]
    hashes, payloads = hashes[~rejected], list(itertools.compress(payloads, ~rejected))
    order = rows_in_order(hashes, lambda row: reference_key(payloads[row]))
    hashes, references = hashes[order], [payloads[row] for row in order]
    check_records(hashes, lambda row: reference_key(references[row]), writer.name, writer.expected)
    return _Shard(hashes, references, rejects)
