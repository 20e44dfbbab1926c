"""The sketches of the records in files, by which near duplicates are found.

Nothing here imports Beam.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.file_parts import placed_parts
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.blocks import Block
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.source import reference_key, unpack_reference
from beam_jobs.storage.files import reading_ahead


def file_sketches(job: FileJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of the records in a task's files."""
    builder = SketchBuilder(near, task.id)
    for placed in placed_parts(job, rules, task, numbered=True):
        for found in placed.parts:
            try:
                left = len(found.part.planned())
            except RejectError:
                continue
            try:
                for number, (key, record) in enumerate(found.part.records(), found.first):
                    builder.add(
                        np.array([number], np.int64),
                        rules.placement.orders([key.encode()]),
                        np.array([found.split], np.uint8),
                        [near.value_of(record)],
                    )
                    left -= 1
            except RejectError:
                builder.skip(left)  # The second pass rejects them.
    return builder.finish(len(task.chunks))


class ReferenceTask(NamedTuple):
    """A packed block of references, as a task that may drop records.

    Attributes:
        id: Identifies the block within its job.
        packed: The block.
        dropped: The numbers of the records that are dropped, int64 as bytes.
    """

    id: str
    packed: bytes
    dropped: bytes = b""

    @classmethod
    def of(cls, packed: bytes) -> ReferenceTask:
        """A block as a task."""
        key = reference_key(Block.unpack(packed).payloads[0]).decode("utf-8", "surrogateescape")
        return cls(f"{key}#{hashlib.blake2b(packed, digest_size=16).hexdigest()}", packed)

    @property
    def size(self) -> int:
        """The number of its references."""
        return len(Block.unpack(self.packed).hashes)

    def without(self, rows: np.ndarray) -> ReferenceTask:
        """The task that drops records, by their numbers: int64 [n]."""
        return self._replace(dropped=rows.astype("<i8").tobytes())

    def divided(self) -> tuple[Block, Block]:
        """The references that are left, and those that are dropped."""
        block, rows = Block.unpack(self.packed), np.frombuffer(self.dropped, "<i8")
        return block.take(np.delete(np.arange(len(block.hashes)), rows)), block.take(rows)


def reference_sketches(job: FileJob, near: Near, task: ReferenceTask) -> Sketched:
    """The sketches of the records that references name."""
    block = Block.unpack(task.packed)
    sources = [unpack_reference(payload) for payload in block.payloads]
    builder = SketchBuilder(near, task.id)
    with reading_ahead(itertools.chain.from_iterable(map(job.reads, sources))):
        for number, source in enumerate(sources):
            if source.error:
                continue
            try:
                value = near.value_of(job.load(source))
            except RejectError:
                value = None  # The writer of its shard rejects it.
            row = slice(number, number + 1)
            builder.add(np.array([number], np.int64), block.hashes[row], block.splits[row], [value])
    return builder.finish()
