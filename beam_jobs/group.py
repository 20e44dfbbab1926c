"""Records to the shard the plan gives them: the one shuffle of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from beam_jobs.assign import Plan, assign_shards
from beam_jobs.blocks import Block
from beam_jobs.bundle import at_end_of_bundle
from beam_jobs.spool import HeldReferences, Spool, SpoolReader


class _AssignShards(beam.DoFn):
    def __init__(self, compress: bool) -> None:
        self._compress = compress

    def process(self, packed: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        for key, part in assign_shards(Block.unpack(packed), Plan.unpack(plan)):
            yield key, part.pack(self._compress)


class _AssignSpooled(beam.DoFn):
    """References to blocks -> references to the parts of them that belong to one shard."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def start_bundle(self) -> None:
        self._references = HeldReferences()

    def process(self, reference: bytes, plan: bytes) -> Iterator[tuple[int, bytes]]:
        with SpoolReader(self._spool) as reader:
            blocks = [block for _, _, block in reader.blocks(reference)]
        for block in blocks:
            parts = assign_shards(block, Plan.unpack(plan))
            yield from self._references.add(
                (key, self._spool.append(part.pack())) for key, part in parts
            )

    def finish_bundle(self) -> Iterator[Any]:
        self._spool.hand_over()
        yield from map(at_end_of_bundle, self._references.release())


class GroupByShard(beam.PTransform):
    """(packed blocks, packed plan) -> PCollection of (split and shard, packed blocks of it).

    Args:
        compress: As `Block.pack`.
        spool: Has the blocks; what comes in and goes out are references to them.
    """

    def __init__(self, compress: bool = False, spool: Spool | None = None) -> None:
        super().__init__()
        self._assign = _AssignSpooled(spool) if spool else _AssignShards(compress)

    def expand(self, inputs: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        blocks, plan = inputs
        return (
            blocks
            | "Assign" >> beam.ParDo(self._assign, AsSingleton(plan))
            | "GroupByShard" >> beam.GroupByKey()
        )
