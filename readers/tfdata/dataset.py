"""The `tf.data.Dataset` of `readers.load`."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from readers.batches.batch_format import Ragged, is_number, plain
from readers.batches.by_length.batches import BatchesByLength
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.planning import plan_of
from readers.batches.stream import open_batches
from readers.format.schema import Schema
from readers.order.state import State
from readers.shards.plan import Plan

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.tfdata.from_index import dataset_by_length, dataset_by_step
from readers.tfdata.mapped import RecordMap

# The plan and the options of each dataset, which keep no file open.
_OPENED: weakref.WeakKeyDictionary[tf.data.Dataset, tuple[Plan, ReadOptions]]
_OPENED = weakref.WeakKeyDictionary()


def in_strategy() -> bool:
    """Whether this is the scope of a `tf.distribute` strategy."""
    return bool(tf.distribute.has_strategy())


def open_dataset(arguments: Mapping[str, Any]) -> tf.data.Dataset:
    """The dataset of `readers.load`, from its arguments by name."""
    maps: list[RecordMap] = []
    function, transform = arguments["map"], arguments["transform"]

    def mapped(decoded: Schema) -> Schema:
        maps.append(RecordMap(function, decoded))
        return maps[0].schema

    plan, options = plan_of(arguments, mapped=mapped if function else None)
    batches = _batches(plan, options, maps[0] if maps else None)
    if transform is not None:
        batches = batches.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if options.as_supervised is not None:
        names = options.as_supervised
        batches = batches.map(lambda batch: tuple(batch[name] for name in names))
    dataset = batches.prefetch(tf.data.AUTOTUNE).with_options(_distribution(options))
    _OPENED[dataset] = plan, options
    return dataset


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
    return open_batches(*opened).state_after(steps)


def _distribution(options: ReadOptions) -> tf.data.Options:
    """How a `tf.distribute` strategy of several hosts shares the batches.

    By files, which is its default, it cannot: the files are not at the source of the dataset.
    """
    policy = tf.data.experimental.AutoShardPolicy
    chosen = tf.data.Options()
    # Hosts that `shard` separates have records of their own already.
    shared = options.shard[1] > 1
    chosen.experimental_distribute.auto_shard_policy = policy.OFF if shared else policy.DATA
    return chosen


# None of these functions needs AutoGraph, which takes 2 s of the first batch to find that out.
@tf.autograph.experimental.do_not_convert
def _batches(plan: Plan, options: ReadOptions, record_map: RecordMap | None) -> tf.data.Dataset:
    """The batches of a plan, with their number if it is known."""
    finish, read = None, options
    if record_map:
        # Records stay whole until they are mapped.
        whole = Ragged(options.format.max_length, buckets=options.format.buckets)
        read = replace(options, format=whole, keys=True, truncates=False)
        finish = functools.partial(record_map.batch, options=options)
    source = open_batches(plan, read)
    if isinstance(source, BatchesByLength):
        batches = dataset_by_length(source, plan.schema, read, finish)
        return batches if options.repeat else _counted(batches, tf.data.INFINITE_CARDINALITY)
    assert isinstance(source, BatchesByStep)
    schedule, batches = source.schedule, dataset_by_step(source, plan.schema, read, finish)
    if schedule.steps is None:
        return _counted(batches, tf.data.INFINITE_CARDINALITY)
    # The first pass of a resumed run is shorter than later ones, so it has no single cardinality.
    return _counted(batches, schedule.steps) if schedule.after(0) == (0, 0) else batches


def _counted(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    return batches.apply(tf.data.experimental.assert_cardinality(count))
