"""What reconciliation refuses, one reason at a time. That of whole jobs is in test_write_shards.py."""

import numpy as np
import pytest

from beam_jobs.dataset.reconcile import check_files, reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.records.rejects import MaxRejects, Reject
from readers.format.splits import Shard


def result(index, records, *, size=100, rejects="", split=0):
    """A shard with a reject for each key in a text; the first key in order comes first."""
    shard = Shard(f"0123abcd/train-{index:05d}-of-00002.tfrecord", records, size, 0, 7, 0, 0)
    first = Reject(min(rejects), "decode", "why") if rejects else None
    return ShardResult(split, index, shard, len(rejects), first)


def only_rejects(keys, split=0):
    """The result of a split of which no input became a record."""
    return ShardResult(split, 0, None, len(keys), Reject(min(keys), "decode", "why"))


def plan_of(records, shards=2, rejected=0):
    edges = np.arange(max(shards - 1, 0), dtype=np.uint64)
    return Plan((SplitPlan(records, rejected, 1, shards, edges),))


def reconciled(plan, results, written, **options):
    return reconcile(plan, results, {0: written}, ("train",), **options)


def test_a_missing_shard_is_noticed_though_no_record_is_missing():
    with pytest.raises(DataError, match="written 10, rejected 0, 10 in the statistics; 1 of 2"):
        reconciled(plan_of(10), [result(0, 10)], 10)


def test_rejects_of_both_passes_are_a_share_of_all_inputs():
    # 5 + 4 records, one reject of the second pass and ten of the first.
    results = [result(0, 5, rejects="bcdefg"), result(1, 4, rejects="hijka")]
    plan = plan_of(10, rejected=10)
    allowed = MaxRejects.parse("0.55")
    assert reconciled(plan, results, 9, max_rejects=allowed) == [results]
    with pytest.raises(DataError, match=r"11 of 20 inputs are rejected.* written; why, such as "):
        reconciled(plan, results, 9, max_rejects=MaxRejects.parse("0.54"))
    few = MaxRejects.parse("0.5")
    assert reconciled(plan, results, 9, max_rejects=few, duplicates=2) == [results]


def test_a_shard_may_be_empty_if_another_is_not():
    results = [result(0, 1), result(1, 0)]
    assert reconciled(plan_of(1), results, 1) == [results]


def test_inputs_without_a_record_and_without_a_reject_are_a_mistake_of_the_user():
    with pytest.raises(UsageError, match="the inputs have no records: no dataset was written"):
        reconciled(plan_of(0), [result(0, 0), result(1, 0)], 0)


def test_a_split_may_have_no_shard():
    splits = (plan_of(9, rejected=1).splits[0], plan_of(0, 0, rejected=2).splits[0])
    splits += plan_of(0, 0).splits
    results = [result(0, 5), result(1, 4, rejects="a"), only_rejects("bc", split=1)]
    found = reconcile(Plan(splits), results, {0: 9}, ("train", "val", "test"), MaxRejects())
    assert found == [results[:2], results[2:], []]


def test_a_shard_or_an_index_that_is_missing_or_has_another_size_is_noticed():
    name = "0123abcd/train-00000-of-00002.tfrecord"
    results = [only_rejects("a"), result(0, 5)]
    for sizes, message in (
        ({}, "written with 100 bytes, found no file"),
        ({name: 99}, "written with 100 bytes, found 99"),
        ({name: 100, f"{name}.index": 6}, "index: written with 7 bytes, found 6"),
    ):
        with pytest.raises(DataError, match=rf"^out/{name}.*{message}"):
            check_files("out", results, sizes)
    check_files("out", results, {name: 100, f"{name}.index": 7})
