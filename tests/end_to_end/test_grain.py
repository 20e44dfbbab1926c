"""`RecordSource` in Grain pipelines with threads, processes and checkpoints."""

from __future__ import annotations

import shutil

import grain
import pytest
from absl import flags

import readers
from tests.support.datasets import write_numbers


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    """Grain reads absl flags, which only absl programs parse."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="module")
def source(dataset):
    return readers.RecordSource(dataset)


def ids(batches):
    return [batch["id"].tolist() for batch in batches]


def joined(lists):
    return [number for numbers in lists for number in numbers]


def loader(source, **options):
    sampler = grain.samplers.IndexSampler(
        len(source), shuffle=True, seed=7, num_epochs=2, shard_options=grain.sharding.NoSharding()
    )
    return grain.DataLoader(
        data_source=source,
        sampler=sampler,
        operations=[grain.transforms.Batch(batch_size=4)],
        **options,
    )


def shuffled(source):
    return grain.MapDataset.source(source).shuffle(seed=3).repeat(2).batch(4)


def assert_two_epochs(lists):
    numbers = joined(lists)
    first, second = numbers[:20], numbers[20:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert first != sorted(first)


def test_a_map_dataset_holds_every_record_once_an_epoch(source):
    batches = list(shuffled(source))
    assert_two_epochs(ids(batches))
    for batch in batches:
        assert batch["vector"].tolist() == [[i] * 3 for i in batch["id"].tolist()]
        assert batch["name"].tolist() == [b"record %d" % i for i in batch["id"].tolist()]


@pytest.mark.slow(base=["0"])
@pytest.mark.parametrize("processes", [0, 2])
def test_a_data_loader_resumes_from_its_checkpoint_after_the_data_moved(
    source, dataset, tmp_path, processes
):
    expected = ids(loader(source, worker_count=processes))
    iterator = iter(loader(source, worker_count=processes))
    assert ids([next(iterator) for _ in range(3)]) == expected[:3]
    state = iterator.get_state()
    assert b"RecordSource(train: 20 records of id, name, vector; crc32c" in state
    moved = readers.RecordSource(shutil.copytree(dataset, tmp_path / "moved"))
    other = iter(loader(moved, worker_count=processes))
    other.set_state(state)
    assert ids(other) == expected[3:]


def test_a_data_loader_refuses_a_checkpoint_of_other_records(source, tmp_path):
    state = iter(loader(source)).get_state()
    other = readers.RecordSource(write_numbers(tmp_path, counts=(5, 4, 4, 7)))
    with pytest.raises(ValueError, match="data source"):
        iter(loader(other)).set_state(state)
