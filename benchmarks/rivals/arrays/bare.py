"""The cost of TensorFlow itself: one batch of this project, repeated."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from ours_arrays import READER as OURS
from reading import Reader, Task
from rivals.arrays.in_graph import read_in_graph


def _one_batch(task: Task) -> tf.data.Dataset:
    batch = next(iter(OURS.modes["load, loop"](task)))
    return tf.data.Dataset.from_tensors(batch).repeat().prefetch(tf.data.AUTOTUNE)


def _in_graph(task: Task) -> Any:
    return read_in_graph(_one_batch(task))


READER = Reader(modes={"one batch, loop": _one_batch, "one batch, graph": _in_graph})
