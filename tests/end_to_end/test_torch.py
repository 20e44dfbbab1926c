"""`RecordSource` as a map-style dataset of PyTorch."""

from __future__ import annotations

import os

import numpy as np
import pytest

import readers
from readers.format.schema import Schema
from tests.support.arrays import ids
from tests.support.datasets import write_dataset, write_numbers

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


def test_a_batch_is_one_request(source, monkeypatch):
    asked = []
    read = readers.RecordSource.__getitems__

    def noted(self, indices):
        asked.append(list(indices))
        return read(self, indices)

    monkeypatch.setattr(readers.RecordSource, "__getitems__", noted)
    batches = [[3, 19, 0], [7, 7], [1]]
    loader = data.DataLoader(source, batch_sampler=batches)
    assert ids(loader) == [3, 19, 0, 7, 7, 1]
    assert asked == batches


def test_a_loader_of_pictures_with_keys_needs_no_further_arguments(tmp_path):
    schema = Schema({"image": ("uint8", (4, 5, 3)), "label": ("int64",), "key": ("string",)})
    records = [
        {"image": np.full((4, 5, 3), n, np.uint8), "label": n, "key": f"{n}.png"}
        for n in range(100)
    ]
    dataset = write_dataset(tmp_path, schema, {"train": [records]})
    first, second = data.DataLoader(readers.RecordSource(dataset), batch_size=64)
    assert first["image"].shape == (64, 4, 5, 3)
    assert first["label"].dtype == torch.int64
    assert first["label"].tolist() == list(range(64))
    assert second["key"] == [b"%d.png" % n for n in range(64, 100)]
