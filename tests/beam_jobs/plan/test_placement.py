"""Splits and order are hashes of keys, which hashlib computes as well."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import UsageError
from beam_jobs.plan.placement import ALL, Groups, Placement, Splits, check_seed

HALVES = Splits.parse("a=0.5,b=0.5")


def blake(seed: int, purpose: bytes, text: bytes) -> int:
    key = seed.to_bytes(8, "little", signed=True)
    digest = hashlib.blake2b(text, digest_size=8, key=key, person=purpose).digest()
    return int.from_bytes(digest, "little")


@given(st.lists(st.binary(max_size=9)), st.integers(-(2**63), 2**63 - 1))
def test_order_and_split_are_keyed_hashes(keys, seed):
    placement = Placement(seed, HALVES)
    orders = [blake(seed, b"order", key) for key in keys]
    groups = [blake(seed, b"split", key) for key in keys]
    # Names of files need not be UTF-8.
    texts = [key.decode("utf-8", "surrogateescape") for key in keys]
    assert placement.orders(keys).tolist() == orders
    splits = [int(hash_ >= 2**63) for hash_ in groups]
    assert placement.splits_of(keys).tolist() == list(map(placement.split, texts)) == splits
    assert placement.group_hashes(keys).tolist() == groups
    assert Placement(seed, Splits()).splits_of(keys).tolist() == [0] * len(keys)


def test_kept_splits_are_in_the_names_of_shards_that_need_not_be_utf_8():
    kept = Placement(0, Splits.of_shards(["a", "b"]))
    key = b"\xff/b-00000-of-00001.tfrecord#1"
    assert kept.splits_of([key]).tolist() == [1]
    assert kept.split(key.decode("utf-8", "surrogateescape")) == 1


def test_only_labels_are_counted_apart():
    for exact in ("", "records"):
        assert Placement(0, HALVES, exact=exact).strata([3, "x"]) == [ALL, ALL]
    assert Placement(0, HALVES, exact="labels").strata([3, "x"]) == ["3", "x"]
    assert Placement(0, HALVES).strata(["x"]) == [ALL]


GROUPS = Groups.parse(".")


@pytest.mark.parametrize(
    ("given_", "deals", "plans"),
    [
        ({}, False, False),
        ({"groups": GROUPS}, True, True),
        ({"exact": "records"}, False, True),
        ({"exact": "labels"}, False, True),
        ({"windows": True}, False, False),
        ({"windows": True, "exact": "records"}, True, True),
        ({"groups": GROUPS, "exact": "labels"}, True, True),
        ({"groups": GROUPS, "splits": Splits()}, False, False),
        ({"groups": GROUPS, "splits": Splits(), "exact": "records"}, False, True),
    ],
)
def test_groups_are_dealt_if_there_are_groups_and_several_splits_to_choose_from(
    given_, deals, plans
):
    placement = Placement(0, **{"splits": HALVES} | given_)
    assert (placement.deals_groups, placement.plans_splits) == (deals, plans)


def test_the_columns_that_decide_a_split_are_those_of_the_groups_and_of_the_splits():
    assert Placement(0, HALVES).split_features == set()
    assert Placement(0, HALVES, split_column="s").split_features == {"s"}
    both = Placement(0, HALVES, Groups(column="g"), "s")
    assert both.split_features == {"g", "s"}


def test_a_seed_has_eight_bytes():
    for seed in (0, -(2**63), 2**63 - 1):
        check_seed(seed)
    for seed in (-(2**63) - 1, 2**63, 1.0, "1"):
        with pytest.raises(UsageError) as caught:
            check_seed(seed)
        assert caught.value.message == (
            f"--seed {seed!r}: expected a number from -2**63 to 2**63 - 1"
        )
