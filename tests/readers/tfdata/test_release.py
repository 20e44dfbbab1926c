"""Deleted datasets release their files and memory, and a process ends with those that are left."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.shards.plan import Part
from readers.tfdata.python_calls import PythonFunction
from tests.support.arrays import as_lists
from tests.support.datasets import write_dataset, write_numbers, write_signals
from tests.support.images import encoded

WAYS = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "mixed": {},
    "padded": {"batching": "padded"},
    "in buckets": {"batching": readers.Padded(buckets=[3]), "batch_size": [2, 2]},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    numbers = str(write_numbers(tmp_path_factory.mktemp("numbers")))
    signals = str(write_signals(tmp_path_factory.mktemp("signals")))
    return {
        "mixed": readers.Mix({numbers: 1, Path(numbers): 2}),
        "padded": signals,
        "in buckets": signals,
        None: numbers,
    }


@pytest.fixture(autouse=True)
def only_new_objects():
    """A collection looks at what a test has made, and not at all of TensorFlow's modules."""
    gc.freeze()
    yield
    gc.unfreeze()


def open_shards():
    """The number of shards that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("tfrecord")


@pytest.mark.slow(base=["shuffled"])
@pytest.mark.parametrize("way", WAYS)
def test_a_deleted_dataset_holds_no_files(paths, way):
    gc.collect()
    before = open_shards()
    options = {
        "batch_size": 2,
        "repeat": None,
        "shuffle": readers.Order(False, by="global"),
    } | WAYS[way]
    dataset = readers.load(paths.get(way, paths[None]), **options)
    batches = iter(dataset)
    next(batches)
    assert open_shards() > before
    del dataset
    next(batches)
    del batches
    # TensorFlow's objects are in reference cycles.
    gc.collect()
    assert open_shards() == before


def test_an_iterator_restored_from_another_one_reads_on_beside_it(paths, tmp_path):
    options = {"repeat": None, "shuffle": readers.Order(False, by="global")} | WAYS["in buckets"]
    dataset = readers.load(paths["in buckets"], **options)
    expected = as_lists(dataset.take(40))
    first, second = iter(dataset), iter(dataset)
    assert as_lists(itertools.islice(first, 20)) == expected[:20]
    saved = tf.train.Checkpoint(batches=first).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(batches=second).restore(saved)
    pairs = zip(itertools.islice(first, 20), itertools.islice(second, 20), strict=True)
    found = [as_lists(pair) for pair in pairs]
    assert found == [[batch] * 2 for batch in expected[20:]]


def test_a_deleted_dataset_leaves_no_part_of_its_plan(paths):
    def parts():
        gc.collect()
        return sum(type(found) is Part for found in gc.get_objects())

    before = parts()
    dataset = readers.load(
        paths["in buckets"], shuffle=readers.Order(False, by="global"), **WAYS["in buckets"]
    )
    next(iter(dataset))
    assert parts() > before
    del dataset
    assert parts() == before


@pytest.mark.parametrize("side", [4, 512])
def test_a_python_call_ends_with_the_batch_that_makes_it_large(tmp_path, monkeypatch, side):
    schema = readers.Schema({"image": ("uint8", (side, side, 3), "png")})
    png = encoded(np.zeros((side, side, 3), np.uint8), "PNG")
    path = write_dataset(tmp_path, schema, {"train": [[{"image": png}] * 32]})
    steps, run = [], PythonFunction.run

    def spy(self, *arguments):
        found = run(self, *arguments)
        if len(found) > 4:
            steps.append(int(found[2]))
        return found

    monkeypatch.setattr(PythonFunction, "run", spy)
    batches = list(readers.load(path, batch_size=4, shuffle=readers.Order(False, by="global")))
    assert [batch["image"].shape for batch in batches] == [(4, side, side, 3)] * 8
    assert sum(steps) == 8
    assert max(steps) > 1
    # 24 MiB of pixels, or 1.5 KiB: large batches are not all held at once, small ones are.
    assert (max(steps) == 8) == (side == 4)
    assert max(steps) * 4 * side * side * 3 < 16 << 20


# A script with an iterator whose next batch is being read when the interpreter ends.
ENDS = """
import os, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
import readers
from readers.batches.reading import BatchReader

read = BatchReader.batch
def slow(*arguments):
    time.sleep(0.3)
    return read(*arguments)

batches = iter(readers.load({path!r}, batch_size=2, repeat=None, shuffle=readers.Order(by="global")))
next(batches)
BatchReader.batch = slow
next(batches), next(batches), next(batches)
print("done")
"""


@pytest.mark.slow
def test_a_process_ends_though_an_iterator_is_left(paths):
    script = ENDS.format(path=paths[None])
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "the interpreter ends" not in ended.stderr and "Error" not in ended.stderr
