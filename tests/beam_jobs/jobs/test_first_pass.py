"""The first pass over a task with many records: what it returns."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from beam_jobs.jobs import passes
from beam_jobs.jobs.passes import FirstPass, FoundRecords
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import bin_counts
from beam_jobs.records.blocks import Block
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.source import Source

PLACEMENT = Placement(0, Splits.parse("train=0.7,val=0.3"))
PER_BLOCK = 50
TASK = Task.of((Chunk(Source("in.txt.gz", 7), 0, 0, 1, 7),))


@dataclass(frozen=True, kw_only=True)
class Numbers(FirstPass):
    """Finds records whose keys are numbers, some at a time."""

    counts: tuple[int, ...]

    def found(self, task: Task) -> Iterator[FoundRecords]:
        first = 0
        for count in self.counts:
            keys = [b"%d" % number for number in range(first, first + count)]
            splits = PLACEMENT.splits_of(keys)
            yield FoundRecords(keys, splits, np.full(count, 10), [None] * count, [])
            first += count


def numbers(*counts: int) -> Numbers:
    return Numbers(rules=SplitRules(PLACEMENT), counts=counts)


@pytest.mark.parametrize(
    "counts",
    [
        (0,),
        (1, 0, 2),
        (PER_BLOCK - 1, 2, 2 * PER_BLOCK, 5),
        (3 * PER_BLOCK + 1,),
    ],
)
def test_hashes_are_packed_in_order_in_full_blocks_and_counted(monkeypatch, counts):
    monkeypatch.setattr(passes, "HASHES_PER_BLOCK", PER_BLOCK)
    found = numbers(*counts).read(TASK)
    keys = [b"%d" % number for number in range(sum(counts))]
    blocks = [Block.unpack(packed) for packed in found.blocks]
    full, rest = divmod(len(keys), PER_BLOCK)
    assert [len(block.hashes) for block in blocks] == [PER_BLOCK] * full + [rest] * (rest > 0)
    hashes, splits = PLACEMENT.orders(keys), PLACEMENT.splits_of(keys)
    assert [n for block in blocks for n in block.hashes.tolist()] == hashes.tolist()
    assert [n for block in blocks for n in block.splits.tolist()] == splits.tolist()
    assert not any(block.payloads.data for block in blocks)
    for number, split in enumerate(found.summary.splits):
        mine = hashes[splits == number]
        assert split.records == len(mine) and split.bytes == 10 * len(mine)
        assert split.histogram().tolist() == bin_counts(mine).tolist()
