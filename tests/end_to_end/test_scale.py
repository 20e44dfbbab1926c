"""Planning millions of records in 10,000 shards, with the functions that the pipeline runs."""

import pickle
from collections.abc import Iterator

import numpy as np

from beam_jobs.plan.shards import (
    BINS,
    Draft,
    Plan,
    finish_plan,
    pick_boundaries,
    shard_sizes,
    wanted_hashes,
)
from beam_jobs.plan.summary import SplitSummary
from beam_jobs.records.blocks import Block

SHARDS = 10_000
MILLION = 1_000_000


def hashes_of(records: int) -> Iterator[np.ndarray]:
    """Yields the same hashes in every pass, in sorted chunks of a million: no pass holds all of them.

    Each chunk is the first one, turned by a random number modulo 2**64: sorting each takes longer
    than planning it.
    """
    rng = np.random.default_rng(records)
    chunk = np.sort(rng.integers(0, 2**64, MILLION, np.uint64))
    for first in range(0, records, MILLION):
        turned = chunk + rng.integers(0, 2**64, dtype=np.uint64)
        start = int(np.argmin(turned))
        count = min(MILLION, records - first)
        yield np.concatenate([turned[start:], turned[:start]])[:: MILLION // count][:count]


def blocks_of(hashes: np.ndarray) -> Iterator[Block]:
    """Yields blocks of neighboring hashes.

    `wanted_hashes` divides a block by bins: that takes 2.6 s for a million hashes of all bins, and
    0.1 s for blocks of few bins each.
    """
    for part in np.array_split(hashes, 64):
        yield Block(part, np.zeros(len(part), np.uint8), [b""] * len(part))


def drafted(records: int) -> Draft:
    """The draft of the first pass, with a summary of each block."""
    summary = SplitSummary()
    for hashes in hashes_of(records):
        part = SplitSummary()
        part.add(hashes)
        summary.merge(part)
    assert summary.records == records
    return Draft.of([(summary.histogram(), 0, 100.0, SHARDS)], 1)


def planned(records: int, draft: Draft) -> Plan:
    """The plan of the second pass, with the groups of hashes by bin that workers get."""
    groups: dict[int, list[bytes]] = {}
    for hashes in hashes_of(records):
        for block in blocks_of(hashes):
            for key, wanted in wanted_hashes(block, draft):
                groups.setdefault(key, []).append(wanted)
    # A worker gets at most one bin of hashes: n / 65,536, within seven standard deviations.
    most = records / BINS + 7 * (records / BINS) ** 0.5
    assert max(sum(map(len, parts)) for parts in groups.values()) <= 8 * most
    return finish_plan(
        draft, [pick_boundaries(key, parts, draft) for key, parts in groups.items()], ""
    )


def test_millions_of_records_fill_ten_thousand_shards_to_one_record():
    records = 2 * MILLION + 4_321  # which 10,000 does not divide
    draft = drafted(records)
    packed = planned(records, draft).pack()

    # The side inputs of workers are as large as for a million records.
    few = drafted(MILLION)
    assert len(pickle.dumps(draft)) < 1.5 * len(pickle.dumps(few)) < 1 << 20
    assert len(packed) - len(planned(MILLION, few).pack()) in range(-10, 10)
    assert len(packed) < 8 * SHARDS + 100

    (split,) = Plan.unpack(packed).splits
    assert (split.records, split.shards) == (records, SHARDS)
    counts = np.zeros(SHARDS, np.int64)
    for hashes in hashes_of(records):
        counts += np.bincount(split.shard_of(hashes), minlength=SHARDS)
    assert (counts == shard_sizes(records, SHARDS)).all()
