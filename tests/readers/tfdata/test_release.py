"""Deleted datasets release their files and memory, and a process ends with those that are left."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tensorflow as tf

import readers
from readers.shards.plan import Part
from tests.support.arrays import as_lists
from tests.support.datasets import write_numbers, write_signals

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


def left():
    """The number of shards that this process has mapped, and of parts of plans."""
    gc.collect()  # TensorFlow's objects are in reference cycles.
    parts = sum(type(found) is Part for found in gc.get_objects())
    return Path("/proc/self/maps").read_text().count("tfrecord"), parts


@pytest.mark.slow(base=["shuffled"])
@pytest.mark.parametrize("way", WAYS)
def test_a_deleted_dataset_leaves_no_files_and_no_plan(paths, way):
    before = left()
    options = {
        "batch_size": 2,
        "repeat": None,
        "shuffle": readers.Order(False, by="global"),
    } | WAYS[way]
    dataset = readers.load(paths.get(way, paths[None]), **options)
    batches = iter(dataset)
    next(batches)
    assert all(now > then for now, then in zip(left(), before, strict=True))
    del dataset
    next(batches)
    del batches
    assert any(left() == before or time.sleep(0.05) for _ in range(200))


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


# A script with an iterator whose next batch is being read when the interpreter ends.
ENDS = """
import os, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "1"
import readers
from readers.batches.batch_slice import BatchSlice

read = BatchSlice.arrays
def slow(*arguments):
    time.sleep(0.3)
    return read(*arguments)

batches = iter(readers.load({path!r}, batch_size=2, repeat=None, shuffle=readers.Order(by="global")))
next(batches)
BatchSlice.arrays = slow
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
