"""The `tf.data.Dataset` of `readers.load`."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from readers.batches.batch_format import check_number, plain
from readers.batches.batch_source import BatchSource
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.batches.planning import plan_of
from readers.batches.reading import batches_from
from readers.batches.stream import open_batches
from readers.order.state import Cursor, State

try:
    import tensorflow as tf
except ModuleNotFoundError:
    raise ImportError(
        "readers.load needs TensorFlow: pip install 'beam-shards[tensorflow]'"
    ) from None

from readers.tfdata.bridge import TensorBridge
from readers.tfdata.feed import Batch, Feed
from readers.tfdata.own_thread import map_in_own_thread

_LOGGER = logging.getLogger("readers")

# The source of each dataset, as long as the dataset exists; iterators keep their dataset.
_OPENED = weakref.WeakKeyDictionary[tf.data.Dataset, tuple[BatchSource, Feed]]()


def open_dataset(arguments: Mapping[str, Any]) -> tf.data.Dataset:
    """Makes the dataset of `readers.load` from its arguments by name."""
    if arguments["shard"] is None and tf.distribute.has_strategy():
        arguments = {**arguments, "shard": (0, 1)}  # The strategy divides the batches.
    source, feed, batches = _open(arguments)
    options, transform = source.options, arguments["transform"]
    if transform is not None:
        batches = batches.map(transform, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if options.as_supervised is not None:
        names = options.as_supervised
        batches = batches.map(lambda batch: tuple(batch[name] for name in names))
    dataset = batches.with_options(_options(options))
    _OPENED[dataset] = source, feed
    return dataset


# AutoGraph would add 2 s to the first batch, although none of these functions needs it, and cannot convert all of them.
@tf.autograph.experimental.do_not_convert
def _open(arguments: Mapping[str, Any]) -> tuple[BatchSource, Feed, tf.data.Dataset]:
    """Returns the source of a dataset, its feed, and its batches, with their number if it is known.

    A checkpoint of an iterator stores the number of its pass and of its next batch.
    """
    plan, options = plan_of(arguments)
    source, bridge = open_batches(plan, options), TensorBridge(plan.schema, options)
    feed = Feed(functools.partial(_read_pass, source, bridge), bridge.specs)

    def one_pass(of_pass: tf.Tensor) -> tf.data.Dataset:
        return map_in_own_thread(
            tf.data.Dataset.range(tf.int64.max),  # The feed ends a pass.
            lambda number: bridge.batch(feed.batch(of_pass, number)),
        )

    batches = tf.data.Dataset.from_tensors(0).map(lambda _: feed.begin()).flat_map(one_pass)
    steps = _steps(source)
    if steps is not None:
        batches = batches.apply(tf.data.experimental.assert_cardinality(steps))
    return source, feed, batches


def _read_pass(
    batches: BatchSource, bridge: TensorBridge, of_pass: int, number: int, after_error: bool
) -> Iterator[Batch]:
    """Yields the batches of a pass from a number on. If `after_error` its place is unknown, the pass ends."""
    cursor, end = batches.bounds_of(of_pass)
    try:
        first, _ = batches.after(cursor, number, None)
    except Exception as error:
        if not after_error:
            raise
        _LOGGER.warning("%s: this pass ends early: %s", batches.plan.name, error)
        return
    for arrays, _ in batches_from(batches, bridge.arrays, (first, 0), end):
        yield arrays
        del arrays  # Its memory can be used again while the next one is read.


def _steps(batches: BatchSource) -> int | None:
    """The number of batches in each pass; None if it is unknown, or differs between passes."""
    if batches.options.repeat is None:
        return tf.data.INFINITE_CARDINALITY
    # The first pass of a resumed run is shorter than later ones.
    if isinstance(batches, BatchesByStep) and batches.bounds_of(0)[0] == Cursor():
        return batches.batches_of_pass()
    return None


def _options(options: ReadOptions) -> tf.data.Options:
    """How a `tf.distribute` strategy of several hosts shares the batches, and what a checkpoint may leave out.

    A strategy cannot share files, which is its default, because the source of this dataset is not a list of files.
    """
    policy = tf.data.experimental.AutoShardPolicy
    chosen = tf.data.Options()
    # Hosts that `shard` separates already read different records.
    shared = options.shard[1] > 1
    chosen.experimental_distribute.auto_shard_policy = policy.OFF if shared else policy.DATA
    # A transform may draw random numbers, and the number of a pass is in the checkpoint.
    ignore = tf.data.experimental.ExternalStatePolicy.IGNORE
    chosen.experimental_external_state_policy = ignore
    return chosen


def state_of(dataset: tf.data.Dataset, steps: int) -> State:
    """See `readers.state_of`."""
    steps = check_number("steps", plain(steps), 0)
    opened = _OPENED.get(dataset) if isinstance(dataset, tf.data.Dataset) else None
    if opened is None:
        raise ValueError(
            f"{type(dataset).__name__} is not a dataset that readers.load returned: keep that one for "
            "state_of, and train on the dataset made from it"
        )
    return opened[0].state_after(steps)
