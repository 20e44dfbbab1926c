"""Hosts and resuming: `load` and `as_numpy` give the same records, from any step, on any host."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.shards.records import Records
from tests.support.datasets import damage, write_numbers

# More shards than are interleaved at a time, one of them empty.
COUNTS = (50, 40, 70, 44, 0, 91, 33, 64, 5, 17, 18, 19, 20, 21, 22, 23, 24, 25, 60, 61)
RECORDS = sum(COUNTS)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), COUNTS))


def ids(batches):
    return [np.asarray(batch["id"]).tolist() for batch in batches]


ORDERS = [
    readers.Order(False, by="interleave"),
    readers.Order(by="interleave", buffer=100),
    readers.Order(False, by="global"),
    readers.Order(by="global"),
]
ways = pytest.mark.parametrize("way", ORDERS, ids=lambda way: f"{way.by}-{way.shuffle}")


def arguments(way, **more):
    return {"split": "train", "seed": 5, "shuffle": way, **more}


@pytest.mark.slow(base=["global-True"])
@ways
def test_both_readers_give_the_same_batches_from_any_step(dataset, way):
    how = arguments(way, batch_size=16, repeat=(repeat := 3), shard=(1, 3))
    whole = ids(readers.as_numpy(dataset, **how))
    ds = readers.load(dataset, **how)
    assert ids(ds) == whole
    assert len(ds) == len(whole)
    places = (1, 5, len(whole) // repeat, len(whole) - 1, len(whole))
    # TensorFlow takes a second to build a pipeline that shuffles: one from each place.
    for done, by_state in zip(places, (False, True, False, True, None), strict=True):
        begun = readers.as_numpy(dataset, **how)
        assert ids(itertools.islice(begun, done)) == whole[:done]
        step, state = {"state": done}, {"state": begun.state().to_json()}
        assert ids(readers.as_numpy(dataset, **step, **how)) == whole[done:]
        assert ids(readers.as_numpy(dataset, **state, **how)) == whole[done:]
        if by_state is not None:  # After a pass of `load`, the next one follows.
            start = state if by_state else step
            assert ids(readers.load(dataset, **start, **how)) == whole[done:]


@pytest.mark.slow(base=["interleave-False"])
@ways
def test_each_new_pass_reads_the_next_epochs(dataset, way):
    how = arguments(way, batch_size=16)
    epochs = ids(readers.as_numpy(dataset, **how, repeat=4))
    steps = len(epochs) // 4
    ds = readers.load(dataset, **how)
    assert ids(ds) + ids(ds) + ids(ds) == epochs[: 3 * steps]
    resumed = readers.load(dataset, **how, state=steps + 3)
    assert ids(resumed) == epochs[steps + 3 : 2 * steps]
    assert ids(resumed) == epochs[2 * steps : 3 * steps]


@pytest.mark.slow(base=["global-True"])
@ways
def test_a_checkpoint_of_the_iterator_resumes_in_another_pipeline(dataset, way, tmp_path):
    how = arguments(way, batch_size=16, repeat=3)
    whole, done = ids(readers.as_numpy(dataset, **how)), 95
    how["transform"] = lambda batch, keys: {**batch, "noise": tf.random.uniform([])}
    iterator = iter(readers.load(dataset, **how))
    assert ids(itertools.islice(iterator, done)) == whole[:done]
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "checkpoint"))
    another = iter(readers.load(dataset, **how))
    tf.train.Checkpoint(iterator=another).restore(path)
    assert ids(another) == whole[done:]


def test_a_state_of_another_run_is_rejected(dataset, tmp_path):
    begun = readers.as_numpy(dataset, split="train", batch_size=4, shuffle=True, seed=5)
    next(begun)
    state = begun.state()
    how = {"split": "train", "batch_size": 4, "shuffle": True, "seed": None}
    again = readers.as_numpy(dataset, **how, state=state.to_json())
    assert again.state() == state
    for changed, message in [
        ({"seed": 6}, "from a run with seed=5, not 6"),
        ({"shuffle": False}, "records in a global shuffle, not in order"),
        ({"shuffle": readers.Order(by="interleave")}, "not interleaved in windows of"),
        ({"split": "train[:50%]"}, "the records, the split or its slice differ"),
        (
            {"state": json.dumps({**json.loads(state.to_json()), "place": 10**6})},
            "at record 1000000",
        ),
    ]:
        how = {"split": "train", "batch_size": 4, "shuffle": True, "seed": 5, "state": state}
        with pytest.raises(ValueError, match=message):
            readers.as_numpy(dataset, **{**how, **changed})


def test_files_without_an_index_are_scanned_to_start_at_a_step(tmp_path):
    write_numbers(tmp_path)
    for index in tmp_path.glob("*.index"):
        index.unlink()
    files = sorted(map(str, tmp_path.glob("train*.tfrecord")))
    how = {"schema": readers.Manifest.read(tmp_path).schema, "batch_size": 4}
    assert ids(readers.load(files, **how, state=3)) == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert readers.load(files, **how).cardinality() == 5
    shuffled = [n for batch in ids(readers.load(files, **how, shuffle=True)) for n in batch]
    assert sorted(shuffled) == list(range(20)) != shuffled


def test_nothing_is_read_beyond_an_epoch(tmp_path, monkeypatch):
    write_numbers(tmp_path, (3, 2))
    asked = []
    batches = Records.batches
    monkeypatch.setattr(
        Records, "batches", lambda self, n, *more: asked.extend(n) or batches(self, n, *more)
    )
    list(readers.as_numpy(tmp_path, split="train", batch_size=1))
    assert asked == [0, 1, 2, 3, 4]


@pytest.mark.slow(base=["global-True", "interleave-False"])
@ways
def test_skipped_steps_are_not_read(dataset, way, tmp_path):
    how = arguments(way, batch_size=16)
    whole = ids(readers.as_numpy(dataset, **how))
    write_numbers(tmp_path, COUNTS)
    ends = np.cumsum(COUNTS)
    shard = int(np.searchsorted(ends, whole[0][0], side="right"))
    file = f"train-{shard:05d}-of-{len(COUNTS):05d}.tfrecord"
    damage(tmp_path / file, whole[0][0] - (ends[shard] - COUNTS[shard]))
    for read in (readers.load, readers.as_numpy):
        assert ids(read(tmp_path, **how, state=20)) == whole[20:]
        with pytest.raises((ValueError, tf.errors.OpError)):
            next(iter(read(tmp_path, **how)))


def keys_of(dataset, **how):
    """The key of each record, by its epoch (how often it came before) and id."""
    batches = readers.as_numpy(dataset, **how, transform=lambda batch, keys: {**batch, "key": keys})
    found = {}
    for batch in batches:
        for number, key in zip(batch["id"].tolist(), batch["key"].tolist(), strict=True):
            epoch = 0
            while (epoch, number) in found:
                epoch += 1
            found[epoch, number] = key
    return found


@ways
def test_transform_keys_depend_only_on_the_seed_the_epoch_and_the_place(dataset, way):
    keys = keys_of(dataset, **arguments(way, batch_size=16, repeat=2))
    assert len(set(keys.values())) == len(keys) == 2 * RECORDS
    assert min(keys.values()) >= 0
    assert keys_of(dataset, **arguments(way, batch_size=9, repeat=2)) == keys
    other = keys_of(dataset, **arguments(way, batch_size=16, repeat=2) | {"seed": 6})
    assert not set(other.values()) & set(keys.values())
    resumed = keys_of(dataset, **arguments(way, batch_size=16), state=5)
    assert resumed.items() <= {(0, n): key for (epoch, n), key in keys.items() if not epoch}.items()
    assert len(resumed) == RECORDS - 80
    hosts = [keys_of(dataset, **arguments(way, batch_size=5), shard=(h, 3)) for h in range(3)]
    shared = {place: key for host in hosts for place, key in host.items()}
    assert len(set(shared.values())) == len(shared) > RECORDS - 3
    if way.by == "global":
        assert shared.items() <= keys.items()


def test_hosts_that_would_each_draw_a_seed_are_refused(dataset):
    how = {"split": "train", "batch_size": 10, "shuffle": True}
    for read in (readers.as_numpy, readers.load):
        with pytest.raises(ValueError, match=r"seed=None with shard=\(1, 2\): .* such as seed=0$"):
            read(dataset, **how, seed=None, shard=(1, 2))
    state = readers.as_numpy(dataset, **how, seed=8).state()
    again = readers.as_numpy(dataset, **how, seed=None, shard=(1, 2), state=state)
    assert ids(again) == ids(readers.as_numpy(dataset, **how, seed=8, shard=(1, 2)))
