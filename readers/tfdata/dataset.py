"""A `tf.data.Dataset` of what `readers.load` was asked for: by index, or by streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from readers.batches.by_length import open_grouped
from readers.batches.by_step import open_stream
from readers.batches.options import ReadOptions
from readers.batches.orders import scheduled
from readers.batches.planning import planned
from readers.files.remote import local_path
from readers.format.schema import Schema
from readers.shards.plan import Paths, Plan

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.tfdata.from_index import grouped, indexed
from readers.tfdata.from_streams import streamed, tensorflow_reads
from readers.tfdata.handle import Kept


def open_dataset(
    path_or_files: Paths,
    split: str | None,
    schema: Schema | None,
    columns: Sequence[str] | None,
    options: ReadOptions,
    transform: Callable[[dict[str, Any], tf.Tensor], dict[str, Any]] | None,
) -> tf.data.Dataset:
    """The dataset of `readers.load`, whose arguments these are."""
    if options.on_corrupt == "skip":
        if options.order == "interleave":
            raise ValueError(
                "on_corrupt='skip' finds records by their index: it needs order='global'"
            )
        options = replace(options, order="global")
    if options.weights is not None:
        options = replace(options, order="global")
    by_place = options.shard[1] > 1 or options.start_step or options.state or options.by_length
    scan = options.order == "global" or bool(by_place)
    any_order = options.shuffle and (options.order == "global" or options.by_length)
    plan, options = planned(path_or_files, split, schema, columns, options, scan, any_order)
    is_streamed = tensorflow_reads(plan, options)
    if plan.records is None and not is_streamed:
        # Without their number they are read by TensorFlow alone.
        plan, options = planned(path_or_files, split, schema, columns, options, True, any_order)
    if options.order is None:
        kept = options.cache.chosen(plan.parts) if options.cache else ()
        suits = plan.records is not None and not plan.gzipped
        suits = suits and all(local_path(part.path) or part.path in kept for part in plan.parts)
        options = replace(options, order="global" if suits else "interleave")
    batches = _batches(plan, options)
    if transform is not None:
        batches = batches.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if options.as_supervised is not None:
        names = options.as_supervised
        batches = batches.map(lambda batch: tuple(batch[name] for name in names))
    return batches.prefetch(tf.data.AUTOTUNE)


# No function in there needs AutoGraph, which takes 2 s of the first batch to find that out.
@tf.autograph.experimental.do_not_convert
def _batches(plan: Plan, options: ReadOptions) -> tf.data.Dataset:
    """The batches of a plan, with their number where it is known."""
    if plan.records is None:
        return streamed(plan, options, 0, 0)
    by_length = open_grouped(plan, options)
    if by_length:
        # The steps before the first are gone through once.
        begin = by_length.state(by_length.begin, options.seed or 0)
        again = replace(options, start_step=0, state=begin)
        batches = grouped(Kept(by_length, lambda: open_grouped(plan, again)), plan.schema, options)
        return batches if options.repeat else _counted(batches, tf.data.INFINITE_CARDINALITY)
    if options.order == "global" or not tensorflow_reads(plan, options):
        stream = open_stream(plan, options)
        schedule = stream.schedule
        batches = indexed(Kept(stream, lambda: open_stream(plan, options)), plan.schema, options)
    else:
        plan, schedule, _ = scheduled(plan, options)
        batches = streamed(plan, options, schedule.epoch, schedule.place)
    if schedule.steps is None:
        return _counted(batches, tf.data.INFINITE_CARDINALITY)
    # A run that goes on has a shorter first iteration than the others.
    return _counted(batches, schedule.steps) if schedule.after(0) == (0, 0) else batches


def _counted(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
    return batches.apply(tf.data.experimental.assert_cardinality(count))
