"""Records to the shard the plan gives them: the one shuffle of a job."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from beam_jobs.assign import Plan, assign_shards
from beam_jobs.blocks import Block


class _AssignShards(beam.DoFn):
    def __init__(self, compress: bool) -> None:
        self._compress = compress

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        for key, part in assign_shards(Block.unpack(packed), Plan.unpack(plan)):
            yield key, part.pack(self._compress)


class GroupByShard(beam.PTransform):
    """(packed blocks, packed plan) -> PCollection of (split and shard, packed blocks of it).

    Args:
        compress: As `Block.pack`.
    """

    def __init__(self, compress: bool = False) -> None:
        super().__init__()
        self._compress = compress

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        blocks, plan = inputs
        return (
            blocks
            | "Assign" >> beam.ParDo(_AssignShards(self._compress), AsSingleton(plan))
            | "GroupByShard" >> beam.GroupByKey()
        )
