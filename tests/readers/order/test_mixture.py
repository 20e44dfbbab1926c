"""Mixtures of several datasets by weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from readers.order import mixture
from readers.order.mixture import MixedOrder
from readers.order.orders import GLOBAL
from readers.order.permutation import Permutation
from tests.support.datasets import write_dataset, write_numbers

COUNTS = ((90, 110), (40, 30), (25,))


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Three datasets; `id` counts the records of each from 0, and `set` is its number."""
    schema = readers.Schema({"id": ("int64", ()), "set": ("int64", ())})
    paths = []
    for number, counts in enumerate(COUNTS):
        ids = iter(range(sum(counts)))
        shards = [[{"id": next(ids), "set": number} for _ in range(count)] for count in counts]
        directory = tmp_path_factory.mktemp(f"d{number}")
        paths.append(str(write_dataset(directory, schema, {"train": shards})))
    return paths


def mixed(paths, *weights):
    return readers.Mix(dict(zip(paths, weights, strict=True)))


def test_a_state_of_other_weights_is_refused(datasets):
    with pytest.raises(ValueError, match="the state is of records in order, mixed by"):
        begun = readers.as_numpy(mixed(datasets, 1, 1, 1), 4)
        next(begun)
        readers.as_numpy(mixed(datasets, 1, 1, 2), 4, state=begun.state())


@given(
    st.lists(st.one_of(st.floats(1e-4, 100), st.integers(1, 10**9)), min_size=1, max_size=90),
    st.one_of(st.none(), st.integers(0, 9)),
    st.integers(0, 2000),
)
@settings(max_examples=50, deadline=None)
def test_every_dataset_has_its_exact_share_of_any_number_of_windows(weights, seed, windows):
    counts = [10**12] * len(weights)
    order = MixedOrder(counts, weights, seed)
    size = max(256, 4 * len(weights))
    shares = [Fraction(str(w)) / sum(Fraction(str(w)) for w in weights) for w in weights]
    exact = [math.floor(windows * size * share) for share in shares]
    # The records before the place at which all of these are read are exactly these.
    datasets, turns = order.turns(0, sum(exact) + np.arange(3 * size))
    for dataset, before in enumerate(exact):
        mine = turns[datasets == dataset]
        assert mine.tolist() == list(range(before, before + len(mine)))
        assert len(mine) <= math.floor((windows + 4) * size * shares[dataset]) - before


@given(st.integers(1, 5), st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 10**7))
@settings(max_examples=25, deadline=None)
def test_a_mixture_reads_each_dataset_in_turn_from_any_place(tiny, seed, start):
    counts = [10**12] * (tiny + 2)
    order = MixedOrder(counts, [2, 1.37, *[1e-2] * tiny], seed)
    found = np.stack(order.turns(0, start + np.arange(9000)))
    assert (np.stack(order.turns(0, start + np.arange(4000, 4100))) == found[:, 4000:4100]).all()
    for dataset in range(len(counts)):
        assert (np.diff(found[1, found[0] == dataset]) == 1).all()


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 3, 0.37])), min_size=1, max_size=3),
    st.integers(0, 5),
    st.integers(0, 2**63 - 1),
    st.lists(st.integers(0, 10**6), min_size=1, max_size=30),
)
@settings(max_examples=20, deadline=None)
def test_places_of_many_epochs_are_found_together_as_alone(datasets, epoch, seed, places):
    counts, weights = zip(*datasets, strict=True)
    order = MixedOrder(counts, weights, seed)
    expected = []
    for dataset, turn in np.stack(order.turns(epoch, np.array(places))).T.tolist():
        count = counts[dataset]
        own = Permutation(count, seed, turn // count, GLOBAL, dataset)(np.array([turn % count]))
        expected.append(sum(counts[:dataset]) + int(own[0]))
    assert order(epoch, np.array(places)).tolist() == expected


def test_a_tiny_dataset_takes_one_permutation_however_often_it_is_read(monkeypatch):
    made = []

    class Counted(Permutation):
        def __init__(self, *arguments):
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(mixture, "Permutation", Counted)
    found = MixedOrder([10, 10**6], [1, 1], 3)(0, np.arange(4096))
    assert np.bincount(found[found < 10]).tolist() == pytest.approx([204.8] * 10, abs=1)
    # And one for each window of 256 places, which has the datasets in a random order.
    assert len(made) == 1 + 16


def test_datasets_are_spread_evenly_without_a_shuffle():
    order = MixedOrder([100, 100], [3, 1], None)
    found = order(0, np.arange(40))
    assert (found >= 100).reshape(10, 4).sum(axis=1).tolist() == [1] * 10
    assert found[found < 100].tolist() == list(range(30))


def test_a_mixture_is_not_interleaved(datasets):
    with pytest.raises(ValueError, match="Mix reads records in random access"):
        readers.as_numpy(mixed(datasets, 1, 2, 3), 1, shuffle=readers.Order(by="interleave"))
    with pytest.raises(ValueError, match=r"does not take a readers\.Mix"):
        readers.RecordSource(mixed(datasets, 1, 2, 3))


def test_datasets_with_other_features_are_refused(datasets, tmp_path):
    other = str(write_numbers(tmp_path))
    with pytest.raises(ValueError, match=r"has other features than .*choose features that both"):
        readers.load(mixed([datasets[0], other], 1, 1), 1, split="train")
    paths = mixed([datasets[0], other], 1, 1)
    (batch, *_) = readers.as_numpy(paths, 4, split="train", columns=["id"])
    assert sorted(batch["id"].tolist()) == [0, 0, 1, 1]
