"""tf.data by hand, on this project's shards, at its best: whole batches are parsed wherever that is possible.

It follows the guide "Better performance with the tf.data API": interleaved files, shuffling before parsing,
vectorised parallel maps, and prefetching at the end. A tensor of unknown size, as of the recordings, can only be
parsed record by record.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf
from reading import Reader, Task
from records import BATCH, SHUFFLE_BUFFER
from rivals.arrays.in_graph import read_in_graph

_ONE_TEXT = tf.io.FixedLenFeature([], tf.string)
_SPECS = {
    "image": _ONE_TEXT,
    "signal": _ONE_TEXT,
    "key": _ONE_TEXT,
    "text": _ONE_TEXT,
    "label": tf.io.FixedLenFeature([], tf.int64),
    "tokens": tf.io.RaggedFeature(tf.int64),
}
_OF_KIND = {"pixels": ["image"], "recordings": ["signal"], "tokens": ["text", "tokens"]}


def _parse_record(specs: dict[str, Any], record: tf.Tensor) -> dict[str, tf.Tensor]:
    example = tf.io.parse_single_example(record, specs)
    signal = tf.io.parse_tensor(example["signal"], tf.float32)
    return {**example, "signal": tf.ensure_shape(signal, [None, 6])}


def _parse_batch(specs: dict[str, Any], batching: str, records: tf.Tensor) -> dict[str, Any]:
    batch = tf.io.parse_example(records, specs)
    if "image" in batch:
        pixels = tf.io.decode_raw(batch["image"], tf.uint8)
        batch["image"] = tf.reshape(pixels, [-1, 64, 64, 3])
    if "tokens" in batch and batching == "padded":
        batch["tokens"] = batch["tokens"].to_tensor()
    return batch


def _open(task: Task) -> tf.data.Dataset:
    every = [*_OF_KIND[task.kind.name], "key", "label"]
    specs = {name: _SPECS[name] for name in task.kind.names(task.columns, every)}
    names = sorted(str(path) for path in task.store.resolve().rglob("*.tfrecord"))
    paths = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed=0)
    # On a local disk, blocks of records through a large buffer take half of the time of a parallel interleave.
    files = partial(tf.data.TFRecordDataset, buffer_size=1 << 20)
    records = paths.interleave(files, cycle_length=8, block_length=16)
    records = records.shuffle(SHUFFLE_BUFFER, seed=0)
    if task.kind.name == "recordings":
        parsed = records.map(partial(_parse_record, specs), num_parallel_calls=tf.data.AUTOTUNE)
        batch = parsed.padded_batch if task.batching == "padded" else parsed.ragged_batch
        return batch(BATCH).repeat(task.epochs).prefetch(tf.data.AUTOTUNE)
    batches = records.batch(BATCH).repeat(task.epochs)
    parse = partial(_parse_batch, specs, task.batching)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _in_graph(task: Task) -> Any:
    return read_in_graph(_open(task))


READER = Reader(modes={"tf.data, loop": _open, "tf.data, graph": _in_graph})
