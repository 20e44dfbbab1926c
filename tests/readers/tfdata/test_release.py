"""What is given back when a dataset is gone: files, indexes and memory."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import pytest
import tensorflow as tf
from PIL import Image

import readers
from readers.batches import by_step as stream
from readers.tfdata import dataset as pipeline
from tests.support.datasets import write_dataset, write_numbers, write_signals

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


def values(batch):
    return {name: tensor.numpy().tolist() for name, tensor in batch.items()}


def open_shards():
    """How many shards this process has mapped."""
    return Path("/proc/self/maps").read_text().count("tfrecord")


def without_its_object(dataset):
    """The same dataset, of which TensorFlow alone has what it is made of."""
    variant = tf.data.experimental.to_variant(dataset)
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


@pytest.mark.slow(base=["shuffled"])
@pytest.mark.parametrize("way", WAYS)
def test_a_dataset_that_is_gone_holds_no_file(paths, way):
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
    # Objects of TensorFlow are in cycles.
    gc.collect()
    assert open_shards() == before


@pytest.mark.parametrize("way", WAYS)
def test_batches_of_numpy_that_are_gone_hold_no_file(paths, way):
    gc.collect()
    gc.disable()
    try:
        before = open_shards()
        options = {"batch_size": 2, "repeat": None, "order": "global"} | WAYS[way]
        batches = readers.as_numpy(paths.get(way, paths[None]), **options)
        next(batches)
        assert open_shards() > before
        del batches
        assert open_shards() == before
    finally:
        gc.enable()


def test_what_is_made_of_a_dataset_keeps_it(paths):
    gc.collect()
    before = open_shards()
    made = readers.load(paths[None], batch_size=2, order="global").map(lambda batch: batch["id"])
    made = tf.data.Dataset.zip((made, made)).take(3)
    assert len(list(made)) == 3
    assert open_shards() > before
    del made
    gc.collect()
    assert open_shards() == before


@pytest.mark.slow(base=["in buckets"])
@pytest.mark.parametrize("way", ["in order", "in buckets"])
def test_a_dataset_that_only_tensorflow_refers_to_opens_its_files_again(paths, way):
    options = {"batch_size": 2, "order": "global"} | WAYS[way]

    def inner(_):
        return readers.load(paths.get(way, paths[None]), **options)

    expected = [values(batch) for batch in inner(0)]
    nested = tf.data.Dataset.range(2).flat_map(inner)
    gc.collect()
    assert [values(batch) for batch in nested] == expected * 2


def test_a_dataset_whose_object_is_gone_is_read_on_without_opening_it_for_each_batch(
    paths, monkeypatch
):
    opened = []
    ours = pipeline.open_stream
    monkeypatch.setattr(pipeline, "open_stream", lambda *a: opened.append(1) or ours(*a))
    dataset = readers.load(paths[None], batch_size=20, repeat=400, order="global")
    expected = [values(batch) for batch in dataset]
    rest = without_its_object(dataset)
    del dataset
    gc.collect()
    opened.clear()
    assert [values(batch) for batch in rest] == expected
    assert len(opened) == 9


def test_steps_that_were_left_out_are_not_gone_through_again(paths, monkeypatch):
    opened = []
    ours = pipeline.open_grouped
    monkeypatch.setattr(pipeline, "open_grouped", lambda *a: opened.append(a[1]) or ours(*a))
    options = {"order": "global", "repeat": 3, "start_step": 2} | WAYS["in buckets"]
    expected = [values(batch) for batch in readers.load(paths["in buckets"], **options)]
    dataset = readers.load(paths["in buckets"], **options)
    rest = without_its_object(dataset)
    del dataset
    gc.collect()
    opened.clear()
    assert [values(batch) for batch in rest] == expected
    assert opened
    assert not any(again.start_step for again in opened)


def test_a_step_that_fails_is_not_tried_for_ever_where_errors_are_ignored(paths, monkeypatch):
    dataset = readers.load(paths[None], batch_size=2, order="global")
    steps, ours = [], stream.Stream.step

    def step(self, number):
        steps.append(number)
        if number == 3:
            raise MemoryError("no room")
        return ours(self, number)

    monkeypatch.setattr(stream.Stream, "step", step)
    with pytest.raises(tf.errors.InvalidArgumentError, match="MemoryError: no room"):
        list(dataset)
    steps.clear()
    again = readers.load(paths[None], batch_size=2, order="global", repeat=None).ignore_errors()
    found = [int(batch["id"][0]) for batch in again.take(10)]
    assert found == [0, 2, 4, 8, 10, 12, 14, 16, 18, 0]
    assert steps[:11] == list(range(11))


@pytest.mark.parametrize(("side", "together"), [(4, 8), (512, 3)])
def test_a_call_of_python_ends_with_the_batch_that_makes_it_large(
    tmp_path, monkeypatch, side, together
):
    schema = readers.Schema({"image": ("uint8", (side, side, 3), "png")})
    out = io.BytesIO()
    Image.new("RGB", (side, side)).save(out, "PNG")
    path = write_dataset(tmp_path, schema, {"train": [[{"image": out.getvalue()}] * 32]})
    made, ours = [], tf.numpy_function

    def spy(function, inputs, dtypes, **options):
        def called(*arguments):
            found = function(*arguments)
            if len(dtypes) > 2:
                made.append(int(found[0]))
            return found

        return ours(called, inputs, dtypes, **options)

    monkeypatch.setattr(tf, "numpy_function", spy)
    batches = list(readers.load(path, batch_size=4, order="global"))
    assert [batch["image"].shape for batch in batches] == [(4, side, side, 3)] * 8
    assert max(made) == together
    assert sum(made) == 8
