import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.columns import Ragged
from beam_jobs.dataset.output import parse_size
from beam_jobs.errors import UsageError
from beam_jobs.plan import shards as planned
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import (
    BINS,
    MAX_SHARDS,
    Plan,
    SplitPlan,
    bin_counts,
    bins_of,
    boundary_ranks,
    count_shards,
    divided,
    first_ranks,
    shard_sizes,
    shards_of,
)
from beam_jobs.records.blocks import Block, grouped

THREE = Splits(("train", "val", "test"), (0.8, 0.1, 0.1))

# Anywhere, or crowded into one bin, so that boundaries share bins and hashes are neighbours.
hash_lists = st.one_of(
    st.lists(st.integers(0, 2**64 - 1), max_size=80, unique=True),
    st.lists(st.integers(2**63, 2**63 + 2**10), max_size=80, unique=True),
    st.lists(st.integers(0, 2**64 - 1).map(lambda h: h >> 60 << 60), max_size=8, unique=True),
)


def plan_of(hashes: np.ndarray, shards: int) -> SplitPlan:
    """The plan of a split as the pipeline makes it: ranks within bins, then hashes of these."""
    ranks = boundary_ranks(bin_counts(hashes), shards)
    edges = [np.sort(hashes[bins_of(hashes) == bin_])[within] for bin_, within in ranks.items()]
    boundaries = np.sort(np.concatenate([np.empty(0, np.uint64), *edges]))
    return SplitPlan(len(hashes), 0, 100, shards, boundaries)


@pytest.mark.parametrize(
    ("text", "names", "fractions"),
    [
        ("train=1", ("train",), (1.0,)),
        ("train=0.8,val=0.1,test=0.1", ("train", "val", "test"), (0.8, 0.1, 0.1)),
        (" val=.5 , train=5e-1 ", ("val", "train"), (0.5, 0.5)),
        ("a=0.3333333,b=0.3333333,c=0.3333333", ("a", "b", "c"), (0.3333333,) * 3),
        ("fold_1.a=0.25,B=0.75", ("fold_1.a", "B"), (0.25, 0.75)),
    ],
)
def test_splits_are_parsed_in_the_order_given(text, names, fractions):
    assert Splits.parse(text) == Splits(names, fractions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "''"),
        ("train", "'train'"),
        ("train=", "'train='"),
        ("train=x", "'train=x'"),
        ("train=1,", "''"),
        ("../x=1", "split name '../x': expected letters"),
        ("train=0,val=1", "'train=0': expected a share up to 1"),
        ("train=-0.5,val=1.5", "'train=-0.5': expected a share"),
        ("train=nan", "'train=nan': expected a share"),
        ("train=0.5,train=0.5", "'train' is repeated"),
        ("train=80%,val=20%", "'train=80%': expected a share up to 1, such as train=0.8"),
        ("80,20", "expected NAME=SHARE, such as train=0.8,val=0.2; found '80'"),
        ("train=0.9,val=0.9", "the shares add up to 1.8, not 1"),
    ],
)
def test_wrong_splits_are_refused(text, message):
    with pytest.raises(UsageError) as caught:
        Splits.parse(text)
    assert caught.value.message.startswith(f"--splits {text}: ")
    assert message in caught.value.message


def test_the_first_and_the_last_hash_have_a_split():
    assert THREE.of(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0, 2]
    thirds = Splits.parse("a=0.3333333,b=0.3333333,c=0.3333333")
    assert thirds.of(np.array([2**64 - 1], np.uint64)).tolist() == [2]


def test_a_hash_on_an_edge_belongs_to_the_split_that_begins_there():
    halves = Splits.parse("a=0.5,b=0.5")
    assert halves.of(np.array([2**63 - 1, 2**63], np.uint64)).tolist() == [0, 1]


