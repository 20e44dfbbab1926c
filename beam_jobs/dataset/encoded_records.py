"""Writes a shard of encoded records that wait in a spool, and merges the runs of neighbouring shards."""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import numpy as np

from beam_jobs.columns import Ragged
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import Digest, ShardResult
from beam_jobs.dataset.shard_writer import ShardWriter, Stretch, check_records, rows_in_order
from beam_jobs.plan.shards import Plan, neighbours_of, shards_of
from beam_jobs.records.blocks import (
    Block,
    frame_checksums,
    frame_lengths,
    is_planned,
    unpack_reject,
)
from beam_jobs.records.rejects import Reject, format_rejects
from beam_jobs.records.runs import RunBuilder, locate
from beam_jobs.records.spool import LocatorsByShard, Spool, SpoolReader, read_blocks
from readers.format.schema import Schema

_STRETCH_BYTES = 1 << 20


def neighbours_in(plan: Plan, spool: Spool) -> int:
    """The number of shards whose runs are merged first; 1 on a disk, where a range costs a system call."""
    return 1 if spool.on_disk else neighbours_of(plan)


def merge_neighbours(
    element: tuple[int, Iterable[bytes]], plan: bytes, spool: Spool
) -> Iterator[tuple[int, bytes]]:
    """Yields (split and shard, locators of merged runs) for a group of shards and the locators of its records.

    A shard without neighbours keeps its locators.
    """
    group, packed = element
    known = Plan.unpack(plan)
    neighbours = neighbours_in(known, spool)
    if neighbours == 1:
        yield from ((group, some) for some in packed)
        return
    assign = functools.partial(shards_of, known)
    builder, locators = RunBuilder(spool, assign), LocatorsByShard()
    try:
        for block in read_blocks(spool, packed):
            ours = shards_of(known, block.splits, block.hashes, neighbours) == group
            for run in builder.add(block if ours.all() else block.take(ours.nonzero()[0])):
                yield from locators.add(locate(run, assign))
        for run in builder.finish():
            yield from locators.add(locate(run, assign))
    except BaseException:
        builder.give_up()
        raise
    yield from locators.release()


def write_spooled(
    output: Output, plan: bytes, schema: Schema, spool: Spool, located: tuple[int, Iterable[bytes]]
) -> ShardResult:
    """Writes a shard of records that are in a spool, unless an earlier run has written it.

    `located` is split and shard in one number, and byte strings of any number of locators of the records' blocks.

    Raises:
        JobError: A block cannot be read, or `check_records` or `ShardWriter.write` fails.
    """
    key, locators = located
    # A shard may have records of every process, and each process has its own file.
    with contextlib.suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    writer = ShardWriter(output, Plan.unpack(plan), key, schema)
    with SpoolReader(spool) as reader:
        blocks = reader.blocks(locators)
        records = EncodedShard(reader.files, blocks, writer.owns, writer.rows.size)
        expected = writer.expected - records.planned_rejects
        check_records(records.hashes, records.key_of, writer.name, expected)

        def digest_of_all() -> str:
            digest = writer.digest()
            for _ in _digested(records, digest):
                pass
            return digest.text()

        if done := writer.find_done(digest_of_all):
            return done[0]
        digest = writer.digest()
        return writer.write(_digested(records, digest), digest)


def _digested(records: EncodedShard, digest: Digest) -> Iterator[Stretch]:
    """Adds the records to a digest, which does not depend on the order of the rejects, then yields them in order.

    The checksums of frames stand for their bytes, of which the digest would take longer than all else.
    """
    for some in records.stretches():
        frames = frame_checksums(Ragged(some.lengths, some.frames), some.lengths)
        parts = some.lengths, frames, some.hashes
        digest.update(
            (*(part.tobytes() for part in parts), some.rows, format_rejects(some.rejects))
        )
        yield some


class EncodedShard:
    """The encoded records of a shard, in local files, in the order of their hashes and keys.

    Args:
        files: The files; `blocks` may add to them.
        blocks: (number of the file, offset of the payloads in it, the block).
        owns: `ShardWriter.owns`.
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
            places = np.full(len(sizes), number), stops - payloads.lengths, stops, sizes
            columns.append(np.stack(places, 1)[good])
        self.hashes, self._places = np.concatenate(hashes), np.concatenate(columns)
        order = rows_in_order(self.hashes, self.key_of)
        self.hashes, self._places = self.hashes[order], self._places[order]

    def key_of(self, row: int) -> bytes:
        """The key of a record, which follows its frame and its row."""
        number, start, stop, size = self._places[row].tolist()
        start += size + self._row_size
        return os.pread(self._files[number].fileno(), stop - start, start)

    def stretches(self) -> Iterator[Stretch]:
        """Yields the records in order, about a megabyte at a time, and the rejects at the end."""
        if self.hashes.size:
            numbers, starts, _, sizes = self._places.T
            at = np.cumsum(sizes)
            cuts = np.searchsorted(at, np.arange(_STRETCH_BYTES, at[-1], _STRETCH_BYTES), "right")
            edges = np.unique([0, *cuts, len(at)]).tolist()
            width = self._row_size
            with contextlib.ExitStack() as stack:
                maps = [
                    stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                    for file in self._files
                ]
                for first, last in itertools.pairwise(edges):
                    some = slice(first, last)
                    columns = numbers[some], starts[some], starts[some] + sizes[some]
                    spans = [*zip(*(column.tolist() for column in columns), strict=True)]
                    frames = b"".join([maps[number][start:end] for number, start, end in spans])
                    rows = b"".join([maps[number][end : end + width] for number, _, end in spans])
                    yield Stretch(frames, sizes[some], self.hashes[some], rows, [])
        yield Stretch.of_rejects(self.rejects)
