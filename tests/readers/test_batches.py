"""`Batches`: passes, pickles, forks, reading ahead, and what is left after an error."""

from __future__ import annotations

import gc
import itertools
import sys
import threading

import numpy as np
import pytest

import readers
from readers.batches.prefetch import prefetched
from tests.support.datasets import damage, write_numbers, write_signals

STEPS = {"split": "train", "batch_size": 8, "shuffle": True, "seed": 5}
BY_LENGTH = {
    "batch_size": 2,
    "batching": readers.Padded(buckets=[3, 6]),
    "shuffle": True,
    "seed": 5,
}


@pytest.fixture(scope="module", params=["steps", "length"])
def reading(request, tmp_path_factory):
    """A dataset, the arguments to read it, and the feature that identifies a record."""
    if request.param == "steps":
        return write_numbers(tmp_path_factory.mktemp("numbers"), (20, 30, 7)), STEPS, "id"
    path = write_signals(tmp_path_factory.mktemp("signals"), [n * 5 % 9 for n in range(31)])
    return path, BY_LENGTH, "label"


@pytest.fixture
def opened(reading):
    path, how, _ = reading
    return lambda **more: readers.as_numpy(path, **how, **more)


@pytest.fixture
def ids(reading):
    return lambda batches: [batch[reading[2]].tolist() for batch in batches]


def test_the_length_is_that_of_a_pass_if_it_is_known(tmp_path):
    path = write_numbers(tmp_path / "numbers", (20, 30, 7))
    batches = readers.as_numpy(path, **STEPS, repeat=3)
    assert len(batches) == 3 * 8
    features = "id: int64 [], name: string [], vector: float32 [3]"
    assert repr(batches) == f"Batches(train, 24 batches of 8, dense, shuffled; {features})"
    next(batches)
    assert len(batches) == 3 * 8
    with pytest.raises(TypeError, match="repeat=None"):
        len(readers.as_numpy(path, **STEPS, repeat=None))
    runs = write_signals(tmp_path / "signals")
    by_length = readers.as_numpy(runs, **BY_LENGTH)
    assert repr(by_length).startswith(
        "Batches(train, batches of "
    )  # Without a look at all lengths.
    assert len(by_length) == len(list(by_length))


@pytest.mark.filterwarnings("error")
def test_no_file_is_left_open_with_a_warning(opened, ids):
    gc.freeze()  # Objects of other tests.
    for prefetch in (0, 2):
        batches = opened(prefetch=prefetch)
        next(batches)
        del batches
        gc.collect()
    gc.unfreeze()


def test_a_transform_gets_the_keys_that_load_gives(tmp_path):
    path = write_numbers(tmp_path / "numbers", (20, 30, 7))

    def keyed(batch, keys):
        assert keys.dtype == np.int64
        return {"id": batch["id"], "key": keys}

    mine = list(readers.as_numpy(path, **STEPS, transform=keyed))
    theirs = list(readers.load(path, **STEPS, transform=lambda batch, keys: {**batch, "key": keys}))
    for batch, other in zip(mine, theirs, strict=True):
        assert batch["id"].tolist() == other["id"].numpy().tolist()
        assert batch["key"].tolist() == other["key"].numpy().tolist()
    pairs = readers.as_numpy(
        path,
        **STEPS,
        transform=lambda batch, keys: {**batch, "vector": keys},
        as_supervised=("vector", "id"),
    )
    assert next(pairs)[0].tolist() == mine[0]["key"].tolist()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_does_not_end_the_loop_as_if_all_were_read(tmp_path, prefetch):
    path = write_numbers(tmp_path / "numbers", (20,))
    damage(path / "train-00000-of-00001.tfrecord", 9)
    batches = readers.as_numpy(path, split="train", batch_size=4, prefetch=prefetch)
    assert [next(batches)["id"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for _ in range(2):
        with pytest.raises(readers.CorruptRecordError):
            next(batches)
    assert batches.state().place == 8


def test_a_thread_hands_on_whatever_a_function_of_the_user_raises():
    def leave():
        yield 1
        sys.exit("no more")

    items = prefetched(leave(), 1)
    assert next(items) == 1
    with pytest.raises(SystemExit, match="no more"):
        next(items)


def test_a_thread_ends_with_its_iterator():
    before = set(threading.enumerate())
    many = prefetched(itertools.count(), 2)
    assert [next(many), next(many)] == [0, 1]
    (thread,) = set(threading.enumerate()) - before
    del many
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_thread_is_at_most_so_many_items_ahead(count):
    made = []
    items = prefetched((made.append(n) or n for n in range(20)), count)
    assert next(items) == 0
    threading.Event().wait(0.05)
    assert len(made) <= count + 2
    assert list(items) == list(range(1, 20))
    assert list(prefetched(iter(()), count)) == []
