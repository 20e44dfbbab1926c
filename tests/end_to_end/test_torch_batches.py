"""`torch_batches` in loaders of PyTorch: workers, ranks, passes and saved states."""

from __future__ import annotations

import itertools
import pickle

import ml_dtypes
import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from tests.support.datasets import damage, write_dataset, write_numbers, write_signals

pytestmark = pytest.mark.frameworks

COUNTS = (50, 40, 30, 17, 0, 8)
RECORDS = sum(COUNTS)
SHUFFLED = {"split": "train", "batch_size": 8, "shuffle": True, "seed": 5}
BUCKETS = {
    "batch_size": 2,
    "batching": readers.Padded(buckets=[3, 6]),
    "columns": ["signal", "label"],
    "shuffle": True,
    "seed": 5,
}
LENGTHS = [n * 5 % 9 for n in range(31)]


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports PyTorch when these tests run: the base tests do not have it."""
    global torch, data, stateful
    import torch
    from torch.utils import data
    from torchdata import stateful_dataloader as stateful


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), COUNTS))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return str(write_signals(tmp_path_factory.mktemp("signals"), LENGTHS))


def ids(batches, name="id"):
    return [batch[name].tolist() for batch in batches]


def expected(path, name="id", **how):
    return ids(readers.as_numpy(path, **how), name)


def loader(batches, workers=0, method=None, **more):
    if workers:
        more["multiprocessing_context"] = method or "fork"
    return data.DataLoader(batches, batch_size=None, num_workers=workers, **more)


def test_batches_are_tensors_of_the_arrays_without_the_texts(dataset):
    batch = next(iter(readers.torch_batches(dataset, **SHUFFLED)))
    array = next(readers.as_numpy(dataset, **SHUFFLED))
    assert sorted(batch) == ["id", "vector"]
    for name, tensor in batch.items():
        np.testing.assert_array_equal(tensor.numpy(), array[name])
    named = next(iter(readers.torch_batches(dataset, **SHUFFLED, columns=["name"])))
    assert named == {"name": array["name"].tolist()}
    pair = next(iter(readers.torch_batches(dataset, **SHUFFLED, as_supervised=("vector", "id"))))
    assert isinstance(pair, tuple) and pair[1].tolist() == array["id"].tolist()


def test_dtypes_that_numpy_lacks_become_those_of_pytorch(tmp_path):
    schema = Schema({"x": ("bfloat16", (2,)), "flag": ("bool", ()), "big": ("uint32", ())})
    record = {"x": np.array([1.5, -2], ml_dtypes.bfloat16), "flag": True, "big": 2**32 - 1}
    path = write_dataset(tmp_path / "dtypes", schema, {"train": [[record]]})
    batch = next(iter(readers.torch_batches(str(path), batch_size=1)))
    assert batch["x"].dtype == torch.bfloat16 and batch["x"].tolist() == [[1.5, -2.0]]
    assert batch["flag"].tolist() == [True] and batch["big"].tolist() == [2**32 - 1]


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_batches(dataset, workers):
    batches = readers.torch_batches(dataset, **SHUFFLED)
    found = loader(batches, workers)
    epochs = expected(dataset, **SHUFFLED, repeat=3)
    assert len(found) == len(epochs) // 3
    assert ids(found) + ids(found) + ids(found) == epochs


def test_workers_send_large_tensors_in_shared_memory_and_small_ones_by_value(dataset):
    def more(batch, keys):
        large = np.arange(40_000)[None] + batch["id"][:, None]
        return {**batch, "large": large, "half": torch.tensor(batch["id"], dtype=torch.bfloat16)}

    how = {**SHUFFLED, "transform": more}
    expected = next(iter(readers.torch_batches(dataset, **how)))
    batch = next(iter(loader(readers.torch_batches(dataset, **how), 1)))
    assert all(torch.equal(tensor, expected[name]) for name, tensor in batch.items())
    shared = {name for name, tensor in batch.items() if tensor.is_shared()}
    assert shared == {"large", "half"}  # NumPy has no bfloat16.


@pytest.mark.parametrize("method", ["spawn"])
def test_workers_may_be_started_anew(dataset, method):
    batches = readers.torch_batches(dataset, **SHUFFLED)
    next(iter(batches))  # Its files are open.
    epochs = expected(dataset, **SHUFFLED, repeat=2)
    assert ids(loader(batches, 2, method)) == epochs[len(epochs) // 2 :]


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_share_batches_by_length(runs, workers):
    found = loader(readers.torch_batches(runs, **BUCKETS), workers)
    epochs = expected(runs, "label", **BUCKETS, repeat=2)
    assert ids(found, "label") + ids(found, "label") == epochs


def test_a_pass_that_is_broken_off_counts_for_all_workers(dataset):
    found = loader(readers.torch_batches(dataset, **SHUFFLED), 2)
    next(iter(found))
    epochs = expected(dataset, **SHUFFLED, repeat=2)
    assert ids(found) == epochs[len(epochs) // 2 :]


def test_a_loader_whose_seed_is_set_before_each_epoch_reads_the_next_one(dataset):
    batches, epochs = readers.torch_batches(dataset, **SHUFFLED), []
    for _ in range(3):
        generator = torch.Generator().manual_seed(0)
        epochs += ids(loader(batches, 2, generator=generator))
    assert epochs == expected(dataset, **SHUFFLED, repeat=3)


@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_share_an_epoch(dataset, workers):
    read = [
        ids(loader(readers.torch_batches(dataset, **SHUFFLED, shard=(rank, 2)), workers))
        for rank in range(2)
    ]
    for rank, batches in enumerate(read):
        assert batches == expected(dataset, **SHUFFLED, shard=(rank, 2))


@pytest.mark.parametrize(("workers", "done"), [(0, 7), (2, 0), (2, 7), (2, 99)])
@pytest.mark.parametrize("kind", ["steps", "length"])
def test_a_stateful_loader_resumes(dataset, runs, workers, done, kind):
    path, how, name = (dataset, SHUFFLED, "id") if kind == "steps" else (runs, BUCKETS, "label")

    def opened():
        return stateful.StatefulDataLoader(
            readers.torch_batches(path, **how), batch_size=None, num_workers=workers
        )

    whole = expected(path, name, **how, repeat=3)
    each = len(whole) // 3
    done = min(done, each)
    begun = opened()
    first = ids(begun, name)  # A whole epoch, so that the state is of the second.
    assert first == whole[:each]
    assert ids(itertools.islice(begun, done), name) == whole[each : each + done]
    state = begun.state_dict()
    resumed = opened()
    resumed.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert ids(resumed, name) == whole[each + done : 2 * each]
    assert ids(resumed, name) == whole[2 * each :]


def test_a_state_of_other_data_is_refused(dataset):
    begun = iter(readers.torch_batches(dataset, **SHUFFLED))
    next(begun)
    other = iter(readers.torch_batches(dataset, **{**SHUFFLED, "seed": 6}))
    with pytest.raises(ValueError, match="the state has seed=5, expected 6"):
        other.load_state_dict(begun.state_dict())


@pytest.mark.parametrize("steps", [5, 23])
def test_the_state_after_some_steps_fits_other_workers_and_hosts(dataset, steps):
    batches = readers.torch_batches(dataset, **SHUFFLED)
    found = loader(batches, 2)
    read = [*ids(found), *ids(found)][:steps]
    state = batches.state(steps)
    rest = expected(dataset, **{**SHUFFLED, "batch_size": 4}, repeat=2, state=state)
    epochs = expected(dataset, **SHUFFLED, repeat=2)
    assert [*itertools.chain(*read, *rest)] == [*itertools.chain(*epochs)]
    again = readers.torch_batches(dataset, **SHUFFLED, state=state)
    per_epoch = -(-RECORDS // 8)
    assert (
        ids(loader(again, 3))
        == expected(dataset, **SHUFFLED, repeat=2, state=state)[: per_epoch - steps % per_epoch]
    )


def test_an_error_names_the_record_and_does_not_end_the_pass(tmp_path):
    path = write_numbers(tmp_path / "numbers", (20,))
    damage(path / "train-00000-of-00001.tfrecord", 9)
    for workers in (0, 2):
        found = iter(loader(readers.torch_batches(str(path), split="train", batch_size=4), workers))
        assert next(found)["id"].tolist() == [0, 1, 2, 3]
        assert next(found)["id"].tolist() == [4, 5, 6, 7]
        for _ in range(2 - (workers > 0)):
            with pytest.raises(
                readers.CorruptRecordError, match=r"1\.tfrecord: record 9 "
            ) as error:
                next(found)
            # A worker's error is made again from its text.
            assert error.value.record == (None if workers else 9)


def test_a_loader_that_would_make_batches_of_batches_is_an_error(dataset):
    batches = readers.torch_batches(dataset, **SHUFFLED)
    for how in ({}, {"batch_size": 2, "num_workers": 1}):
        with pytest.raises(ValueError, match="DataLoader: pass batch_size=None"):
            next(iter(data.DataLoader(batches, **how)))


def test_arguments_are_checked(dataset):
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        readers.torch_batches(dataset, batch_size=2, batchsize=3)
    with pytest.raises(ValueError, match="prefetch=-1: expected a number of at least 0"):
        readers.torch_batches(dataset, batch_size=2, prefetch=-1)
    with pytest.raises(TypeError, match="the batches never end"):
        len(readers.torch_batches(dataset, split="train", batch_size=2, repeat=None))
