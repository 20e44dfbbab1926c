"""Writes a shard of encoded records that wait in a spool."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np

from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import Run, ShardWriter, check_records, rows_in_order
from beam_jobs.plan.shards import Plan
from beam_jobs.records.blocks import Block, frame_lengths, is_planned, unpack_reject
from beam_jobs.records.rejects import Reject, format_rejects
from beam_jobs.records.spool import Spool
from beam_jobs.records.spool_reader import SpoolReader
from readers.format.schema import Schema

_RUN_BYTES = 1 << 20


def write_spooled(
    output: Output, plan: bytes, key: int, schema: Schema, spool: Spool, locators: Iterable[bytes]
) -> ShardResult:
    """Writes a shard of records that are in a spool, or finds it written by an earlier run.

    Args:
        output: The dataset.
        plan: The packed plan of all shards.
        key: Split and shard in one number.
        schema: The features of every record.
        spool: Holds the records.
        locators: Each holds any number of locators of the records' blocks.

    Raises:
        JobError: A block cannot be read, or `write_records` fails.
    """
    # A shard may have records of every process, and each has a file of its own.
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    writer = ShardWriter(output, Plan.unpack(plan), key, schema)
    with SpoolReader(spool) as reader:
        return write_records(
            writer,
            StoredRecords(reader.files, reader.blocks(locators), writer.owns, writer.rows.size),
        )


def write_records(writer: ShardWriter, records: StoredRecords) -> ShardResult:
    """Writes a shard, or finds it written by an earlier run.

    Raises:
        JobError: `check_records` or `ShardWriter.write` fails.
    """
    expected = writer.expected - records.planned_rejects
    check_records(records.hashes, records.key_of, writer.name, expected)
    if note := writer.read_note():
        digest = writer.digest()
        for run in records.runs():
            digest.update(_contents(run))
        if found := writer.find_done(note, digest.text()):
            return found[0]
    digest = writer.digest()

    def digested() -> Iterator[Run]:
        for run in records.runs():
            digest.update(_contents(run))
            yield run

    return writer.write(digested(), digest)


def _contents(run: Run) -> tuple[bytes, ...]:
    """The contents of a run, the same whatever the order in which its rejects arrived."""
    return run.frames, run.hashes.tobytes(), run.rows, format_rejects(run.rejects)


class StoredRecords:
    """The encoded records of a shard, in local files, in the order of their hashes and keys.

    Args:
        files: The files; `blocks` may add to them.
        blocks: (number of the file, offset of the payloads in it, the block).
        owns: Which records of a block are of this shard: splits uint8 [n], hashes uint64 [n] -> bool [n].
        row_size: The size of a row of the index in bytes, which follows each frame.

    Attributes:
        hashes: The hash of each record, uint64 [n].
        rejects: The rejects in any order.
        planned_rejects: The number of rejects that the plan counts as records.
    """

    def __init__(
        self,
        files: list[BinaryIO],
        blocks: Iterable[tuple[int, int, Block]],
        owns: Callable[[np.ndarray, np.ndarray], np.ndarray],
        row_size: int,
    ) -> None:
        self._files, self._row_size = files, row_size
        self.rejects: list[Reject] = []
        self.planned_rejects = 0
        hashes, columns = [np.empty(0, np.uint64)], [np.empty((0, 4), np.int64)]
        for number, at, block in blocks:
            payloads = block.payloads
            sizes = frame_lengths(payloads)
            ours = owns(block.splits, block.hashes)
            good = ours & (sizes > 0)
            rejected = [payloads[row] for row in np.flatnonzero(ours & (sizes == 0)).tolist()]
            self.rejects += map(unpack_reject, rejected)
            self.planned_rejects += sum(map(is_planned, rejected))
            stops = payloads.ends + at
            hashes.append(block.hashes[good])
            found = np.full(len(sizes), number), stops - payloads.lengths, stops, sizes
            columns.append(np.stack(found, 1)[good])
        self.hashes = np.concatenate(hashes)
        self._places = np.concatenate(columns)
        order = rows_in_order(self.hashes, self.key_of)
        self.hashes, self._places = self.hashes[order], self._places[order]

    def key_of(self, row: int) -> bytes:
        """The key of a record, which follows its frame and its row."""
        number, start, stop, size = self._places[row].tolist()
        start += size + self._row_size
        return os.pread(self._files[number].fileno(), stop - start, start)

    def runs(self) -> Iterator[Run]:
        """Yields the records in order, about a megabyte at a time, and the rejects at the end."""
        if self.hashes.size:
            numbers, starts, _, sizes = self._places.T
            at = np.cumsum(sizes)
            cuts = np.searchsorted(at, np.arange(_RUN_BYTES, at[-1], _RUN_BYTES), side="right")
            edges = np.unique([0, *cuts, len(at)]).tolist()
            with contextlib.ExitStack() as stack:
                maps = [
                    stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                    for file in self._files
                ]
                for first, last in itertools.pairwise(edges):
                    rows = slice(first, last)
                    columns = numbers[rows], starts[rows], starts[rows] + sizes[rows]
                    spans = [*zip(*(column.tolist() for column in columns), strict=True)]
                    frames = b"".join([maps[number][start:end] for number, start, end in spans])
                    width = self._row_size
                    of_index = b"".join(
                        [maps[number][end : end + width] for number, _, end in spans]
                    )
                    yield Run(frames, sizes[rows], self.hashes[rows], of_index, [])
        yield Run.of_rejects(self.rejects)
