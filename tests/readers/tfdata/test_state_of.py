"""`state_of`: the state after the first batches of a dataset of `load`, computed from their number."""

from __future__ import annotations

import numpy as np
import pytest

import readers
from tests.support.datasets import write_numbers, write_signals

WAYS = {
    "by step": {},
    "a host with a part of its own": {
        "shuffle": readers.Order(False, by="interleave"),
        "shard": (1, 2),
    },
    "not shuffled after some steps": {"shuffle": False, "state": 3},
    "without end": {"repeat": None},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("state_of") / "numbers"))


@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_state_of_as_numpy_after_as_many_batches(dataset, way):
    how = {"split": "train", "batch_size": 3, "shuffle": True, "seed": 4, **WAYS[way]}
    loaded = readers.load(dataset, **how)
    batches = readers.as_numpy(dataset, **{**how, "repeat": None})
    assert readers.state_of(loaded, 0) == batches.state()
    for step in range(1, 12):
        next(batches)
        assert readers.state_of(loaded, step) == batches.state()


def test_a_state_by_length_is_found_from_lengths(tmp_path):
    path = str(write_signals(tmp_path / "signals", [n * 5 % 9 for n in range(31)]))
    how = {"batch_size": 4, "batching": readers.Padded(buckets=[3, 6]), "shuffle": True}
    loaded = readers.load(path, **how, state=1)
    batches = readers.as_numpy(path, **how, state=1, repeat=None)
    for step in range(12):
        assert readers.state_of(loaded, step) == batches.state()
        next(batches)
    how["shuffle"] = readers.Order(each_pass=False)
    fixed = readers.load(path, **how)
    in_a_pass = sum(1 for _ in fixed)
    assert readers.state_of(fixed, in_a_pass)
    with pytest.raises(ValueError, match=f"there are {in_a_pass} batches in a pass"):
        readers.state_of(fixed, 99)


def test_what_is_no_dataset_of_load_is_refused(dataset):
    loaded = readers.load(
        dataset, split="train", batch_size=2, shuffle=readers.Order(False, each_pass=False)
    )
    for other in (loaded.prefetch(1), [1]):
        with pytest.raises(ValueError, match="is not a dataset that readers"):
            readers.state_of(other, 1)
    with pytest.raises(ValueError, match="steps=-1: expected a number"):
        readers.state_of(loaded, -1)
    assert readers.state_of(loaded, np.int64(10)).epoch == 1
    with pytest.raises(ValueError, match="steps=11: there are 10 batches in a pass"):
        readers.state_of(loaded, 11)
