"""The pipeline of TensorFlow's tutorials on the same shards: parse a record, parse its tensor, batch.

It follows the guide "Better performance with the tf.data API": a parallel map, interleaved files if
the order does not matter, shuffling before parsing, and prefetching at the end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf
from reading import Reader, Task
from records import BATCH, SHUFFLE_BUFFER, Kind


def _parse(kind: Kind, record: tf.Tensor) -> dict[str, tf.Tensor]:
    example = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.string)})
    # Batching requires a static shape.
    return {"x": tf.ensure_shape(tf.io.parse_tensor(example["x"], kind.dtype), kind.shape)}


def batched(dataset: tf.data.Dataset, task: Task) -> tf.data.Dataset:
    """Returns repeated, prefetched batches of records."""
    batch: Any = {
        "dense": dataset.batch,
        "padded": dataset.padded_batch,
        "ragged": dataset.ragged_batch,
    }[task.batching]
    return batch(BATCH).repeat(task.epochs).prefetch(tf.data.AUTOTUNE)


def _open(task: Task) -> tf.data.Dataset:
    files = sorted(str(path) for path in task.store.rglob("*.tfrecord"))
    if task.shuffle:
        paths = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files), seed=0)
        records = paths.interleave(
            tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        records = records.shuffle(SHUFFLE_BUFFER, seed=0)
    else:
        records = tf.data.TFRecordDataset(files)
    parse = partial(_parse, task.kind)
    return batched(records.map(parse, num_parallel_calls=tf.data.AUTOTUNE), task)


READER = Reader(modes={"tf.data by record": _open})
