"""The pipeline of TensorFlow's tutorials on the same shards: parse a record, parse its tensor, batch.

As the guide "Better performance with the tf.data API" has it: a parallel map, files interleaved
where the order does not matter, shuffled before they are parsed, prefetched at the end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf
from contender import Contender, Task
from records import BATCH, Kind

BUFFER = 10_000


def _parse(kind: Kind, record: tf.Tensor) -> dict[str, tf.Tensor]:
    example = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([], tf.string)})
    # Without a shape there are no batches.
    return {"x": tf.ensure_shape(tf.io.parse_tensor(example["x"], kind.dtype), kind.shape)}


def batched(dataset: tf.data.Dataset, task: Task) -> tf.data.Dataset:
    """Batches of records, again and again, and prefetched."""
    batch: Any = {
        "dense": dataset.batch,
        "padded": dataset.padded_batch,
        "ragged": dataset.ragged_batch,
    }[task.batching]
    return batch(BATCH).repeat(task.epochs).prefetch(tf.data.AUTOTUNE)


def _open(task: Task) -> tf.data.Dataset:
    pattern = str(task.store / "*.tfrecord")
    if task.shuffle:
        records = tf.data.Dataset.list_files(pattern, shuffle=True, seed=0).interleave(
            tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        records = records.shuffle(BUFFER, seed=0)
    else:
        records = tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(pattern)))
    parse = partial(_parse, task.kind)
    return batched(records.map(parse, num_parallel_calls=tf.data.AUTOTUNE), task)


CONTENDER = Contender(ways={"tf.data by record": _open})
