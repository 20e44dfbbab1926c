"""The sketches of existing records, by which near duplicates are found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.reshard.examples import FoundExamples, batches_of, records_of
from beam_jobs.jobs.reshard.framed import FrameBatch
from beam_jobs.jobs.reshard.spec import ReshardSpec
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.decode.records import Decoder
from readers.format.schema import Schema

# What separates the file of a record from its number in a key.
_NUMBER = b"#"

# The number of a shard, in its name.
_SHARD = re.compile(r"-([0-9]{1,7})-of-[0-9]+")

# Enough for the records of a shard, and leaves as many for its number.
_RECORD_BITS = 32

# Records that are sketched together: pictures of 2 MiB take 128 MiB.
_AT_ONCE = 64


def example_sketches(spec: ReshardSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's records; one that does not fit the schema has none."""
    builder = SketchBuilder(near, task.id)
    first = 0
    for chunk, batch in batches_of(spec, task):
        if not isinstance(batch, Reject):
            found = records_of(rules, chunk.source, batch)
            orders = rules.placement.orders(found.keys)
            _add(builder, batch, found, np.arange(len(found.keys)) + first, orders)
            first += len(found.keys)
    return builder.finish(task.count)


def dataset_sketches(spec: ReshardSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """As `example_sketches`, with the file and the row of each record, in the order of reading."""
    builders: dict[str, SketchBuilder] = {}
    for chunk, batch in batches_of(spec, task):
        if not isinstance(batch, Reject):
            found = records_of(rules, chunk.source, batch)
            numbers = np.array([key.rpartition(_NUMBER)[2] for key in found.keys]).astype(np.int64)
            builder = builders.setdefault(chunk.source.key, SketchBuilder(near, chunk.source.key))
            orders = _places(chunk.source.key, found.splits, numbers)
            _add(builder, batch, found, numbers, orders)
    made = [builder.finish() for builder in builders.values()]
    blocks = [block for some in made for block in some.blocks]
    return Sketched(blocks, sum(some.records for some in made), task.count)


def _add(
    builder: SketchBuilder,
    batch: FrameBatch,
    found: FoundExamples,
    numbers: np.ndarray,
    orders: np.ndarray,
) -> None:
    """Adds the records of a batch, some at a time."""
    decoder = Decoder(Schema(dict(builder.near.compared.features)))
    view = batch.data.data
    for start in range(0, len(found.keys), _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        spans = zip(found.starts[rows].tolist(), found.stops[rows].tolist(), strict=True)
        values = [_value_of(builder.near, decoder, view[begin:end]) for begin, end in spans]
        builder.add(numbers[rows], orders[rows], found.splits[rows], values)


def _places(file: str, splits: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Where records of a shard are in their dataset: by split, shard and number, uint64 [n]."""
    shard = _SHARD.search(file)
    before = (int(shard[1]) if shard else 0) << _RECORD_BITS
    return splits.astype(np.uint64) << np.uint64(56) | (numbers + before).astype(np.uint64)


def _value_of(near: Near, decoder: Decoder, data: memoryview) -> Any:
    """What is compared of a serialized record; None if it cannot be decoded."""
    try:
        return near.value_of(decoder.decode(data))
    except ValueError:
        return None
