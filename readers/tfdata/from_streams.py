"""A `tf.data` pipeline over shards read as streams: a TensorFlow graph without any Python.

It works on every filesystem that TensorFlow itself can read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.batch_format import BATCH_MASK
from readers.batches.options import ReadOptions
from readers.batches.orders import shuffle_window
from readers.batches.read_sizes import records_at_once
from readers.order.orders import BLOCK, CYCLE, SHARDS, WINDOW, InterleavedOrder
from readers.order.permutation import record_keys
from readers.order.schedule import Schedule
from readers.shards.index import read_offsets
from readers.shards.plan import Part, Plan
from readers.tfdata.batching import batch_of
from readers.tfdata.columns.column import TensorColumn, padded_columns
from readers.tfdata.decode import decode_batch
from readers.tfdata.passes import epochs_of_each_pass
from readers.tfdata.permutation import shift, whole_permutation
from readers.tfdata.records.decoders import decoded_columns, read_schema
from readers.tfdata.records.mapped import RecordMap

# The buffer of each open file, the default of TFRecordDataset.
_READ_BYTES = 256 << 10

_NO_END = tf.int64.max


def can_stream(plan: Plan, options: ReadOptions) -> bool:
    """Whether TensorFlow itself can read all files of a plan where they are.

    It reads gs://, but s3:// and hdfs:// only with a separate package that few have installed.
    """
    schemes = {_scheme_of(part.path) for part in plan.parts}
    known = set(tf.io.gfile.get_registered_schemes())
    if "STORAGE_EMULATOR_HOST" in os.environ:
        # TensorFlow cannot be pointed at an emulator of Google Cloud Storage.
        known.discard("gs")
    return schemes <= known and (options.cache is None or schemes <= {""})


def _scheme_of(path: str) -> str:
    """The part of a path before `://`; empty for a local path."""
    return path.split("://")[0] if "://" in path or "::" in path else ""


def dataset_from_streams(
    plan: Plan,
    options: ReadOptions,
    schedule: Schedule | None,
    record_map: RecordMap | None = None,
) -> tf.data.Dataset:
    """The batches of a plan, dicts by feature name.

    Args:
        plan: The part of the plan that this host reads.
        options: How to read.
        schedule: The steps of this host; None if the plan's number of records is unknown.
        record_map: A function of each record; None for none.
    """

    read, is_foreign = read_schema(plan), any(part.bytes is None for part in plan.parts)

    def decode(serialized: tf.Tensor) -> Any:
        return batch(decode_batch(serialized, read, is_foreign), tf.size(serialized))

    def batch(columns: dict[str, TensorColumn], count: tf.Tensor) -> Any:
        mask = {}
        if options.pads and options.rows is not None:
            columns = padded_columns(columns, plan.schema, options.rows, count)
            mask = {BATCH_MASK: tf.range(options.rows) < count}
        return batch_of(columns, plan.schema, options.format) | mask

    def decode_with_keys(epoch: tf.Tensor, place: tf.Tensor, serialized: tf.Tensor) -> Any:
        count, columns = tf.size(serialized), decode_batch(serialized, read, is_foreign)
        places = place + tf.range(tf.size(serialized, tf.int64))
        keys = record_keys(places, [options.seed, epoch, options.part_of_host or 0], shift)
        if plan.work:
            columns = decoded_columns(columns, keys, plan.work)
        if options.pads and options.rows is not None:
            keys = tf.pad(keys, [[0, options.rows - count]])
        keys = tf.ensure_shape(keys, [options.rows])
        if record_map:
            return record_map.batch(columns, keys, count, options)
        return (batch(columns, count), keys) if options.keys else batch(columns, count)

    with_keys = options.keys or plan.work is not None or record_map is not None
    function = decode_with_keys if with_keys else decode
    batches = _serialized_batches(plan, options, schedule, with_keys)
    return batches.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _serialized_batches(
    plan: Plan, options: ReadOptions, schedule: Schedule | None, with_keys: bool
) -> tf.data.Dataset:
    """The serialized records of each batch; with keys, after its epoch and first place."""
    size, repeat = options.batch_size, options.repeat
    assert isinstance(size, int)
    epoch, place = schedule.after(0) if schedule else (0, 0)
    count = schedule.records - schedule.absent if schedule else _NO_END
    window = shuffle_window(plan, options)
    shuffled = None
    if window and plan.parts:
        shuffled = _ShuffledStreams(plan, options.seed or 0, window, size, count)
    in_order = plan.slice(0, count) if schedule else plan

    def batched(records: tf.data.Dataset, epoch: tf.Tensor, place: int = 0) -> tf.data.Dataset:
        batches = records.rebatch(size, options.remainder == "drop")
        if schedule and schedule.steps_from(place) > -(-(count - place) // size):
            # Other hosts have one more record, and so one more batch.
            nothing = tf.constant([], tf.string)
            batches = batches.concatenate(tf.data.Dataset.from_tensors(nothing))
        if not with_keys:
            return batches
        return batches.enumerate().map(lambda step, batch: (epoch, place + step * size, batch))

    def whole(number: tf.Tensor) -> tf.data.Dataset:
        return batched(shuffled.epoch(number) if shuffled else _in_order(in_order, size), number)

    if not place:
        first = None
    elif shuffled and place < count:
        records = shuffled.rest_of_epoch(epoch, place)
        first = batched(records, tf.constant(epoch, tf.int64), place)
    else:
        records = _in_order(in_order.slice(min(place, count), count), size)
        first = batched(records, tf.constant(epoch, tf.int64), place)
    if repeat is None:
        begin = tf.constant(epoch if first is None else epoch + 1, tf.int64)
        later = tf.data.Dataset.counter(begin).flat_map(whole)
        if plan.records is None:
            # Only reading an epoch shows whether there are records to repeat.
            later = whole(begin).take(1).flat_map(lambda *_: later)
        return later if first is None else first.concatenate(later)
    return epochs_of_each_pass(first, whole, epoch, repeat, options.next_epochs)


def _in_order(plan: Plan, batch_size: int) -> tf.data.Dataset:
    """The serialized records of a plan in blocks, file after file."""
    files = _Files(plan)
    starts = np.array([_start(part, part.skip) for part in plan.parts], np.int64)
    parts = files.paths, files.compressions, starts, files.takes
    blocks = _blocks_of(plan, _block_size(plan, batch_size))
    return tf.data.Dataset.from_tensor_slices(parts).flat_map(blocks)


class _Files:
    """The parts of a plan as arrays for TensorFlow.

    Attributes:
        paths: string [parts], the file of each part.
        compressions: string [parts], how the file is compressed.
        takes: int64 [parts], how many records to take; -1 if their number is unknown.
    """

    def __init__(self, plan: Plan) -> None:
        self.paths = tf.constant([part.path for part in plan.parts], tf.string)
        gzipped = ["GZIP" if part.gzipped else "" for part in plan.parts]
        self.compressions = tf.constant(gzipped, tf.string)
        takes = [-1 if part.take is None else part.take for part in plan.parts]
        self.takes = np.array(takes, np.int64)


def _block_size(plan: Plan, most: int) -> int:
    """Records per block, a divisor of `BLOCK`.

    Each dataset that records pass one by one costs a tenth of reading them. Large records make
    blocks of one, so that none is read long before it is needed.
    """
    fitting = min(most, BLOCK, records_at_once(plan))
    return max(size for size in range(1, fitting + 1) if BLOCK % size == 0)


def _blocks_of(plan: Plan, size: int) -> Callable[..., tf.data.Dataset]:
    """A function that makes a part's (path, compression, start, take) into blocks of its records.

    `start` is a byte; in a compressed file, which has to be read from its front, it is the number
    of a record. If the plan's number of records is known, it is an error to find fewer than `take`.
    """

    def blocks(
        path: tf.Tensor, compression: tf.Tensor, start: tf.Tensor, take: tf.Tensor
    ) -> tf.data.Dataset:
        is_plain = tf.cast(compression == "", tf.int64)
        # Skips the bytes before `start` without reading them, for which the class TFRecordDataset
        # has no argument. TensorFlow cannot write this op into a graph, but can use it in the
        # function of a dataset.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[None],
            compression_type=compression,
            buffer_size=_READ_BYTES,
            byte_offsets=(start * is_plain)[None],
        )
        records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        if plan.gzipped:
            records = records.skip(start * (1 - is_plain))
        if plan.records is not None:
            counted = tf.data.experimental.assert_cardinality(take)
            records = records.take(take).apply(counted)
        return records.batch(size)

    return blocks


def _start(part: Part, row: int) -> int:
    """The `start` of `_blocks_of` for a record of a part's file."""
    if part.gzipped:
        return row
    return int(read_offsets(part)[row]) if row else 0


