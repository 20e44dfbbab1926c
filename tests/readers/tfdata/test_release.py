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
from readers.batches.by_step import BatchesByStep, StepReader
from readers.shards.plan import Part
from readers.tfdata import dataset as dataset_module
from tests.support.arrays import as_lists
from tests.support.datasets import write_dataset, write_numbers, write_signals
from tests.support.images import encoded

WAYS = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "mixed": {"weights": [1, 2]},
    "padded": {"batching": "padded"},
    "in buckets": {"batching": "padded", "bucket_boundaries": [3], "batch_size": [2, 2]},
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    numbers = str(write_numbers(tmp_path_factory.mktemp("numbers")))
    signals = str(write_signals(tmp_path_factory.mktemp("signals")))
    return {"mixed": [numbers, numbers], "padded": signals, "in buckets": signals, None: numbers}


@pytest.fixture(autouse=True)
def only_new_objects():
    """A collection looks at what a test has made, and not at all of TensorFlow's modules."""
    gc.freeze()
    yield
    gc.unfreeze()


def open_shards():
    """The number of shards that this process has mapped."""
    return Path("/proc/self/maps").read_text().count("tfrecord")


def without_its_object(dataset):
    """The same dataset, whose inputs only TensorFlow still refers to."""
    variant = tf.data.experimental.to_variant(dataset)
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


@pytest.mark.slow(base=["shuffled"])
@pytest.mark.parametrize("way", WAYS)
def test_a_deleted_dataset_holds_no_files(paths, way):
    gc.collect()
    before = open_shards()
    options = {"batch_size": 2, "repeat": None, "order": "global"} | WAYS[way]
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


@pytest.mark.slow(base=["in buckets"])
@pytest.mark.parametrize("way", ["in order", "in buckets"])
def test_an_iterator_restored_from_another_one_reads_on_beside_it(paths, way, tmp_path):
    options = {"batch_size": 2, "repeat": None, "order": "global"} | WAYS[way]
    dataset = readers.load(paths.get(way, paths[None]), **options)
    expected = as_lists(dataset.take(40))
    first, second = iter(dataset), iter(dataset)
    assert as_lists(itertools.islice(first, 20)) == expected[:20]
    saved = tf.train.Checkpoint(batches=first).save(str(tmp_path / "saved"))
    tf.train.Checkpoint(batches=second).restore(saved)
    pairs = zip(itertools.islice(first, 20), itertools.islice(second, 20), strict=True)
    found = [as_lists(pair) for pair in pairs]
    assert found == [[batch] * 2 for batch in expected[20:]]


@pytest.mark.parametrize("way", ["in order", "in buckets"])
def test_a_deleted_dataset_leaves_no_part_of_its_plan(paths, way):
    def parts():
        gc.collect()
        return sum(type(found) is Part for found in gc.get_objects())

    before = parts()
    options = {"batch_size": 2, "order": "global"} | WAYS[way]
    dataset = readers.load(paths.get(way, paths[None]), **options)
    next(iter(dataset))
    assert parts() > before
    del dataset
    assert parts() == before


@pytest.mark.slow
def test_a_dataset_held_only_by_tensorflow_does_not_reopen_its_files_for_each_batch(
    paths, monkeypatch
):
    opened, original = [], BatchesByStep
    monkeypatch.setattr(
        dataset_module, "BatchesByStep", lambda *a: opened.append(1) or original(*a)
    )
    dataset = readers.load(paths[None], batch_size=20, repeat=400, order="global")
    expected = as_lists(dataset)
    rest = without_its_object(dataset)
    del dataset
    gc.collect()
    opened.clear()
    assert as_lists(rest) == expected
    assert 0 < len(opened) < 40 < len(expected)


def test_a_failing_step_is_not_retried_without_end_if_errors_are_ignored(paths, monkeypatch):
    dataset = readers.load(paths[None], batch_size=2, order="global")
    steps, original = [], StepReader.step

    def step(self, number):
        steps.append(number)
        if number == 3:
            raise MemoryError("no room")
        return original(self, number)

    monkeypatch.setattr(StepReader, "step", step)
    with pytest.raises(tf.errors.InvalidArgumentError, match="MemoryError: no room"):
        list(dataset)
    steps.clear()
    again = readers.load(paths[None], batch_size=2, order="global", repeat=None).ignore_errors()
    found = [int(batch["id"][0]) for batch in again.take(10)]
    assert found == [0, 2, 4, 8, 10, 12, 14, 16, 18, 0]
    assert steps[:11] == list(range(11))


@pytest.mark.parametrize("side", [4, 512])
def test_a_python_call_ends_with_the_batch_that_makes_it_large(tmp_path, monkeypatch, side):
    schema = readers.Schema({"image": ("uint8", (side, side, 3), "png")})
    png = encoded(np.zeros((side, side, 3), np.uint8), "PNG")
    path = write_dataset(tmp_path, schema, {"train": [[{"image": png}] * 32]})
    steps, original = [], tf.numpy_function

    def spy(function, inputs, dtypes, **options):
        def called(*arguments):
            found = function(*arguments)
            if len(dtypes) > 3:
                steps.append(int(found[1]))
            return found

        return original(called, inputs, dtypes, **options)

    monkeypatch.setattr(tf, "numpy_function", spy)
    batches = list(readers.load(path, batch_size=4, order="global"))
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
from readers.batches import by_length, by_step

reader, name = {reader}
read = getattr(reader, name)
def slow(*arguments):
    time.sleep(0.3)
    return read(*arguments)

batches = iter(readers.load({path!r}, repeat=None, order="global", **{options}))
next(batches)
setattr(reader, name, slow)
next(batches), next(batches), next(batches)
print("done")
"""
READERS = {
    "shuffled": "by_step.StepReader, 'step'",
    "in buckets": "by_length.LengthReader, 'batch'",
}


@pytest.mark.slow(base=["shuffled"])
@pytest.mark.parametrize("way", READERS)
def test_a_process_ends_though_an_iterator_is_left(paths, way):
    path, options = paths.get(way, paths[None]), {"batch_size": 2} | WAYS[way]
    script = ENDS.format(path=path, reader=READERS[way], options=options)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert "the interpreter ends" not in ended.stderr and "Error" not in ended.stderr
