"""The sketches of existing records, by which near duplicates are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.reshard.framed import FrameBatch
from beam_jobs.jobs.reshard.passes import (
    FoundExamples,
    batches_of,
    broken_examples,
    records_of,
)
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.decode.records import Decoder
from readers.format.schema import Schema

if TYPE_CHECKING:
    from beam_jobs.jobs.reshard.job import ReshardJob

# What separates the file of a record from its number in a key.
_NUMBER = b"#"

# Records that are sketched together: pictures of 2 MiB take 128 MiB.
_AT_ONCE = 64


def example_sketches(job: ReshardJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's records; one that does not fit the schema has none."""
    builder = SketchBuilder(near, task.id)
    first = 0
    for source, batch in batches_of(job, task):
        if not isinstance(batch, Reject):
            found = records_of(rules, source, batch, broken_examples)
            _add(builder, rules, batch, found, np.arange(len(found.keys)) + first)
            first += len(found.keys)
    return builder.finish(len(task.chunks))


def dataset_sketches(job: ReshardJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The same sketches, whose owners are files, and whose numbers are those of records in their file, from 1."""
    builders: dict[str, SketchBuilder] = {}
    for source, batch in batches_of(job, task):
        if not isinstance(batch, Reject):
            found = records_of(rules, source, batch, broken_examples)
            numbers = [int(key.rpartition(_NUMBER)[2]) for key in found.keys]
            builder = builders.setdefault(source.key, SketchBuilder(near, source.key))
            _add(builder, rules, batch, found, np.array(numbers, np.int64))
    made = [builder.finish() for builder in builders.values()]
    blocks = [block for some in made for block in some.blocks]
    return Sketched(blocks, sum(some.records for some in made), len(task.chunks))


def _add(
    builder: SketchBuilder,
    rules: SplitRules,
    batch: FrameBatch,
    found: FoundExamples,
    numbers: np.ndarray,
) -> None:
    """Adds the records of a batch, some at a time."""
    decoder = Decoder(Schema(dict(builder.near.compared.features)))
    orders = rules.placement.orders(found.keys)
    view = batch.data.data
    for start in range(0, len(found.keys), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        spans = zip(found.starts[rows].tolist(), found.stops[rows].tolist(), strict=True)
        values = [_value_of(builder.near, decoder, view[begin:end]) for begin, end in spans]
        builder.add(numbers[rows], orders[rows], found.splits[rows], values)


def _value_of(near: Near, decoder: Decoder, data: memoryview) -> Any:
    """What is compared of a serialized record; None if it cannot be decoded."""
    try:
        return near.value_of(decoder.decode(data))
    except ValueError:
        return None