class _ShuffledStreams:
    """The epochs of an `InterleavedOrder`, as streams.

    Args:
        plan: What to read.
        seed: The seed of the order.
        window: Records shuffled together.
        batch_size: Records per batch.
        count: Records per epoch; those after them in its order are left out.
    """

    def __init__(self, plan: Plan, seed: int, window: int, batch_size: int, count: int) -> None:
        self._plan, self._seed, self._window, self._batch = plan, seed, window, batch_size
        self._count = count
        self._order = InterleavedOrder([part.take or 0 for part in plan.parts], seed, window)
        self._files = _Files(plan)
        self._starts = np.array([_start(part, part.skip) for part in plan.parts], np.int64)

    def epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """The records of a whole epoch, window by window."""
        count = len(self._plan.parts)
        shards = whole_permutation(tf.constant(count, tf.int64), [self._seed, epoch, SHARDS])
        groups = -(-count // CYCLE)
        # As np.array_split does: the first `larger` groups have one more.
        size, larger = divmod(count, groups)

        def blocks_of_group(group: tf.Tensor) -> tf.data.Dataset:
            start = group * size + tf.minimum(group, larger)
            members = shards[start : start + size + tf.cast(group < larger, tf.int64)]
            starts, takes = tf.gather(self._starts, members), tf.gather(self._files.takes, members)
            return self._mixed(members, starts, takes)

        blocks = tf.data.Dataset.range(groups).flat_map(blocks_of_group)
        return self._windows(blocks, epoch, 0, 0, 0)

    def rest_of_epoch(self, epoch: int, place: int) -> tf.data.Dataset:
        """The records of an epoch from a place on, window by window."""
        window = place // self._window
        groups, over = self._order.rest(epoch, window * self._window)
        blocks, *later = [self._rest(shards, done) for shards, done in groups]
        for more in later:
            blocks = blocks.concatenate(more)
        within = place - window * self._window
        return self._windows(blocks, tf.constant(epoch, tf.int64), window, over, within)

    def _rest(self, shards: np.ndarray, done: np.ndarray) -> tf.data.Dataset:
        """Blocks of some shards, int64 [k], without their first `done` records, int64 [k]."""
        parts = [self._plan.parts[shard] for shard in shards]
        rows = zip(parts, done.tolist(), strict=True)
        starts = [_start(part, part.skip + row) for part, row in rows]
        return self._mixed(tf.constant(shards), np.array(starts), self._files.takes[shards] - done)

    def _mixed(self, shards: tf.Tensor, starts: Any, takes: Any) -> tf.data.Dataset:
        """Blocks of some shards, int64 [k], one of each in turn.

        Args:
            shards: The numbers of the shards.
            starts, takes: int64 [k], the arguments of `_blocks_of` for each.
        """
        files = tf.gather(self._files.paths, shards), tf.gather(self._files.compressions, shards)
        size = _block_size(self._plan, BLOCK)
        return tf.data.Dataset.from_tensor_slices((*files, starts, takes)).interleave(
            _blocks_of(self._plan, size),
            cycle_length=CYCLE,
            block_length=BLOCK // size,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

    def _windows(
        self, blocks: tf.data.Dataset, epoch: tf.Tensor, first: int, over: int, done: int
    ) -> tf.data.Dataset:
        """The windows of a stream of blocks, shuffled.

        Args:
            blocks: The stream.
            epoch: The epoch, int64 [].
            first: The number of the first window.
            over: Records of the stream before that window.
            done: Records to leave out at the beginning of the shuffled window.
        """
        if over:
            stream = blocks.unbatch().skip(over).batch(self._window)
        else:
            stream = blocks.rebatch(self._window)

        def shuffled(number: tf.Tensor, records: tf.Tensor) -> tf.data.Dataset:
            size = tf.shape(records, tf.int64)[0]
            order = whole_permutation(size, [self._seed, epoch, number, WINDOW])
            # Cut where batches begin: reordering a window as a whole would copy it once more.
            before = number * self._window - (first * self._window + done)
            begin = tf.maximum(-before, 0)
            end = tf.minimum(size, self._count - number * self._window)
            cuts = tf.data.Dataset.range(begin - (before + begin) % self._batch, end, self._batch)

            def piece(cut: tf.Tensor) -> tf.Tensor:
                rows = order[tf.maximum(cut, begin) : tf.minimum(cut + self._batch, end)]
                return tf.gather(records, rows)

            return cuts.map(piece)

        return stream.prefetch(1).enumerate(first).flat_map(shuffled)
