"""The permutations of `readers.order.permutation`, computed by TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from readers.order.permutation import permuted, round_keys


def shift(value: Any, bits: int) -> Any:
    """A number or an int64 tensor, shifted to the right."""
    if isinstance(value, int):
        return value >> bits
    return tf.bitwise.right_shift(value, tf.constant(bits, tf.int64))


def whole_permutation(size: tf.Tensor, key: list[Any]) -> tf.Tensor:
    """All values of a `Permutation` of 0 to size - 1, int64 [size]."""
    return _permuted(size, tf.stack([tf.convert_to_tensor(part, tf.int64) for part in key]))


# Hundreds of operations: as a function they are traced once, not for every dataset.
@tf.function(autograph=False)
def _permuted(size: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    keys = round_keys(tf.unstack(key), shift)
    width = tf.cast(tf.sqrt(tf.cast(tf.maximum(size - 1, 0), tf.float64)), tf.int64) + 1

    def again(numbers: tf.Tensor, beyond: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.where(beyond, permuted(numbers, size, width, keys, shift), numbers)
        return found, found >= size

    numbers = tf.range(size)
    beyond = tf.ones_like(numbers, tf.bool)
    return tf.while_loop(lambda _, beyond: tf.reduce_any(beyond), again, (numbers, beyond))[0]
