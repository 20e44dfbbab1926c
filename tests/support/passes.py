"""Runs the two passes over files without Beam, and collects what they find."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from beam_jobs.dataset.output import Output
from beam_jobs.jobs.file_passes import FileFirstPass, FileSecondPass
from beam_jobs.jobs.file_shards import Loader
from beam_jobs.jobs.passes import Learned
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.blocks import Block
from beam_jobs.records.runs import RunIndex
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.labels import Names
from readers.format.decode.records import Decoder
from readers.format.tfrecord import unframe

ONE = Placement(0, Splits())


class Kept:
    """Takes the records of a pass, as `BundleRuns` does, and keeps them.

    Attributes:
        blocks: The blocks in the order of their arrival.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def add(self, block: Block, _: Any) -> list[RunIndex]:
        self.blocks.append(block)
        return []


def task_of(job: Any) -> Task:
    sources = [source for pattern in job.inputs.patterns for source in job.sources(pattern)]
    return Task.of([Chunk(source, 0, 0, 1, source.size) for source in sources])


def _tasks_of(job: Any) -> list[Task]:
    """The task of a job; none if it has no sources."""
    has_sources = any(any(job.sources(pattern)) for pattern in job.inputs.patterns)
    return [task_of(job)] if has_sources else []


class FirstResult(NamedTuple):
    """Results of the first pass: (split, label, bytes) by key, and rejects by key."""

    records: dict[str, tuple[int, Any, int]]
    rejects: dict[str, str]


class SecondResult(NamedTuple):
    """Results of the second pass: (split, frame) by key, rejects, and late ones with their split."""

    frames: dict[str, tuple[int, bytes]]
    rejects: dict[str, str]
    late: dict[str, tuple[int, str, str]]


def find(job: Any, placement: Placement = ONE) -> FirstResult:
    file_pass = FileFirstPass(rules=SplitRules(placement), job=job)
    result = FirstResult({}, {})
    for part in itertools.chain.from_iterable(map(file_pass.found, _tasks_of(job))):
        result.rejects.update({reject.key: reject.error for reject in part.rejects})
        rows = zip(part.keys, part.splits, part.labels, part.sizes, strict=True)
        for key, split, label, size in rows:
            assert key.decode() not in result.records
            result.records[key.decode()] = int(split), label, int(size)
    return result


def loader_of(job: Any, names: Names | None = None) -> Loader:
    """A loader of the records of a job."""
    return Loader(Output("", job.schema, ONE, (0,)), Learned(job.schema, names), job)


def second_pass(job: Any, names: Names, placement: Placement = ONE) -> FileSecondPass:
    output = Output("", job.schema, placement, (0,))
    return FileSecondPass(output, Learned(job.schema, names), job)


def encode(job: Any, names: Names | None = None, placement: Placement = ONE) -> SecondResult:
    file_pass = second_pass(job, names or {}, placement)
    result = SecondResult({}, {}, {})
    counter = file_pass.counter()
    for part in (part for task in _tasks_of(job) for part in file_pass.encoded(task, counter)):
        result.rejects.update({reject.key: reject.error for reject in part.rejects})
        result.late.update({r.key: (split, r.stage, r.error) for r, split in part.late})
        for key, split, frame in zip(part.keys, part.splits, part.frames, strict=True):
            assert key.decode() not in result.frames
            result.frames[key.decode()] = int(split), frame
    return result


def decode(job: Any, frame: bytes) -> dict[str, Any]:
    return Decoder(job.schema).decode(unframe(frame, "frame", 0))
