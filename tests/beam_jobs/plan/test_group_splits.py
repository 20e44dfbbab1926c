"""Groups are dealt to splits by their sizes, whatever the order in which they are counted."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as Pipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.jobs.split_rules import GroupRules, SplitRules
from beam_jobs.pipeline.planning.splits import plan_groups
from beam_jobs.plan import group_splits
from beam_jobs.plan.group_splits import GroupSizes, check_planned, deal_groups, unpack_splits
from beam_jobs.plan.placement import ALL, Groups, Placement, Splits
from beam_jobs.plan.strata import LabelHashes
from beam_jobs.plan.summary import Summary
from beam_jobs.records.pieces import merged

THREE = Splits.parse("train=0.7,val=0.15,test=0.15")
PLACEMENT = Placement(0, THREE, Groups.parse("."))

sizes_of_groups = st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 50), max_size=40)


def sizes_of(sizes: dict[int, int]) -> GroupSizes:
    found = GroupSizes(len(sizes))
    found.add(block_of(list(sizes)), sizes.values())
    return found


def block_of(groups: list[int], labels: list[str] | None = None) -> LabelHashes:
    return LabelHashes.of(labels or [ALL] * len(groups), np.array(groups, np.uint64))


def dealt(sizes: dict[int, int], splits: Splits = THREE) -> list[int]:
    """The number of records in each split."""
    found = deal_groups(sizes_of(sizes), splits)
    placed = found.splits_of(block_of(list(sizes)))
    return np.bincount(placed, list(sizes.values()), len(splits.names)).astype(int).tolist()


def test_groups_of_one_size_give_exact_shares():
    assert dealt(dict.fromkeys(range(20), 7)) == [98, 21, 21]
    assert dealt(dict.fromkeys(range(10), 3), Splits.parse("a=0.8,b=0.1,c=0.1")) == [24, 3, 3]


@given(sizes_of_groups)
def test_no_split_gets_more_than_its_share_and_one_group(sizes):
    total, largest = sum(sizes.values()), max(sizes.values(), default=0)
    counts = dealt(sizes)
    assert sum(counts) == total
    for count, share in zip(counts, THREE.fractions, strict=True):
        assert count <= share * total + largest


@given(st.lists(st.integers(0, 9), max_size=60), st.randoms())
def test_the_order_in_which_groups_are_counted_and_merged_does_not_matter(groups, random_):
    def counted(parts: list[list[int]]) -> GroupSizes:
        merged = GroupSizes()
        for part in parts:
            sizes = GroupSizes(inputs=len(part))
            sizes.add(block_of(part))
            merged.merge(sizes)
        return merged

    shuffled = random_.sample(groups, len(groups))
    cut = random_.randint(0, len(groups))
    one, other = counted([groups]), counted([shuffled[cut:], [], shuffled[:cut]])
    assert one == other
    assert one.sizes == Counter((group, ALL) for group in groups)
    assert deal_groups(one, THREE).pack() == deal_groups(other, THREE).pack()


def test_with_too_many_groups_hashes_decide(monkeypatch):
    monkeypatch.setattr(group_splits, "MAX_GROUPS", 3)
    parts = [sizes_of({number: 1}) for number in range(4)]
    for order in (parts, parts[::-1]):
        merged = GroupSizes()
        for part in order[:3]:
            merged.merge(part)
        assert deal_groups(merged, THREE) is not None
        merged.merge(order[3])
        assert deal_groups(merged, THREE) is None
        merged.merge(order[0])
        assert (merged.inputs, merged.sizes) == (5, None)
    with Pipeline() as pipeline:
        found = plan_groups(pipeline | beam.Create(parts), Placement(0, THREE))
        assert_that(found, equal_to([b""]))


@given(sizes_of_groups)
def test_packed_splits_are_the_same_again(sizes):
    found = deal_groups(sizes_of(sizes), THREE)
    again = unpack_splits(found.pack(), PLACEMENT)
    assert again.inputs == len(sizes)
    assert again.hashes.tolist() == found.hashes.tolist() == sorted(sizes)
    assert again.splits.tolist() == found.splits.tolist()


def test_a_group_that_was_not_dealt_goes_where_its_hash_says():
    found = deal_groups(sizes_of({10: 1, 20: 99}), THREE)
    asked = [0, 10, 15, 2**64 - 1]
    splits = found.splits_of(block_of(asked)).tolist()
    assert [splits[0], *splits[2:]] == THREE.of(np.array([0, 15, 2**64 - 1], np.uint64)).tolist()
    assert splits[1] == 1
    nothing = deal_groups(GroupSizes(), THREE)
    assert nothing.splits_of(block_of(asked)).tolist() == THREE.of(np.array(asked, "u8")).tolist()


def test_rules_find_the_split_of_each_group_and_why_some_records_have_none():
    placement = Placement(0, THREE, Groups.parse(r"^s\d"))
    keys = [b"s1/a", b"x", b"s2/a", b"s1/b", b"s3/a"]
    hashes, errors = GroupRules(placement).splits_of(keys, [], [])
    s1, s2, s3 = (int(hashes[row]) for row in (0, 2, 4))
    assert hashes.tolist() == [s1, 0, s2, s1, s3]
    assert list(errors) == [1]
    rules = SplitRules(placement, deal_groups(sizes_of({s1: 1, s2: 9}), THREE).pack())
    splits, again = rules.splits_of(keys, [], [])
    # No record of the last group was counted.
    assert splits.tolist() == [1, 0, 0, 1, placement.split("s3")]
    assert again == errors


# Shares of labels.

Records = list[tuple[int, int]]  # (group, label)


def counts_of(records: Records, fractions: list[float]) -> np.ndarray:
    """The number of records in each split by label, int64 [splits, labels]."""
    groups, labels = zip(*records, strict=True)
    sizes = GroupSizes()
    sizes.add(block_of(list(groups), list(map(str, labels))))
    found = deal_groups(sizes, Splits(tuple(map(str, fractions)), tuple(fractions)))
    split_of = dict(zip(found.hashes.tolist(), found.splits.tolist(), strict=True))
    names = sorted(set(labels))
    counts = np.zeros((len(fractions), len(names)), np.int64)
    for group, label in records:
        counts[split_of[group], names.index(label)] += 1
    return counts


def dealt_exactly(sizes: Counter, to: Splits) -> dict[int, int]:
    """The definition in exact numbers: the squared deviations from all shares grow least."""
    groups: dict[int, Counter] = {}
    totals: Counter = Counter()
    for (group, label), size in sizes.items():
        for name in {ALL, label}:
            groups.setdefault(group, Counter())[name] += size
            totals[name] += size
    counts = {name: [Fraction(0)] * len(to.names) for name in totals}

    def part(size, name) -> Fraction:
        return Fraction(size) / max(totals[name], 1)

    def growth(group: int, split: int) -> Fraction:
        total = Fraction(0)
        for name, size in groups[group].items():
            before = counts[name][split] - Fraction(to.fractions[split]) * totals[name]
            total += part(before + size, name) ** 2 - part(before, name) ** 2
        return total

    def spread(group: int) -> Fraction:
        return sum((part(size, name) ** 2 for name, size in groups[group].items()), Fraction(0))

    splits = {}
    for group in sorted(groups, key=lambda group: (-spread(group), group)):
        split = min(range(len(to.names)), key=lambda split: growth(group, split))
        splits[group] = split
        for name, size in groups[group].items():
            counts[name][split] += size
    return splits


@pytest.mark.parametrize("seed", range(4))
def test_each_group_goes_where_the_squared_deviations_grow_least(seed):
    random_ = random.Random(seed)
    sizes = Counter(
        {
            (random_.getrandbits(64), random_.choice("aaabbc")): random_.randint(1, 9999)
            for _ in range(random_.randint(1, 30))
        }
    )
    for hash_, label in list(sizes):
        if random_.random() < 0.4:
            sizes[hash_, label + "2"] = random_.randint(1, 9999)
    sizes[random_.getrandbits(64), "one record"] = 1
    rows = random_.sample(list(sizes), len(sizes))
    counted = GroupSizes()
    for group, label in rows:
        counted.add(block_of([group], [label]), [sizes[group, label]])
    # Shares that floating point numbers hold exactly.
    to = Splits.parse("a=0.625,b=0.25,c=0.125")
    found = deal_groups(counted, to)
    assert dict(zip(found.hashes.tolist(), found.splits.tolist(), strict=True)) == dealt_exactly(
        sizes, to
    )


def test_groups_of_one_label_give_every_split_its_share_of_each_label():
    records = [(group, group % 3) for group in range(30) for _ in range(4)]
    assert counts_of(records, [0.5, 0.3, 0.2]).tolist() == [[20] * 3, [12] * 3, [8] * 3]


@pytest.mark.parametrize(
    "change", [lambda pieces: pieces[:-1], lambda pieces: [*pieces, pieces[-1]]]
)
def test_sizes_that_a_runner_lost_or_repeated_end_the_job(change):
    pieces = [piece for _, piece in sizes_of({n: n + 1 for n in range(20)}).pieces()]
    merged(pieces, GroupSizes).check()
    with pytest.raises(DataError, match="lost or repeated sizes of groups"):
        merged(change(pieces), GroupSizes).check()


def test_inputs_that_a_runner_lost_end_the_job():
    packed = deal_groups(replace(sizes_of({1: 2}), inputs=3), THREE).pack()
    summary = Summary.empty(3)
    summary.inputs = 3
    check_planned(summary, packed, PLACEMENT)
    check_planned(summary, b"", PLACEMENT)
    summary.inputs = 4
    with pytest.raises(DataError, match="inputs while groups were dealt: 3 of 4"):
        check_planned(summary, packed, PLACEMENT)
