"""`RecordSource` as a map-style dataset of PyTorch."""

from __future__ import annotations

import os

import pytest

import readers
from tests.support.arrays import ids
from tests.support.datasets import write_numbers

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports PyTorch when these tests run: the base tests do not have it."""
    global torch, data
    import torch
    from torch.utils import data


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="module")
def source(dataset):
    return readers.RecordSource(dataset, columns=["id", "vector"])


def with_process(records):
    import torch
    from torch.utils import data

    batch = data.default_collate(records)
    return batch | {"process": torch.full_like(batch["id"], os.getpid())}


@pytest.mark.parametrize("method", ["spawn"])
def test_two_processes_shuffle_every_record_once_an_epoch(source, method):
    loader = data.DataLoader(
        source,
        batch_size=4,
        shuffle=True,
        num_workers=2,
        generator=torch.Generator().manual_seed(3),
        multiprocessing_context=method,
        persistent_workers=True,
        collate_fn=with_process,
    )
    epochs = [list(loader), list(loader)]
    first, second = map(ids, epochs)
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    processes = {process for batch in epochs[0] for process in batch["process"].tolist()}
    assert len(processes) == 2
    assert os.getpid() not in processes
