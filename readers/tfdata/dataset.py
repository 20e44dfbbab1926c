"""The `tf.data.Dataset` of `readers.load`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from typing import Any

from readers.batches.batch_format import is_number, plain
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.planning import plan_of
from readers.batches.stream import open_batches, state_after
from readers.order.state import State

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.tfdata.batch_calls import FIRST_PLACE, BatchCalls
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.errors import NO_ERROR, unless_failed
from readers.tfdata.python_calls import PythonFunction, of_shapes

# What each dataset calls, and with it files, for as long as it exists; iterators keep their dataset.
_OPENED: weakref.WeakKeyDictionary[tf.data.Dataset, tuple[BatchCalls, PythonFunction]]
_OPENED = weakref.WeakKeyDictionary()


def in_strategy() -> bool:
    """Whether this is the scope of a `tf.distribute` strategy."""
    return bool(tf.distribute.has_strategy())


def open_dataset(arguments: Mapping[str, Any]) -> tf.data.Dataset:
    """The dataset of `readers.load`, from its arguments by name."""
    plan, options = plan_of(arguments)
    bridge, transform = TensorBridge(plan.schema, options), arguments["transform"]
    calls = BatchCalls(open_batches(plan, options), bridge)
    function = PythonFunction(calls.read, calls.specs)
    batches = _batches(function, calls, bridge)
    if transform is not None:
        batches = batches.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if options.as_supervised is not None:
        names = options.as_supervised
        batches = batches.map(lambda batch: tuple(batch[name] for name in names))
    dataset = batches.prefetch(tf.data.AUTOTUNE).with_options(_options(options))
    _OPENED[dataset] = calls, function
    return dataset


# None of these functions needs AutoGraph, which takes 2 s of the first batch to find that out.
@tf.autograph.experimental.do_not_convert
def _batches(function: PythonFunction, calls: BatchCalls, bridge: TensorBridge) -> tf.data.Dataset:
    """The batches of the passes of `calls`, with their number if it is known.

    The place of an iterator is the state of a scan over calls, which a checkpoint holds.
    """
    width = len(bridge.specs)

    def call(state: tuple[tf.Tensor, ...], _: tf.Tensor) -> tuple[Any, Any]:
        tensors = function(state)
        error, count, place, name = of_shapes(tensors[:4], calls.specs[:4])
        # A dataset of the batches: the tensors of all batches would pass from function to function.
        ends = range(4 + width, len(tensors) + 1, width)
        several = [tf.data.Dataset.from_tensors(tuple(tensors[end - width : end])) for end in ends]
        return (place, name), (error, count, functools.reduce(tf.data.Dataset.concatenate, several))

    def goes_on(error: tf.Tensor, count: tf.Tensor, _: tf.data.Dataset) -> tf.Tensor:
        return (error != NO_ERROR) | (count > 0)

    def unless_it_failed(error: tf.Tensor, count: tf.Tensor, batches: Any) -> tf.data.Dataset:
        return batches.take(*unless_failed(error, [count]))

    state = tf.constant(FIRST_PLACE), tf.constant(0, tf.int64)
    several = tf.data.Dataset.counter().scan(state, call).prefetch(1).take_while(goes_on)
    batches = several.flat_map(unless_it_failed).map(lambda *tensors: bridge.batch(tensors))
    steps = _steps(calls)
    if steps is None:
        return batches
    return batches.apply(tf.data.experimental.assert_cardinality(steps))


def _steps(calls: BatchCalls) -> int | None:
    """The number of batches in each pass; None if it is unknown, or not the same."""
    batches = calls.batches
    if batches.options.repeat is None:
        return tf.data.INFINITE_CARDINALITY
    # The first pass of a resumed run is shorter than later ones.
    if isinstance(batches, BatchesByStep) and batches.schedule.after(0) == (0, 0):
        return batches.schedule.steps
    return None


def _options(options: ReadOptions) -> tf.data.Options:
    """How a `tf.distribute` strategy of several hosts shares the batches, and what a checkpoint may leave out.

    By files, which is its default, a strategy cannot share them: the files are not at the source of the dataset.
    """
    policy = tf.data.experimental.AutoShardPolicy
    chosen = tf.data.Options()
    # Hosts that `shard` separates have records of their own already.
    shared = options.shard[1] > 1
    chosen.experimental_distribute.auto_shard_policy = policy.OFF if shared else policy.DATA
    # A transform may draw random numbers.
    ignore = tf.data.experimental.ExternalStatePolicy.IGNORE
    chosen.experimental_external_state_policy = ignore
    return chosen


def state_of(dataset: tf.data.Dataset, steps: int) -> State:
    """See `readers.state_of`."""
    steps = plain(steps)
    if not is_number(steps, 0):
        raise ValueError(f"steps={steps!r}: expected a number of batches of at least 0")
    opened = _OPENED.get(dataset) if isinstance(dataset, tf.data.Dataset) else None
    if opened is None:
        raise ValueError(
            f"{type(dataset).__name__} is no dataset as readers.load returns it: keep that one for "
            "state_of, and train on what you make of it"
        )
    batches = opened[0].batches
    return state_after(batches, steps, batches.options)
