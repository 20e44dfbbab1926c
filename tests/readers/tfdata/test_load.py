"""`readers.load`: order, shapes, arguments and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf

import readers
from readers.batches.read_sizes import default_window
from readers.format.encode.records import Encoder
from readers.shards.resolve import resolve
from tests.support.arrays import ids
from tests.support.checkout import ROOT
from tests.support.datasets import (
    NUMBERS,
    SIGNALS,
    manifest_bytes,
    numbers,
    write_dataset,
    write_numbers,
    write_shard,
    write_signals,
)
from tests.support.plain import write_plain

both = pytest.mark.parametrize("read", [readers.load, readers.as_numpy])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return str(write_numbers(tmp_path_factory.mktemp("numbers")))


@pytest.fixture(scope="module")
def sensors(tmp_path_factory):
    return str(write_signals(tmp_path_factory.mktemp("signals")))


@both
def test_records_come_in_the_order_of_the_files_with_all_their_values(dataset, read):
    batches = list(read(dataset, batch_size=8))
    assert [batch["vector"].shape for batch in batches] == [(8, 3), (8, 3), (4, 3)]
    assert ids(batches) == list(range(20))
    for batch in batches:
        np.testing.assert_array_equal(batch["vector"][:, 2], batch["id"])
        assert np.asarray(batch["name"]).tolist() == [b"record %d" % i for i in batch["id"]]
    assert len(list(read(dataset, batch_size=8, remainder="drop"))) == 2


def test_shapes_are_static_where_the_schema_knows_them(dataset, sensors):
    spec = readers.load(dataset, batch_size=8).element_spec
    assert spec["vector"] == tf.TensorSpec([None, 3], tf.float32)
    assert spec["name"] == tf.TensorSpec([None], tf.string)
    spec = readers.load(dataset, batch_size=8, remainder="drop").element_spec
    assert spec["vector"] == tf.TensorSpec([8, 3], tf.float32)
    assert spec["id"] == tf.TensorSpec([8], tf.int64)
    spec = readers.load(sensors, batch_size=2, batching=readers.Padded(mask=True)).element_spec
    assert spec["signal"] == tf.TensorSpec([None, None, 2], tf.float32)
    assert spec["signal_mask"] == tf.TensorSpec([None, None], tf.bool)
    spec = readers.load(sensors, batch_size=2, batching="ragged", remainder="drop").element_spec
    assert spec["signal"].shape.as_list() == [2, None, 2]
    assert spec["signal"].ragged_rank == 1


def test_the_cardinality_is_the_number_of_batches(dataset):
    endless = tf.data.INFINITE_CARDINALITY
    for how, batches in (
        ({}, 3),
        ({"repeat": 2, "remainder": "drop"}, 4),
        ({"repeat": None}, endless),
        ({"split": "train[3:12]"}, 2),
    ):
        ds = readers.load(dataset, batch_size=8, **how)
        assert ds.cardinality().numpy() == batches
        if batches > 0:
            assert len(list(ds)) == batches


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train[3:12]", range(3, 12)),
        ("val[1:]", [1001, 1002]),
    ],
)
def test_a_slice_holds_exactly_its_records(dataset, split, expected):
    for how in ({}, {"shuffle": True}, {"shuffle": readers.Order(by="interleave")}):
        found = ids(readers.as_numpy(dataset, split=split, batch_size=4, **how))
        assert (sorted(found) if how else found) == list(expected)
        if split == "train[3:12]":
            assert ids(readers.load(dataset, split=split, batch_size=4, **how)) == found


def test_the_default_window_is_bounded_in_bytes_and_in_records(dataset):
    plan = resolve(dataset, None, None, None)
    assert default_window(plan) == 20
    assert default_window(replace(plan, records=10**9, record_bytes=float(1 << 20))) == 128
    assert default_window(replace(plan, records=10**9, record_bytes=float(100_000))) == 1024
    assert default_window(replace(plan, records=10**9, record_bytes=float(1 << 14))) == 2048
    assert default_window(replace(plan, records=10**9, record_bytes=20.0)) == 65_536


@both
def test_columns_and_tuples_match_the_arguments(dataset, sensors, read):
    batch = next(iter(read(dataset, batch_size=2, columns=["id"])))
    assert list(batch) == ["id"]
    vector, number = next(iter(read(dataset, batch_size=2, as_supervised=("vector", "id"))))
    assert np.asarray(vector).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert np.asarray(number).tolist() == [0, 1]
    names = ("signal", "label", "signal_mask")
    batches = read(sensors, batch_size=2, batching=readers.Padded(mask=True), as_supervised=names)
    signal, _, mask = next(iter(batches))
    assert mask.shape == signal.shape[:2]


def test_the_only_split_or_train_is_the_default(dataset, sensors, tmp_path):
    assert len(ids(readers.load(dataset, batch_size=4))) == 20
    assert len(list(readers.load(sensors, batch_size=1, columns=["label"]))) == 5
    write_dataset(tmp_path, NUMBERS, {"a": [numbers(0, 1)], "b": [numbers(0, 1)]})
    with pytest.raises(ValueError, match="split=: the dataset has a, b"):
        readers.load(tmp_path, batch_size=1)


def test_an_empty_split_is_an_empty_dataset_with_the_same_spec(tmp_path):
    write_dataset(tmp_path, NUMBERS, {"train": [numbers(0, 3)], "val": [[]], "test": []})
    expected = readers.load(tmp_path, split="train", batch_size=2).element_spec
    for split in ("val", "test"):
        found = readers.load(tmp_path, split=split, batch_size=2, repeat=None)
        assert found.element_spec == expected
        assert list(found) == list(readers.as_numpy(tmp_path, split=split, batch_size=2)) == []


def test_files_without_a_full_batch_end_even_with_endless_repetition(tmp_path):
    empty = write_plain(tmp_path / "empty.tfrecord", [])
    how = {"schema": NUMBERS, "batch_size": 4, "repeat": None}
    assert list(readers.load(empty, **how)) == []
    few = write_numbers(tmp_path / "d", (3,)) / "train-00000-of-00001.tfrecord"
    few.with_name(f"{few.name}.index").unlink()
    with pytest.raises(ValueError, match="has 3 records, too few for one batch"):
        readers.load(few, remainder="drop", **how)
    found = ids(readers.load(few, **how).take(3))
    assert [sorted(found[n : n + 3]) for n in (0, 3, 6)] == [[0, 1, 2]] * 3


# Files of other writers.


def test_files_with_an_index_have_a_cardinality_and_slices(tmp_path):
    examples = [Encoder(NUMBERS).encode(record) for record in numbers(0, 7)]
    files = [tmp_path / "x.tfrecord", tmp_path / "y.tfrecord"]
    write_shard(files[0], examples[:3])
    write_shard(files[1], examples[3:])
    ds = readers.load(files, schema=NUMBERS, batch_size=2)
    assert ds.cardinality().numpy() == 4
    assert ids(readers.load(files, split="all[2:5]", schema=NUMBERS, batch_size=9)) == [2, 3, 4]
    (tmp_path / "y.tfrecord.index").unlink()
    assert ids(readers.load(files, split="all[2:5]", schema=NUMBERS, batch_size=9)) == [2, 3, 4]
    with pytest.raises(ValueError, match="unknown split 'train': the dataset has all"):
        readers.load(files, split="train", schema=NUMBERS, batch_size=9)


def test_a_given_schema_selects_from_a_dataset(dataset):
    schema = readers.Schema({"id": NUMBERS["id"]})
    assert list(next(iter(readers.load(dataset, schema=schema, batch_size=1)))) == ["id"]
    with pytest.raises(ValueError, match=r"schema= has int32 .* the manifest has int64"):
        readers.load(dataset, schema=readers.Schema({"id": ("int32", ())}), batch_size=1)
    with pytest.raises(ValueError, match="unknown feature 'idd': the dataset has id, name"):
        readers.load(dataset, schema=readers.Schema({"idd": ("int64", ())}), batch_size=1)


# Errors.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size=0: expected a number of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5"),
        ({"repeat": 0}, "repeat=0: expected a number of epochs, or None"),
        ({"seed": -1}, "seed=-1: expected a number from 0 to"),
        ({"shuffle": 1000}, r"shuffle=1000: expected True or False; .*buffer=1000\)"),
        ({"shuffle": 0}, r"shuffle=0: expected True or False; .*buffer=10000\)"),
        ({"shuffle": "yes"}, "shuffle='yes': expected True, False or readers.Order"),
        ({"shard": (2, 2)}, r"shard=\(2, 2\): expected \(index, count\) of this host"),
        ({"state": -1}, "state=-1: expected a readers.State, its JSON, or a number of steps"),
        ({"state": 7.0}, "state=7.0: expected a readers.State, its JSON, or a number of steps"),
        ({"split": "dev"}, "unknown split 'dev': the dataset has train, val"),
        ({"columns": ["idd"]}, "unknown feature 'idd': the dataset has id, name, vector"),
        ({"columns": "id"}, "columns='id': expected a list of feature names"),
        ({"as_supervised": ("image", "id")}, "unknown feature 'image'"),
        ({"as_supervised": "id"}, "as_supervised='id': expected a list"),
        (
            {"as_supervised": ("vector", "id"), "columns": ["id"]},
            "as_supervised names 'vector', but a batch has id",
        ),
        ({"schema": ["id"]}, r"schema=\['id'\]: expected a dict of features by name"),
    ],
)
def test_an_invalid_argument_is_reported_immediately_in_one_line(dataset, arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        readers.as_numpy(dataset, **{"batch_size": 4, **arguments})
    assert "\n" not in str(error.value)


def test_load_checks_the_same_arguments(dataset):
    for arguments, message in (
        ({"batch_size": 0}, "batch_size=0: expected a number of at least 1"),
        ({"split": "dev"}, "unknown split 'dev': the dataset has train, val"),
    ):
        with pytest.raises(ValueError, match=message):
            readers.load(dataset, **{"batch_size": 4, **arguments})


def test_dense_claims_nothing_about_the_sizes_of_images_and_names_their_cure(tmp_path):
    schema = readers.Schema({"image": readers.Feature("uint8", (None, None, 3), "png")})
    write_dataset(tmp_path, schema, {"train": [[{"image": b"never decoded"}] * 4]})
    with pytest.raises(ValueError, match=r"size that varies.*'padded' or.*--image_size$") as caught:
        readers.as_numpy(tmp_path, batch_size=2)
    assert "differs" not in str(caught.value)


def test_a_mask_never_replaces_a_feature(tmp_path):
    schema = readers.Schema({"a": ("int64", (None,)), "a_mask": ("int64", ())})
    write_dataset(tmp_path, schema, {"train": [[{"a": [1], "a_mask": 1}]]})
    with pytest.raises(ValueError, match="adds an array named 'a_mask'"):
        readers.as_numpy(tmp_path, batch_size=1, batching=readers.Padded(mask=True))


def test_missing_files_are_reported_by_name(tmp_path):
    with pytest.raises(readers.DatasetError, match=r"no manifest.json here"):
        readers.as_numpy(tmp_path, batch_size=1)
    with pytest.raises(FileNotFoundError, match=r"gone.tfrecord: no such file"):
        readers.as_numpy([tmp_path / "gone.tfrecord"], schema=NUMBERS, batch_size=1)
    with pytest.raises(FileNotFoundError, match=r"no TFRecord files here"):
        readers.as_numpy(tmp_path / "*.tfrecord", schema=NUMBERS, batch_size=1)
    with pytest.raises(FileNotFoundError, match=r"no TFRecord files here"):
        readers.as_numpy(tmp_path, schema=NUMBERS, batch_size=1)
    with pytest.raises(ValueError, match=r"path=\[\]: expected a directory"):
        readers.as_numpy([], schema=NUMBERS, batch_size=1)
    with pytest.raises(ValueError, match=r"gone.tfrecord: no such directory"):
        readers.as_numpy([tmp_path / "gone.tfrecord"], batch_size=1)
    with pytest.raises(ValueError, match="a glob needs schema="):
        readers.as_numpy(tmp_path / "*.tfrecord", batch_size=1)


def test_a_shard_that_does_not_match_the_manifest_is_reported_before_reading(tmp_path):
    write_numbers(tmp_path)
    shard = tmp_path / "train-00002-of-00004.tfrecord"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    message = (
        f"train-00002-of-00004.tfrecord: the manifest states {len(data)} bytes, .*{len(data) - 1}"
    )
    with pytest.raises(readers.DatasetError, match=message):
        readers.as_numpy(tmp_path, batch_size=1)
    readers.as_numpy(tmp_path, split="train[:5]", batch_size=1)
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"train-00002-of-00004.tfrecord.*missing"):
        readers.as_numpy(tmp_path, batch_size=1)


def test_fewer_records_than_in_the_manifest_are_an_error(tmp_path):
    write_numbers(tmp_path)
    text = (tmp_path / "manifest.json").read_text()
    text = text.replace('"records": 20', '"records": 21').replace('"records": 7', '"records": 8')
    (tmp_path / "manifest.json").write_bytes(manifest_bytes(json.loads(text)))
    with pytest.raises(
        tf.errors.OpError, match=r"index: 7 records, the manifest states 8; copy it"
    ):
        list(readers.load(tmp_path, batch_size=4))


def test_a_record_that_does_not_fit_the_schema_is_reported_by_feature(tmp_path):
    schema = readers.Schema({"signal": ("float32", (3, 2)), "label": ("int64", ())})
    records = [{"signal": np.ones((4, 2), "f4"), "label": 1}]
    write_shard(tmp_path / "a.tfrecord", [Encoder(SIGNALS).encode(record) for record in records])
    message = r"a.tfrecord: record 0 at byte 0: feature .*expected \[3, 2\], found \[4, 2\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message) as error:
        list(readers.load(tmp_path / "a.tfrecord", schema=schema, batch_size=1))
    assert "Traceback" not in str(error.value)


def test_load_without_tensorflow_reports_how_to_install_it():
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import readers\n"
        "try: readers.load('nowhere', batch_size=1)\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    expected = "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'\n"
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize("order", ["global", "interleave"])
def test_strategies_of_several_hosts_share_the_batches_and_never_the_files(dataset, order):
    policy = tf.data.experimental.AutoShardPolicy
    for shard, expected in (((0, 1), policy.DATA), ((1, 2), policy.OFF)):
        loaded = readers.load(
            dataset,
            split="train",
            batch_size=4,
            shuffle=readers.Order(False, by=order),
            shard=shard,
        )
        assert loaded.options().experimental_distribute.auto_shard_policy == expected


IN_A_GRAPH = """
import sys
import readers
import tensorflow as tf

def at_least_one(batch, _):
    if tf.reduce_sum(batch["id"]) == 1:  # AutoGraph makes an operation of it.
        return {"id": batch["id"]}
    return {"id": batch["id"] * 0 + 1}

@tf.function
def total():
    found = tf.constant(0, tf.int64)
    for batch in readers.load(sys.argv[1], 2, transform=at_least_one):
        found += tf.reduce_sum(batch["id"])
    return found

print(total().numpy())
"""


# In a process of its own: AutoGraph looks through all modules that are imported.
def test_a_dataset_may_be_opened_inside_a_function_of_a_graph(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(IN_A_GRAPH)
    command = [sys.executable, str(program), str(write_numbers(tmp_path / "data", (5,)))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "4\n", done.stderr[-2000:]
