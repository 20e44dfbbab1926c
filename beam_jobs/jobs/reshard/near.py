"""The sketches of existing records, by which near duplicates are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.reshard.passes import batches_of, broken_examples, records_of
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.decode.records import Decoder
from readers.format.schema import Schema

if TYPE_CHECKING:
    from beam_jobs.jobs.reshard.job import ReshardJob

# Records that are sketched together: pictures of 2 MiB take 128 MiB.
_AT_ONCE = 64


def example_sketches(job: ReshardJob, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's records; one that does not fit the schema has none."""
    builder = SketchBuilder(near, task.id)
    decoder = Decoder(Schema(dict(near.compared.features)))
    first = 0
    for source, batch in batches_of(job, task):
        if isinstance(batch, Reject):
            continue
        found = records_of(rules, source, batch, broken_examples)
        orders = rules.placement.orders(found.keys)
        view = batch.data.data

        for start in range(0, len(found.keys), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(found.keys)))
            spans = zip(found.starts[rows].tolist(), found.stops[rows].tolist(), strict=True)
            values = [_value_of(near, decoder, view[begin:end]) for begin, end in spans]
            builder.add(rows + first, orders[rows], found.splits[rows], values)
        first += len(found.keys)
    return builder.finish(len(task.chunks))


def _value_of(near: Near, decoder: Decoder, data: memoryview) -> Any:
    """What is compared of a serialized record; None if it cannot be decoded."""
    try:
        return near.value_of(decoder.decode(data))
    except ValueError:
        return None
