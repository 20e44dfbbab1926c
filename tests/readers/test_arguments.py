"""The arguments that all readers have: the same, in one text, and what they accept."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers import api, hosts
from tests.support.arrays import as_lists, ids
from tests.support.datasets import write_numbers, write_signals

READERS = ("load", "as_numpy", "torch_batches", "jax_batches")
MORE = {
    "load": [],
    "as_numpy": ["prefetch"],
    "torch_batches": ["prefetch"],
    "jax_batches": ["prefetch", "sharding"],
}
# The defaults in which they differ.
DEFAULTS = {
    "load": {"shard": None, "remainder": "short"},
    "as_numpy": {"shard": None, "remainder": "short"},
    "torch_batches": {"shard": "auto", "remainder": "short"},
    "jax_batches": {"shard": "auto", "remainder": "drop"},
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers"), (20, 30, 7)))


def parameters(function):
    return inspect.signature(function).parameters


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("owner", [readers, readers.Dataset], ids=["readers", "open"])
def test_all_readers_have_the_same_arguments(owner, name):
    shared, mine = parameters(api.load), parameters(getattr(owner, name))
    returned = [inspect.signature(getattr(module, name)) for module in (owner, api)]
    assert returned[0].return_annotation == returned[1].return_annotation
    if owner is not readers:
        shared = {n: p for n, p in shared.items() if n != "path"}
        mine = {n: p for n, p in mine.items() if n != "self"}
    assert list(mine) == [*shared, *MORE[name]] and len(shared) <= 18
    for argument, parameter in shared.items():
        assert mine[argument].kind == parameter.kind
        expected = DEFAULTS[name].get(argument, parameter.default)
        assert mine[argument].default == expected, argument
        if argument != "transform":  # Of tensors, or of arrays.
            assert mine[argument].annotation == parameter.annotation, argument


@pytest.mark.parametrize("name", READERS)
def test_the_help_of_each_reader_explains_every_argument(name):
    text = inspect.getdoc(getattr(readers, name))
    for argument in parameters(api.load):
        assert re.search(rf"^ {{4}}{argument}( \(|:)", text, re.M), argument
    for argument in MORE[name]:
        assert re.search(rf"`{argument}`\s\(", text), argument
    assert text.count("Example:") == 1


def test_a_dataset_reads_itself(dataset):
    opened, how = readers.open(dataset), {"split": "train", "shuffle": True}
    expected = as_lists(readers.as_numpy(dataset, 8, **how))
    assert as_lists(opened.as_numpy(8, **how)) == as_lists(opened.load(8, **how)) == expected


def test_all_passes_may_read_the_same_epoch(dataset):
    how = {"split": "train", "shuffle": readers.Order(each_pass=False)}
    for batches in (readers.as_numpy(dataset, 8, **how), readers.load(dataset, 8, **how)):
        assert ids(batches) == ids(batches) == ids(readers.as_numpy(dataset, 8, **how))


def test_a_sum_of_splits_is_read_once(dataset):
    whole = ids(readers.as_numpy(dataset, 8, split="train"))
    others = ids(readers.as_numpy(dataset, 8, split="val"))
    found = readers.as_numpy(dataset, 8, split="train[:10]+val+train[30:]")
    assert ids(found) == whole[:10] + others + whole[30:]
    shuffled = readers.as_numpy(
        dataset, 8, split="val+train", shuffle=readers.Order(by="interleave")
    )
    assert sorted(ids(shuffled)) == sorted(whole + others)
    with pytest.raises(ValueError, match="the records, the split or its slice differ"):
        readers.as_numpy(dataset, 8, split="train[:10]+train[30:]+val", state=found.state())


def test_one_of_several_hosts_that_reads_all_is_warned_once(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for read in (readers.as_numpy, readers.load):
        hosts._warn.cache_clear()
        with pytest.warns(
            UserWarning, match="one of 2 processes, from RANK and WORLD_SIZE"
        ) as caught:
            assert len(ids(read(dataset, 8, split="train"))) == 57
        assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ids(readers.load(dataset, 8, split="train"))) == 57
        hosts._warn.cache_clear()
        readers.as_numpy(dataset, 8, split="train", shard=(0, 1))
        with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
            inside = readers.load(dataset, 8, split="train")
            alone = readers.load(dataset, 8, split="train", shard="auto")
    # Either the strategy divides the batches, or `shard`.
    policy = tf.data.experimental.AutoShardPolicy
    for ds, expected in ((inside, policy.DATA), (alone, policy.OFF)):
        assert ds.options().experimental_distribute.auto_shard_policy == expected


@pytest.mark.parametrize(
    ("stated", "feature"),
    [
        ("float32", ("float32",)),
        (np.float32, ("float32",)),
        (np.dtype("int8"), ("int8",)),
        (tf.float32, ("float32",)),
        (tf.string, ("string",)),
        (("int64", [3]), ("int64", [3])),
        ((tf.int64, [None]), ("int64", [None])),
        (tf.io.FixedLenFeature([], tf.int64), ("int64", [], "list")),
        (tf.io.FixedLenFeature([2, 3], tf.float32), ("float32", [2, 3], "list")),
        (tf.io.FixedLenFeature([], tf.string), ("string", [], "list")),
        (tf.io.VarLenFeature(tf.int64), ("int64", [None], "list")),
        (tf.io.FixedLenSequenceFeature([2], tf.float32, True), ("float32", [None, 2], "list")),
        (tf.io.RaggedFeature(tf.string), ("string", [None], "list")),
    ],
)
def test_a_schema_is_made_of_what_users_have(stated, feature):
    assert readers.Schema({"x": stated})["x"] == readers.Feature(*feature)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (3, "3: expected a dtype such as 'float32', or \\(dtype, shape\\)"),
        ("floaty", "floaty"),
        ((), "expected a dtype"),
        (("int64", 3), "shape 3: expected a list of sizes"),
        (tf.io.SparseFeature("i", "v", tf.int64, 3), "tf.io.SparseFeature has no single shape"),
    ],
)
def test_what_is_no_feature_is_refused(stated, message):
    with pytest.raises(ValueError, match=f"feature 'x': .*{message}"):
        readers.Schema({"x": stated})


def test_the_specs_of_tensorflow_read_files_that_it_wrote(tmp_path):
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2, 3]))
    example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
    path = str(tmp_path / "a.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())
    specs = {"x": tf.io.VarLenFeature(tf.int64)}
    (batch,) = readers.as_numpy(path, 1, schema=specs, batching="ragged")
    assert batch["x"][0].tolist() == [1, 2, 3]


def test_a_shuffle_buffer_is_explained(tmp_path):
    path = write_signals(tmp_path)
    with pytest.raises(
        ValueError, match=r"by interleave has a buffer, readers.Order\(by='interleave', buffer=9"
    ):
        readers.as_numpy(path, 1, shuffle=readers.Order(buffer=9))
    for how in ({"by": "random"}, {"shuffle": 1}, {"by": "interleave", "buffer": 0}):
        with pytest.raises(ValueError, match=r"Order\("):
            readers.Order(**how)


@pytest.mark.parametrize(
    "reader",
    [readers.RecordSource, lambda *how, **more: readers.as_numpy(*how, batch_size=1, **more)],
)
def test_what_is_no_path_and_no_cache_is_refused_by_all_readers(dataset, reader):
    for path in (None, [], b"ab", "", [5], [readers.Mix({dataset: 1})]):
        expected = f"path={path!r}: expected a directory, a list of directories"
        for more in ({}, {"schema": {"id": "int64"}}):
            with pytest.raises(ValueError, match=re.escape(expected)):
                reader(path, **more)
    with pytest.raises(ValueError, match="decoders=224: expected decoders by feature name"):
        reader(dataset, decoders=224)
    with pytest.raises(ValueError, match=r"cache='/tmp': expected readers\.Cache"):
        reader(dataset, cache="/tmp")


def test_public_objects_have_public_names():
    for name in readers.__all__:
        value = getattr(readers, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__module__ == "readers", name
