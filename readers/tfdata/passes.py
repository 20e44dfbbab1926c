"""Numbers the passes over a dataset: Keras makes one per epoch, and each has its own order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from readers.tfdata.errors import unless_failed
from readers.tfdata.python_calls import PythonFunction, of_shapes


def once_per_pass(element: Callable[[], Any]) -> tf.data.Dataset:
    """A dataset of one element, computed anew in each pass over the dataset.

    A checkpoint of an iterator holds the element, and need not hold what computed it.
    """
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return tf.data.Dataset.from_tensors(0).map(lambda _: element()).with_options(options)


def bounds_of_each_pass(
    bounds: Callable[[int], list[Any]], specs: list[tf.TensorSpec]
) -> tuple[tf.data.Dataset, PythonFunction]:
    """A dataset of one element, the bounds of the pass over it; and what it calls.

    Args:
        bounds: The arrays of a pass, by its number from 0 on.
        specs: The specs of these arrays.
    """
    numbers = itertools.count()
    function = PythonFunction(lambda: bounds(next(numbers)), specs, is_stateful=True)

    def found() -> tuple[tf.Tensor, ...]:
        failed, tensors = function([])
        return tuple(of_shapes(unless_failed(failed, tensors), specs))

    return once_per_pass(found), function
