"""The sketches of the records in files, by which near duplicates are found.

Nothing here imports Beam.
"""

from __future__ import annotations

import itertools

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.file_parts import placed_parts
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.protocols import FileJob, PartsJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.blocks import Block
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.source import unpack_reference
from beam_jobs.storage.objects import reading_ahead


def file_sketches(job: PartsJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
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


def reference_sketches(job: FileJob, near: Near, element: tuple[str, bytes]) -> Sketched:
    """The sketches of the records that references name.

    Args:
        job: Defines the records.
        near: What is compared.
        element: The id of a packed block of references, and the block.
    """
    name, packed = element
    block = Block.unpack(packed)
    sources = [unpack_reference(payload) for payload in block.payloads]
    builder = SketchBuilder(near, name)
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