def test_the_split_of_a_key_never_changes():
    placement = Placement(0, THREE)
    found = [placement.split(f"k{i}") for i in range(20)]
    assert found == [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@given(st.integers(0, 10**12), st.integers(1, 300))
def test_shard_sizes_add_up_and_differ_by_at_most_one(records, shards):
    sizes = shard_sizes(records, shards)
    assert len(sizes) == shards
    assert sum(sizes) == records
    assert max(sizes) - min(sizes) <= 1
    assert first_ranks(records, shards) == np.cumsum(sizes)[:-1].tolist()


@given(hash_lists.filter(bool), st.data())
@settings(max_examples=50, deadline=None)
def test_shards_are_exactly_balanced_ranges_of_the_sorted_hashes(hashes, data):
    shards = data.draw(st.integers(1, len(hashes)))
    array = np.array(hashes, np.uint64)
    plan = plan_of(array, shards)
    ordered = sorted(hashes)
    edges = [len(ordered) * i // shards for i in range(shards + 1)]
    expected = {h: i for i in range(shards) for h in ordered[edges[i] : edges[i + 1]]}
    assert plan.shard_of(array).tolist() == [expected[h] for h in hashes]
    assert plan.boundaries.tolist() == [ordered[edge] for edge in edges[1:-1]]
    sizes = np.bincount(plan.shard_of(array), minlength=shards)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.tolist() == shard_sizes(len(hashes), shards)


def test_ranks_within_a_bin_are_ascending():
    counts = np.zeros(BINS, np.int64)
    counts[[3, 70, BINS - 1]] = 5, 1, 4
    assert boundary_ranks(counts, 10) == {3: [1, 2, 3, 4], 70: [0], BINS - 1: [0, 1, 2, 3]}
    assert boundary_ranks(counts, 1) == {}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**40),
            st.integers(0, 2**40),
            st.integers(0, 2**31),
            st.lists(st.integers(0, 2**64 - 1), max_size=5),
        ),
        max_size=4,
    )
)
@settings(max_examples=40, deadline=None)
def test_unpack_reverses_pack(splits):
    plan = Plan(
        tuple(
            SplitPlan(
                records, rejected, size, len(edges) + (records > 0), np.array(sorted(edges), "u8")
            )
            for records, rejected, size, edges in splits
            if records or not edges
        )
    )
    found = Plan.unpack(plan.pack())
    assert len(found.splits) == len(plan.splits)
    for a, b in zip(found.splits, plan.splits, strict=True):
        assert (a.records, a.rejected) == (b.records, b.rejected)
        assert (a.record_bytes, a.shards) == (b.record_bytes, b.shards)
        assert a.boundaries.tolist() == b.boundaries.tolist()
        assert a.shard_of(b.boundaries).tolist() == b.shard_of(b.boundaries).tolist()


@pytest.mark.parametrize(
    ("records", "record_bytes", "num_shards", "shard_size", "expected"),
    [
        (1000, 100.0, 16, 1 << 20, 16),
        (5, 100.0, 16, 1 << 20, 5),
        (0, 100.0, 16, 1 << 20, 0),
        (1, 1e12, 0, 1000, 1),
        (1000, 100.0, 0, 100_000, 1),
        (1000, 100.1, 0, 100_000, 2),
        (1000, 100.0, 0, 1, 1000),
        (1000, 0.0, 0, 1, 1),
        (10**9, 1e6, 0, 1, MAX_SHARDS),
    ],
)
def test_the_number_of_shards_is_the_one_given_or_follows_from_their_size(
    records, record_bytes, num_shards, shard_size, expected
):
    assert count_shards(records, record_bytes, num_shards, shard_size) == expected


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("500k", 500_000),
        ("128MiB", 128 << 20),
        ("128mib", 128 << 20),
        ("1GB", 10**9),
        ("1.5GiB", 3 << 29),
        (" 2Ki ", 2048),
        ("1TB", 10**12),
    ],
)
def test_sizes_have_decimal_and_binary_units(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "0", "0.5", "-1", ".5k", "1e3", "nan", "12MiBs", "9" * 400, "٣k"],
)
def test_wrong_sizes_are_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_size(text)
    assert f"--shard_size {text}: expected a size such as 128MiB" in caught.value.message


def random_blocks(count: int, records: int) -> list[Block]:
    rng = np.random.default_rng(0)
    return [
        Block(
            rng.integers(0, 2**64, records, np.uint64),
            rng.integers(0, 2, records, np.uint8),
            Ragged.of([b"site-%d/run-%06d.npy" % (n % 7, n) for n in range(records)]),
        )
        for _ in range(count)
    ]


def plan_of_blocks(blocks: list[Block], shards: int) -> Plan:
    whole = Block.join(blocks)
    return Plan(tuple(plan_of(hashes, shards) for _, hashes in grouped(whole.splits, whole.hashes)))


def rows_by_shard(parts) -> dict[int, list]:
    found: dict[int, list] = {}
    for key, part in parts:
        columns = part.hashes.tolist(), part.splits.tolist(), list(part.payloads)
        found.setdefault(key, []).extend(zip(*columns, strict=True))
    return {key: sorted(rows) for key, rows in found.items()}


@pytest.mark.parametrize("part", [1, 300, 1 << 18])
def test_blocks_that_are_divided_together_give_each_shard_its_records(part, monkeypatch):
    monkeypatch.setattr(planned, "_PART_BYTES", part)
    blocks = random_blocks(20, 100)
    plan = plan_of_blocks(blocks, 9)
    parts = divided([block.pack() for block in blocks], plan.pack())
    found = rows_by_shard((key, Block.unpack(data)) for key, data in parts)
    pairs = (block.by(shards_of(plan, block.splits, block.hashes)) for block in blocks)
    assert found == rows_by_shard(itertools.chain.from_iterable(pairs))
