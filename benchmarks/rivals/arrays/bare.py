"""The upper bound: batches of serialized records, which TensorFlow checks but nobody decodes.

One thread reads one file after another, the default of `TFRecordDataset`. The second mode adds a
shuffle buffer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from reading import Reader, Task
from records import BATCH, SHUFFLE_BUFFER
from tensorflow.core.framework import tensor_pb2


def _open(task: Task) -> tf.data.Dataset:
    files = sorted(str(path) for path in task.store.rglob("*.tfrecord"))
    records = tf.data.TFRecordDataset(files)
    if task.shuffle:
        records = records.shuffle(SHUFFLE_BUFFER, seed=0)
    return records.batch(BATCH).repeat(task.epochs)


def _rows(batch: Any) -> list[np.ndarray]:
    found = []
    for record in batch.numpy():
        feature = tf.train.Example.FromString(record).features.feature["x"]
        proto = tensor_pb2.TensorProto.FromString(feature.bytes_list.value[0])
        found.append(tf.make_ndarray(proto))
    return found


READER = Reader(modes={"bare TFRecordDataset": _open, "bare, shuffled": _open}, rows=_rows)
