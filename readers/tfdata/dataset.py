"""The `tf.data.Dataset` of `readers.load`: read by index, or as streams."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from readers.batches.batch_format import BatchFormat, is_number, plain
from readers.batches.by_length.batches import open_by_length
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.orders import schedule_of, shuffle_window
from readers.batches.planning import make_plan
from readers.batches.stream import state_after
from readers.decoders.record_work import RecordFunction
from readers.files.local import is_local
from readers.format.schema import Schema
from readers.order.state import State
from readers.shards.plan import Paths, Plan

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.tfdata.from_index import dataset_by_length, dataset_by_step
from readers.tfdata.from_streams import can_stream, dataset_from_streams
from readers.tfdata.handle import DatasetHandle
from readers.tfdata.packed_plan import PackedPlan
from readers.tfdata.records.mapped import RecordMap

# What each dataset was opened with: (path, split, schema, columns), the plan and the options. They
# keep no file open.
_OPENED: weakref.WeakKeyDictionary[tf.data.Dataset, tuple[Any, Plan, ReadOptions]]
_OPENED = weakref.WeakKeyDictionary()


def open_dataset(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    options: ReadOptions,
    function: RecordFunction | None,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None,
) -> tf.data.Dataset:
    """The dataset of `readers.load`, which takes the same arguments; `function` is its `map`."""
    what = path_or_files, split, schema, columns
    any_order = options.shuffle and options.by_index
    is_counted = options.by_index or options.shard[1] > 1
    maps: list[RecordMap] = []

    def planned(options: ReadOptions, counted: bool) -> tuple[Plan, ReadOptions]:
        return make_plan(*what, options, counted, any_order, mapped=mapped if function else None)

    def mapped(decoded: Schema) -> Schema:
        if not maps and function:
            maps.append(RecordMap(function, decoded, options.map_schema))
        return maps[0].schema

    plan, options = planned(options, is_counted)
    streamable = can_stream(plan, options)
    if plan.records is None and not streamable:
        plan, options = planned(options, True)
    options = _with_order(plan, options)
    if plan.records is None and (options.start_step or options.state):
        # Only now: counted records change the order, and a run must resume in the one it began in.
        plan, options = planned(options, True)
    batches = _batches(plan, options, options.by_index or not streamable, maps[0] if maps else None)
    if transform is not None:
        batches = batches.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if options.as_supervised is not None:
        names = options.as_supervised
        batches = batches.map(lambda batch: tuple(batch[name] for name in names))
    found = batches.prefetch(tf.data.AUTOTUNE).with_options(_distribution(options))
    _OPENED[found] = what, plan, options
    return found


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
    (path, split, schema, columns), plan, options = opened
    if plan.records is None:
        plan, options = make_plan(path, split, schema, columns, options, True, False)
    by_length = open_by_length(plan, options)
    if by_length:
        end = None if options.next_epochs else by_length.bounds_of(0)[1]
        return state_after(by_length, steps, options.seed, end)
    part, schedule, order = schedule_of(plan, options)
    if not options.next_epochs and schedule.steps is not None and steps > schedule.steps:
        raise ValueError(f"steps={steps}: there are {schedule.steps} batches in a pass")
    epoch, place = schedule.after(steps)
    return State(epoch, place, options.seed or 0, order, part.digest)


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


def _with_order(plan: Plan, options: ReadOptions) -> ReadOptions:
    """The options with the order to read a plan in, and with the size of its shuffle windows.

    Without `order=`, it is `global` if all shards are local or in the cache, not GZIP, and their
    records counted.
    """
    order = options.order
    if order is None:
        cached = options.cache.cacheable(plan.parts) if options.cache else ()
        on_disk = all(is_local(part.path) or part.path in cached for part in plan.parts)
        suits_index = plan.records is not None and not plan.gzipped and on_disk
        order = "global" if suits_index else "interleave"
    options = replace(options, order=order)
    return replace(options, window=shuffle_window(plan, options))


# None of these functions needs AutoGraph, which takes 2 s of the first batch to find that out.
@tf.autograph.experimental.do_not_convert
def _batches(
    plan: Plan, options: ReadOptions, by_index: bool, record_map: RecordMap | None
) -> tf.data.Dataset:
    """The batches of a plan, with their number if it is known."""
    if plan.records is None:
        return dataset_from_streams(plan, options, None, record_map)
    finish, read = None, options
    if record_map:
        # Records stay whole until they are mapped.
        whole = replace(BatchFormat("ragged"), max_length=options.format.max_length)
        whole = replace(whole, bucket_boundaries=options.format.bucket_boundaries)
        read = replace(options, format=whole, keys=True, truncates=False)
        finish = functools.partial(record_map.batch, options=options)
    by_length = open_by_length(plan, read)
    packed = PackedPlan(plan)
    if by_length:
        # Reopened batches start after `start_step` at once, without reading those steps again.
        begin = by_length.state(by_length.begin, options.seed or 0)
        again = replace(read, start_step=0, state=begin)
        handle = DatasetHandle(by_length, lambda: open_by_length(packed(), again))
        batches = dataset_by_length(handle, plan.schema, read, finish)
        return batches if options.repeat else _counted(batches, tf.data.INFINITE_CARDINALITY)
    if by_index:
        by_step = BatchesByStep(plan, read)
        schedule = by_step.schedule
        handle_by_step = DatasetHandle(by_step, lambda: BatchesByStep(packed(), read))
        batches = dataset_by_step(handle_by_step, plan.schema, read, finish)
    else:
        part, schedule, _ = schedule_of(plan, options)
        batches = dataset_from_streams(part, options, schedule, record_map)
    if schedule.steps is None:
        return _counted(batches, tf.data.INFINITE_CARDINALITY)
    # The first pass of a resumed run is shorter than later ones, so it has no single cardinality.
    return _counted(batches, schedule.steps) if schedule.after(0) == (0, 0) else batches


def _counted(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    return batches.apply(tf.data.experimental.assert_cardinality(count))
