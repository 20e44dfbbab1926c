"""A `tf.function` that takes batches, as Keras does: no batch becomes an object of Python."""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

_TOGETHER = 20  # batches in a call


def read_in_graph(
    dataset: tf.data.Dataset, feature: str = "label", together: int = _TOGETHER
) -> Iterator[int]:
    """Yields the number of records that each call of the function has taken.

    Args:
        dataset: The batches.
        feature: The one whose records are counted, which is not ragged.
        together: Batches in a call.
    """
    batches = iter(dataset)

    @tf.function
    def take() -> tf.Tensor:
        count = tf.constant(0, tf.int64)
        for _ in tf.range(together):
            batch = next(batches)
            count += tf.shape(batch[feature], tf.int64)[0]
        return count

    while True:
        yield int(take())
