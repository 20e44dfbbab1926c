"""A `map` that runs in the thread that asks for the next element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_in_own_thread(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Maps a function over a dataset; ends when an operation of the function is out of range.

    `Dataset.map` passes calls to a thread pool, whose threads look for more work after each call: that takes a third as
    much processor time as reading. It has no argument to avoid this, but its operation has.

    The elements of the dataset are single tensors; the function returns a structure of tensors.
    """
    specs = list[Any]()

    def flat(element: tf.Tensor) -> list[tf.Tensor]:
        results = function(element)
        specs.append(tf.nest.map_structure(tf.type_spec_from_value, results))
        return [_encoded(result) for result in tf.nest.flatten(results)]

    traced = tf.function(flat, autograph=False).get_concrete_function(dataset.element_spec)
    variant = tf.raw_ops.MapDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        other_arguments=traced.captured_inputs,
        f=traced,
        output_types=[tensor.dtype for tensor in traced.outputs],
        output_shapes=[tensor.shape for tensor in traced.outputs],
        use_inter_op_parallelism=False,
        preserve_cardinality=False,
    )
    return tf.data.experimental.from_variant(variant, specs[-1])


def _encoded(tensor: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
    """The form in which a dataset's elements hold a tensor."""
    if isinstance(tensor, tf.RaggedTensor):
        return tf.raw_ops.RaggedTensorToVariant(
            rt_nested_splits=tensor.nested_row_splits,
            rt_dense_values=tensor.flat_values,
            batched_input=False,
        )
    return tensor
