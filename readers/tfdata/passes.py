"""Numbers the passes over a dataset: Keras makes one per epoch, and each has its own order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from readers.tfdata.python_calls import of_shapes, python_call
from readers.tfdata.records.errors import unless_failed


def once_per_pass(element: Callable[[], Any]) -> tf.data.Dataset:
    """A dataset of one element, computed anew in each pass over the dataset.

    A checkpoint of an iterator holds the element, and need not hold what computed it.
    """
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return tf.data.Dataset.from_tensors(0).map(lambda _: element()).with_options(options)


def bounds_of_each_pass(
    bounds: Callable[[int], list[Any]], specs: list[tf.TensorSpec], next_epochs: bool
) -> tf.data.Dataset:
    """A dataset of one element: the bounds of the pass over it.

    Args:
        bounds: The arrays of a pass, by its number from 0 on.
        specs: The specs of these arrays.
        next_epochs: Whether passes have consecutive numbers; otherwise all of them are pass 0.
    """
    numbers = itertools.count() if next_epochs else itertools.repeat(0)

    def found() -> tuple[tf.Tensor, ...]:
        failed, tensors = python_call(lambda: bounds(next(numbers)), [], specs, stateful=True)
        return tuple(of_shapes(unless_failed(failed, tensors), specs))

    return once_per_pass(found)


def epochs_of_each_pass(
    first: tf.data.Dataset | None,
    whole: Callable[[tf.Tensor], tf.data.Dataset],
    epoch: int,
    repeat: int,
    next_epochs: bool,
) -> tf.data.Dataset:
    """The epochs of each pass; a pass ends after an epoch whose number `repeat` divides.

    Args:
        first: The rest of the epoch in which the first pass begins; None if it begins with a whole
            one.
        whole: A whole epoch, by its number, int64 [].
        epoch: The number of the epoch in which the first pass begins.
        repeat: The number of epochs in a pass.
        next_epochs: Whether each pass reads the epochs after those of the pass before.
    """
    begin = tf.constant(epoch if first is None else epoch + 1, tf.int64)
    end = (epoch // repeat + 1) * repeat

    def one_pass(number: tf.Tensor) -> tf.data.Dataset:
        is_first = number == 0
        epochs = tf.where(is_first, begin, end + (number - 1) * repeat), end + number * repeat
        later = tf.data.Dataset.range(*epochs).flat_map(whole)
        if first is None:
            return later
        return first.take(tf.where(is_first, tf.constant(-1, tf.int64), 0)).concatenate(later)

    if not next_epochs:
        return one_pass(tf.constant(0, tf.int64))
    passes = tf.Variable(-1, dtype=tf.int64, trainable=False)
    return once_per_pass(lambda: passes.assign_add(1)).flat_map(one_pass)
