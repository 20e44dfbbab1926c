"""Groups are dealt to splits by their sizes, whatever the order in which they are counted."""

import random
from collections import Counter

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline as Pipeline
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.jobs.passes import GroupRules, SplitRules
from beam_jobs.pipeline.plan_strata import DealGroups
from beam_jobs.plan import group_splits
from beam_jobs.plan.group_splits import GroupSizes, GroupSplits, check_groups, deal_groups
from beam_jobs.plan.groups import Groups
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.summary import Summary

THREE = Splits.parse("train=0.7,val=0.15,test=0.15")

sizes_of_groups = st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 50), max_size=40)


def sizes_of(sizes: dict[int, int]) -> GroupSizes:
    return GroupSizes(len(sizes), Counter(sizes))


def dealt(sizes: dict[int, int], splits: Splits = THREE) -> list[int]:
    """The number of records in each split."""
    found = deal_groups(sizes_of(sizes), splits.fractions)
    placed = found.splits_of(np.array(list(sizes), np.uint64), Placement(0, splits))
    return np.bincount(placed, list(sizes.values()), len(splits.names)).astype(int).tolist()


def test_groups_of_one_size_give_exact_shares():
    assert dealt(dict.fromkeys(range(20), 7)) == [98, 21, 21]
    assert dealt(dict.fromkeys(range(10), 3), Splits.parse("a=0.8,b=0.1,c=0.1")) == [24, 3, 3]


def test_a_few_dozen_groups_of_all_sizes_give_shares_within_a_percent():
    random_ = random.Random(0)
    for groups in (37, 54):
        sizes = {random_.getrandbits(64): random_.randint(5, 60) for _ in range(groups)}
        total = sum(sizes.values())
        for count, share in zip(dealt(sizes), THREE.fractions, strict=True):
            assert abs(count / total - share) < 0.01


def test_a_group_larger_than_a_share_goes_to_the_largest_split():
    assert dealt({1: 90, 2: 6, 3: 4}) == [90, 6, 4]


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
            sizes.add(np.array(part, np.uint64))
            merged.merge(sizes)
        return merged

    shuffled = random_.sample(groups, len(groups))
    cut = random_.randint(0, len(groups))
    one, other = counted([groups]), counted([shuffled[cut:], [], shuffled[:cut]])
    assert one == other
    assert one.sizes == Counter(groups)
    assert deal_groups(one, THREE.fractions).pack() == deal_groups(other, THREE.fractions).pack()


def test_sizes_may_be_given():
    sizes = GroupSizes()
    sizes.add(np.array([3, 1, 3], np.uint64), [10, 5, 2])
    assert sizes.sizes == {3: 12, 1: 5}


def test_with_too_many_groups_hashes_decide(monkeypatch):
    monkeypatch.setattr(group_splits, "MAX_GROUPS", 3)
    parts = [sizes_of({number: 1}) for number in range(4)]
    for order in (parts, parts[::-1]):
        merged = GroupSizes()
        for part in order[:3]:
            merged.merge(part)
        assert deal_groups(merged, THREE.fractions) is not None
        merged.merge(order[3])
        assert deal_groups(merged, THREE.fractions) is None
        merged.merge(order[0])
        assert merged == GroupSizes(5, None)
    with Pipeline() as pipeline:
        found = pipeline | beam.Create(parts) | DealGroups(Placement(0, THREE))
        assert_that(found, equal_to([b""]))


@given(sizes_of_groups)
def test_packed_splits_are_the_same_again(sizes):
    found = deal_groups(sizes_of(sizes), THREE.fractions)
    again = GroupSplits.unpack(found.pack())
    assert again.inputs == len(sizes)
    assert again.hashes.tolist() == found.hashes.tolist() == sorted(sizes)
    assert again.splits.tolist() == found.splits.tolist()


def test_rules_find_the_split_of_each_group_and_why_some_records_have_none():
    placement = Placement(0, THREE, Groups.parse(r"^s\d"))
    keys = [b"s1/a", b"x", b"s2/a", b"s1/b", b"s3/a"]
    hashes, errors = GroupRules(placement).splits_of(keys, [], [])
    s1, s2, s3 = (int(hashes[row]) for row in (0, 2, 4))
    assert hashes.tolist() == [s1, 0, s2, s1, s3]
    assert list(errors) == [1]
    rules = SplitRules(placement, deal_groups(sizes_of({s1: 1, s2: 9}), THREE.fractions).pack())
    splits, again = rules.splits_of(keys, [], [])
    # No record of the last group was counted.
    assert splits.tolist() == [1, 0, 0, 1, placement.split("s3")]
    assert again == errors


def test_inputs_that_a_runner_lost_end_the_job():
    packed = deal_groups(GroupSizes(3, Counter({1: 2})), THREE.fractions).pack()
    summary = Summary.empty(3)
    summary.inputs = 3
    assert check_groups(summary, packed) is summary
    assert check_groups(summary, b"") is summary
    summary.inputs = 4
    with pytest.raises(DataError, match="handed over 3 of 4 inputs while groups were dealt"):
        check_groups(summary, packed)
