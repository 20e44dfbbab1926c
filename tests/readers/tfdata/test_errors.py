"""What stands in an error that TensorFlow raises while it reads, and in the same one without it."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest
import tensorflow as tf

import readers
from readers.files.files import StoreError
from readers.shards.records import Records
from tests.support.datasets import SIGNALS, damage, signals, write_dataset, write_numbers

# A folder whose name TensorFlow's Assert would show otherwise.
FOLDER = "o'größe"

NUMBERS = {"split": "train", "batch_size": 4}
SIGNAL = {"split": "train", "batch_size": 2}

WAYS = {
    "transformed": {**NUMBERS, "transform": lambda batch, keys: batch},
    "buckets": {**SIGNAL, "batching": readers.Padded(buckets=[4])},
    "packed": {**SIGNAL, "batching": readers.Packed(10), "columns": ["signal"]},
}


def damaged(directory, way):
    """A dataset with one damaged record, and the beginning of the line that names it."""
    if way["batch_size"] == NUMBERS["batch_size"]:
        dataset = write_numbers(directory)
    else:
        dataset = write_dataset(directory, SIGNALS, {"train": [signals([3, 1]), signals([2, 5])]})
    (shard,) = dataset.glob("train-00001-*.tfrecord")
    (byte,) = damage(shard, 1)
    return dataset, f"{shard}: record 1 at byte {byte} fails its CRC32C: "


def line_of(error):
    """The line of an error's text that is not TensorFlow's."""
    text = str(error)
    assert "Traceback" not in text and "readers/" not in text
    before, line, after = text.partition("\t [[{{node reading_failed}}]]")[0].rsplit("\n", 2)
    assert before.endswith(": ") and not after
    return line


@pytest.mark.slow(base=["transformed", "buckets"])
@pytest.mark.parametrize("way", WAYS)
def test_the_line_of_an_error_stands_alone_and_unchanged(tmp_path, way):
    dataset, begin = damaged(tmp_path / FOLDER, WAYS[way])
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(readers.load(dataset, **WAYS[way]))
    assert line_of(error.value).startswith(begin)
    with pytest.raises(readers.CorruptRecordError) as without:
        list(readers.as_numpy(dataset, **WAYS[way]))
    assert line_of(error.value) == str(without.value)


def test_the_line_stands_alone_in_errors_of_graphs(tmp_path):
    dataset, begin = damaged(tmp_path / FOLDER, NUMBERS)
    ds = readers.load(dataset, **NUMBERS)

    @tf.function
    def total():
        found = tf.constant(0, tf.int64)
        for batch in ds:
            found += tf.reduce_sum(batch["id"])
        return found

    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        total()
    assert line_of(error.value).startswith(begin)


def test_other_errors_stand_alone_too(tmp_path, monkeypatch):
    dataset = write_dataset(tmp_path / FOLDER, SIGNALS, {"train": [signals([1, 2, 3])]})
    schema = readers.Schema({"signal": ("float32", (4, 2)), "label": ("int64", ())})
    shard = dataset / "train-00000-of-00001.tfrecord"
    for how, expected in (
        ({"schema": schema}, f"{shard}: record 0 at byte 0: feature 'signal' (float32 [4, 2], "),
        ({"batching": "padded"}, "gs://b/a: the store answered 503, twice"),
        ({"batching": "padded"}, f"[Errno 2] No such file or directory: {str(shard)!r}"),
    ):
        ds = readers.load(dataset, batch_size=2, **how)
        with monkeypatch.context() as patch, pytest.raises(tf.errors.OpError) as error:
            if "store" in expected:
                failure = StoreError("gs://b/a: the store answered 503,\ntwice")
                patch.setattr(Records, "batches", Mock(side_effect=failure))
            elif "Errno" in expected:
                shard.unlink()
            list(ds)
        assert line_of(error.value).startswith(expected)


def test_an_error_holds_file_record_and_offset(tmp_path):
    dataset, begin = damaged(tmp_path, NUMBERS)
    for read in (
        lambda: list(readers.as_numpy(dataset, **NUMBERS)),
        lambda: readers.RecordSource(dataset, "train")[6],
        lambda: readers.RecordSource(dataset, "train").__getitems__(range(20)),
        lambda: list(readers.jax_batches(dataset, columns=["id"], **NUMBERS)),
    ):
        with pytest.raises(readers.CorruptRecordError) as error:
            read()
        found = error.value
        assert str(found).startswith(f"{found.file}: record {found.record} at byte {found.offset} ")
        assert str(found).startswith(begin)


def test_a_pass_in_which_a_step_failed_ends(tmp_path, monkeypatch, caplog):
    dataset, _ = damaged(tmp_path, NUMBERS)
    # It raises an error, again and again, if there are fewer batches than it was told.
    monkeypatch.setattr(
        tf.data.experimental, "assert_cardinality", lambda _: lambda batches: batches
    )
    batches = list(readers.load(dataset, **NUMBERS).ignore_errors())
    assert [batch["id"].numpy()[0] for batch in batches] == [0, 8, 12, 16]
    lengths = [3, 1, 5, 6, 2, 2, 7]
    runs = write_dataset(tmp_path / "runs", SIGNALS, {"train": [signals(lengths)]})
    damage(runs / "train-00000-of-00001.tfrecord", 3)
    batches = list(readers.load(runs, **WAYS["buckets"]).ignore_errors())
    assert [batch["label"].numpy().tolist() for batch in batches] == [[0, 1], [4, 5], [6]]
    caplog.clear()
    batches = readers.load(runs, 9, batching=readers.Padded(buckets=[4]), remainder="drop")
    assert list(batches.ignore_errors()) == []
    assert caplog.messages[0].startswith("train: this pass ends early: train has 7 records, too")


ENDS = """
import sys, threading, time
import readers
from readers.batches.batch_slice import BatchSlice
from readers.tfdata import feed

batches = readers.load(sys.argv[1], split="train", batch_size=4, repeat=None, transform=lambda b, k: b)
iterator = iter(batches.ignore_errors().prefetch(10**6))
next(iterator)
begun, feed._LONGEST_END = threading.Event(), 0.1
BatchSlice.arrays = lambda *arguments: begun.set() or {work}
begun.wait()
"""

ENDLESS = {"waits": "time.sleep(1000)", "computes": "any(0 for _ in iter(int, 1))"}


@pytest.mark.slow(base=["waits"])
@pytest.mark.parametrize("way", ENDLESS)
def test_a_program_ends_while_an_iterator_that_ignores_errors_waits_for_a_batch(tmp_path, way):
    command = [sys.executable, "-c", ENDS.format(work=ENDLESS[way]), str(write_numbers(tmp_path))]
    done = subprocess.run(command, timeout=60, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()[-500:]
