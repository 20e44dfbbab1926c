"""The sketches of the records in files, by which near duplicates are found.

Nothing here imports Beam.
"""

from __future__ import annotations

import itertools

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.file_parts import placed_parts
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.protocols import FileJob
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.sources.chunks import Task


def file_sketches(job: FileJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of the records in a task's files."""
    builder = SketchBuilder(near, task.id)
    for found in itertools.chain.from_iterable(
        placed.parts for placed in placed_parts(job, rules, task, numbered=True)
    ):
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
            builder.skip(left)  # They are rejected when they are encoded.
    return builder.finish(task.count)
