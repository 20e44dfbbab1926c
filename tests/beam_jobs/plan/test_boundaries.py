import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.columns import Ragged
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import (
    BIN_BITS,
    BINS,
    Draft,
    Plan,
    bin_counts,
    finish_plan,
    mean_bytes,
    pick_boundaries,
    wanted_hashes,
)
from beam_jobs.records.blocks import Block
from beam_jobs.records.rejects import Reject

REJECT = Reject("k", "decode", "why")


def block_of(splits: list[list[int]]) -> Block:
    """A block with the hashes of each split, which alternate."""
    pairs = sorted(
        (n, split, hash_) for split, row in enumerate(splits) for n, hash_ in enumerate(row)
    )
    hashes = np.array([hash_ for _, _, hash_ in pairs], np.uint64)
    numbers = np.array([split for _, split, _ in pairs], np.uint8)
    return Block(hashes, numbers, Ragged.of([b""] * len(pairs)))


def draft_of(splits: list[list[int]], shards: int) -> Draft:
    counts = (bin_counts(np.array(row, np.uint64)) for row in splits)
    return Draft.of(((histogram, 2, 99.6, shards) for histogram in counts), 1)


def handed_over(blocks: list[Block], draft) -> dict[int, list[bytes]]:
    """What a runner groups by bin."""
    found: dict[int, list[bytes]] = {}
    for block in blocks:
        for key, hashes in wanted_hashes(block, draft):
            found.setdefault(key, []).append(hashes)
    return found


# Crowded into few bins, so that several boundaries share one.
rows = st.lists(
    st.integers(0, 9).flatmap(lambda n: st.integers(n << 48, (n << 48) + 99)),
    max_size=40,
    unique=True,
)


@given(st.lists(rows, min_size=1, max_size=3), st.integers(1, 9))
@settings(max_examples=30)
def test_the_plan_has_the_hash_of_the_first_record_of_each_shard(splits, shards):
    draft = draft_of(splits, shards)
    blocks = [block_of([row[::2] for row in splits]), block_of([row[1::2] for row in splits])]
    picked = [pick_boundaries(*each, draft) for each in handed_over(blocks, draft).items()]
    plan = finish_plan(draft, reversed(picked), "0123abcd")
    assert Plan.unpack(plan.pack()).folder == plan.folder == "0123abcd"
    for row, planned in zip(splits, plan.splits, strict=True):
        count = min(shards, len(row))
        assert (planned.records, planned.shards) == (len(row), count)
        assert (planned.rejected, planned.record_bytes) == (2, 100)
        edges = [sorted(row)[len(row) * shard // count] for shard in range(1, count)]
        assert planned.boundaries.tolist() == edges


def test_only_bins_with_boundaries_are_handed_over():
    splits = [list(range(0, 2**64, 2**56)), []]
    draft = draft_of(splits, 4)
    assert draft.bins == {n << 14: (1, [0]) for n in (1, 2, 3)}
    facts = [(s.records, s.rejected, s.record_bytes, s.shards) for s in draft.splits]
    assert facts == [(256, 2, 100, 4), (0, 2, 100, 0)]
    keys = sorted(handed_over([block_of(splits)], draft))
    assert keys == [1 << 14, 2 << 14, 3 << 14]
    assert draft_of(splits, 1).bins == {}


def test_the_key_of_a_bin_holds_its_split():
    splits = [[], [5, 6, 7, (BINS - 1) << 48]]
    draft = draft_of(splits, 4)
    found = handed_over([block_of(splits)], draft)
    assert sorted(found) == [1 << BIN_BITS, 1 << BIN_BITS | BINS - 1]
    split, edges = pick_boundaries(1 << BIN_BITS, found[1 << BIN_BITS], draft)
    assert (split, np.frombuffer(edges, "<u8").tolist()) == (1, [6, 7])


def test_keys_that_a_runner_loses_or_repeats_are_noticed():
    splits = [[5, 6, 7, 8]]
    draft = draft_of(splits, 2)
    ((key, hashes),) = handed_over([block_of(splits)], draft).items()
    for wrong in ([], hashes * 2, [hashes[0][8:]]):
        found = sum(map(len, wrong)) // 8
        message = f"lost or repeated keys while shards were planned: {found} of 4 arrived"
        with pytest.raises(DataError, match=message):
            pick_boundaries(key, wrong, draft)


def test_two_records_of_one_key_at_a_boundary_are_refused():
    for splits, shards, refused in (
        ([[5, 6, 6, 8]], 2, True),
        ([[5, 6, 6, 8]], 3, True),
        ([[5, 5, 6, 8]], 2, False),
        ([[6, 6]], 2, True),
    ):
        draft = draft_of(splits, shards)
        ((key, hashes),) = handed_over([block_of(splits)], draft).items()
        if refused:
            with pytest.raises(UsageError, match="two records have the same key: every record"):
                pick_boundaries(key, hashes, draft)
        else:
            assert pick_boundaries(key, hashes, draft) == (0, (6).to_bytes(8, "little"))


def test_a_boundary_at_the_first_hash_of_a_bin_is_compared_with_none():
    # The rank before it is in another bin; the last hash of this bin equals nothing.
    splits = [[5, 1 << 48, 1 << 48]]
    draft = draft_of(splits, 2)
    found = handed_over([block_of(splits)], draft)
    assert pick_boundaries(1, found[1], draft) == (0, (1 << 48).to_bytes(8, "little"))


def test_boundaries_that_a_runner_loses_or_repeats_are_noticed():
    splits = [[5, 6, 7], []]
    draft = draft_of(splits, 3)
    ((key, hashes),) = handed_over([block_of(splits)], draft).items()
    picked = pick_boundaries(key, hashes, draft)
    assert [split.shards for split in finish_plan(draft, [picked], "").splits] == [3, 0]
    for wrong, found in (([], 0), ([picked] * 2, 4)):
        message = f"lost or repeated shard boundaries: {found} of 2 arrived"
        with pytest.raises(DataError, match=message):
            finish_plan(draft, wrong, "")


@pytest.mark.parametrize(
    ("mean_file", "sizes", "measured", "expected"),
    [
        # Records in proportion to their files, beside 10 bytes of each.
        (300, [100, 200, 400], [60, 110, 210], 160),
        # Records of one size.
        (300, [100, 200, 400], [70, 70, 70], 70),
        # Files of one size.
        (100, [100, 100], [60, 70], 65),
        # What was rejected says nothing about sizes.
        (300, [100, 7, 400], [60, REJECT, 210], 160),
        (300, [], [], 300),
        (300, [9, 8], [REJECT, REJECT], 300),
        # A line that leads below zero is no estimate.
        (300, [100, 200], [20, 10], 15),
        (290, [100, 200], [20, 10], 1),
    ],
)
def test_the_mean_size_of_records_is_read_off_a_line_through_the_sample(
    mean_file, sizes, measured, expected
):
    assert mean_bytes(mean_file, sizes, measured) == pytest.approx(expected)
