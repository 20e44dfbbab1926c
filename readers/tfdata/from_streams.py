"""A `tf.data` pipeline over shards that are read as streams: a graph of TensorFlow alone.

It works on every filesystem that TensorFlow reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.options import ReadOptions
from readers.batches.orders import records_at_once, window_of
from readers.order.orders import BLOCK, CYCLE, SHARDS, WINDOW, InterleavedOrder
from readers.order.permutation import permuted, record_keys, round_keys
from readers.shards.index import read_index
from readers.shards.plan import Part, Plan
from readers.tfdata.batching import batch_of
from readers.tfdata.decode import decode_batch

# Asked of the filesystem at a time, as TFRecordDataset does by default.
_READ_BYTES = 256 << 10


def tensorflow_reads(plan: Plan, options: ReadOptions) -> bool:
    """Whether TensorFlow itself reads all files of a plan, as they are.

    It knows gs:// and hdfs://, and s3:// only with a package of its own that few have.
    """
    schemes = {scheme_of(part.path) for part in plan.parts}
    known = set(tf.io.gfile.get_registered_schemes())
    if "STORAGE_EMULATOR_HOST" in os.environ:
        # Of another place for Google Cloud Storage it knows nothing.
        known.discard("gs")
    return schemes <= known and (options.cache is None or schemes <= {""})


def scheme_of(path: str) -> str:
    """What stands before the `://` of a path; nothing for a local one."""
    return path.split("://")[0] if "://" in path or "::" in path else ""


def streamed(plan: Plan, options: ReadOptions, epoch: int, place: int) -> tf.data.Dataset:
    """The batches, dicts by feature name, of a plan, from a place of an epoch on.

    Args:
        plan: The part of this host.
        epoch, place: 0 where the plan does not know its number of records.
    """

    def decode(serialized: tf.Tensor) -> Any:
        return batch_of(decode_batch(serialized, plan.schema), plan.schema, options.form)

    def decode_with_keys(epoch: tf.Tensor, place: tf.Tensor, serialized: tf.Tensor) -> Any:
        places = place + tf.range(tf.size(serialized, tf.int64))
        keys = record_keys(places, [options.seed, epoch, options.shard[0]], _shift)
        return decode(serialized), tf.ensure_shape(keys, serialized.shape)

    function = decode_with_keys if options.keys else decode
    batches = _epochs(plan, options, epoch, place)
    return batches.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _epochs(plan: Plan, options: ReadOptions, epoch: int, place: int) -> tf.data.Dataset:
    """The serialized records of each batch of all epochs, after its epoch and first place for keys."""
    size, drop, repeat = options.batch_size, options.drop_remainder, options.repeat
    assert isinstance(size, int)
    mixed = _Interleaved(plan, options) if options.shuffle and plan.parts else None

    def batched(records: tf.data.Dataset, epoch: tf.Tensor, place: int = 0) -> tf.data.Dataset:
        batches = records.rebatch(size, drop)
        if not options.keys:
            return batches
        return batches.enumerate().map(lambda step, batch: (epoch, place + step * size, batch))

    def whole(number: tf.Tensor) -> tf.data.Dataset:
        return batched(mixed.epoch(number) if mixed else _in_order(plan, size), number)

    if not place:
        first = None
    elif mixed:
        first = batched(mixed.rest_of_epoch(epoch, place), tf.constant(epoch, tf.int64), place)
    else:
        assert plan.records is not None
        left = _in_order(plan.cut(place, plan.records), size)
        first = batched(left, tf.constant(epoch, tf.int64), place)
    begin = tf.constant(epoch if first is None else epoch + 1, tf.int64)
    if repeat is None:
        later = tf.data.Dataset.counter(begin).flat_map(whole)
        if plan.records is None:
            # Whether there is anything to go on with, only an epoch tells.
            later = whole(begin).take(1).flat_map(lambda *_: later)
        return later if first is None else first.concatenate(later)
    # An iteration ends after an epoch whose number `repeat` divides.
    end = (epoch // repeat + 1) * repeat
    # Keras goes through a dataset once for each of its epochs: each time has an order of its own.
    iterations = tf.Variable(-1, dtype=tf.int64, trainable=False)

    def iteration(number: tf.Tensor) -> tf.data.Dataset:
        is_first = number == 0
        epochs = tf.where(is_first, begin, end + (number - 1) * repeat), end + number * repeat
        later = tf.data.Dataset.range(*epochs).flat_map(whole)
        if first is None:
            return later
        return first.take(tf.where(is_first, tf.constant(-1, tf.int64), 0)).concatenate(later)

    return numbered(lambda: iterations.assign_add(1)).flat_map(iteration)


def numbered(number: Callable[[], Any]) -> tf.data.Dataset:
    """A dataset of one element, found anew each time the dataset is gone through.

    A checkpoint of an iterator holds the element, and need not hold what it was found by.
    """
    options = tf.data.Options()
    options.experimental_external_state_policy = tf.data.experimental.ExternalStatePolicy.IGNORE
    return tf.data.Dataset.from_tensors(0).map(lambda _: number()).with_options(options)


def _in_order(plan: Plan, batch_size: int) -> tf.data.Dataset:
    """The serialized records of a plan, file after file, some at a time."""
    paths = tf.constant([part.path for part in plan.parts], tf.string)
    starts = np.array([_offset(part, part.skip) for part in plan.parts], np.int64)
    files = tf.data.Dataset.from_tensor_slices((paths, _packings(plan), starts, _takes(plan)))
    return files.flat_map(_blocks_of(plan, _at_once(plan, batch_size)))


def _at_once(plan: Plan, most: int) -> int:
    """Records of a block, which divide `BLOCK`: each step over single ones costs a tenth of reading.

    Of large records it is one, so that none is read long before it is asked for.
    """
    fitting = min(most, BLOCK, records_at_once(plan))
    return max(size for size in range(1, fitting + 1) if BLOCK % size == 0)


def _blocks_of(plan: Plan, size: int) -> Callable[..., tf.data.Dataset]:
    """A function for a part: path, packing, where to start, how many -> its serialized records.

    They come in blocks of the size. The start is a byte, or the number of a record in a packed file,
    which has to be read from its front. Where their number is unknown (-1) they are all, elsewhere
    fewer are an error.
    """
    packed = any(part.gzipped for part in plan.parts)

    def blocks(
        path: tf.Tensor, packing: tf.Tensor, start: tf.Tensor, take: tf.Tensor
    ) -> tf.data.Dataset:
        is_plain = tf.cast(packing == "", tf.int64)
        # Of what stands before a byte nothing is read, for which the class TFRecordDataset has no
        # argument. TensorFlow cannot write this op into a graph, but into a dataset's function.
        variant = tf.raw_ops.TFRecordDatasetV2(
            filenames=path[None],
            compression_type=packing,
            buffer_size=_READ_BYTES,
            byte_offsets=(start * is_plain)[None],
        )
        records = tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.string))
        if packed:
            records = records.skip(start * (1 - is_plain))
        if plan.records is not None:
            counted = tf.data.experimental.assert_cardinality(take)
            records = records.take(take).apply(counted)
        return records.batch(size)

    return blocks


def _packings(plan: Plan) -> tf.Tensor:
    """How each part's file is compressed, string [parts]."""
    return tf.constant(["GZIP" if part.gzipped else "" for part in plan.parts], tf.string)


def _takes(plan: Plan) -> np.ndarray:
    """How many records of each part to take, int64 [parts]; -1 where their number is unknown."""
    return np.array([-1 if part.take is None else part.take for part in plan.parts], np.int64)


def _offset(part: Part, row: int) -> int:
    """Where a function of `_blocks_of` begins with a record of a part's file."""
    if part.gzipped:
        return row
    return int(read_index(part.path, part.bytes)[row, 0]) if row else 0


class _Interleaved:
    """The epochs of an `InterleavedOrder`, as streams."""

    def __init__(self, plan: Plan, options: ReadOptions) -> None:
        self._plan, self._seed = plan, options.seed or 0
        self._window = options.window or window_of(plan)
        assert isinstance(options.batch_size, int)
        self._batch = options.batch_size
        counts = [part.take or 0 for part in plan.parts]
        self._order = InterleavedOrder(counts, self._seed, self._window)
        self._paths = tf.constant([part.path for part in plan.parts], tf.string)
        self._packings = _packings(plan)
        self._starts = np.array([_offset(part, part.skip) for part in plan.parts], np.int64)
        self._takes = _takes(plan)

    def epoch(self, epoch: tf.Tensor) -> tf.data.Dataset:
        """The records of a whole epoch, window by window."""
        shards = _permutation(tf.shape(self._paths, tf.int64)[0], [self._seed, epoch, SHARDS])
        groups = -(-len(self._plan.parts) // CYCLE)
        # As array_split does: the first ones are one larger.
        size, larger = divmod(len(self._plan.parts), groups)

        def blocks_of_group(group: tf.Tensor) -> tf.data.Dataset:
            start = group * size + tf.minimum(group, larger)
            members = shards[start : start + size + tf.cast(group < larger, tf.int64)]
            return self._mixed(
                members, tf.gather(self._starts, members), tf.gather(self._takes, members)
            )

        stream = tf.data.Dataset.range(groups).flat_map(blocks_of_group)
        return self._windows(stream, epoch, 0, 0, 0)

    def rest_of_epoch(self, epoch: int, place: int) -> tf.data.Dataset:
        """The records of an epoch from a place on, window by window."""
        window = place // self._window
        groups, over = self._order.rest(epoch, window * self._window)
        stream, *later = [self._rest(shards, done) for shards, done in groups]
        for blocks in later:
            stream = stream.concatenate(blocks)
        within = place - window * self._window
        return self._windows(stream, tf.constant(epoch, tf.int64), window, over, within)

    def _rest(self, shards: np.ndarray, done: np.ndarray) -> tf.data.Dataset:
        """Blocks of some shards, int64 [k], of each of which some records are done, int64 [k]."""
        parts = [self._plan.parts[shard] for shard in shards]
        rows = zip(parts, done.tolist(), strict=True)
        starts = [_offset(part, part.skip + row) for part, row in rows]
        return self._mixed(tf.constant(shards), np.array(starts), self._takes[shards] - done)

    def _mixed(self, shards: tf.Tensor, starts: Any, takes: Any) -> tf.data.Dataset:
        """Blocks of some shards, int64 [k], one of each in turn.

        Args:
            starts, takes: int64 [k]; as `_blocks_of` says.
        """
        names = tf.gather(self._paths, shards), tf.gather(self._packings, shards)
        columns = *names, starts, takes
        size = _at_once(self._plan, BLOCK)
        return tf.data.Dataset.from_tensor_slices(columns).interleave(
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
            first: The number of the first window.
            over: Records before it.
            done: Records of its order that are left out.
        """
        stream = (
            blocks.unbatch().skip(over).batch(self._window)
            if over
            else blocks.rebatch(self._window)
        )

        def shuffled(number: tf.Tensor, records: tf.Tensor) -> tf.data.Dataset:
            size = tf.shape(records, tf.int64)[0]
            order = _permutation(size, [self._seed, epoch, number, WINDOW])
            # Cut where batches begin: a window that is put in order as a whole is copied once more.
            before = number * self._window - (first * self._window + done)
            begin = tf.maximum(-before, 0)
            cuts = tf.data.Dataset.range(begin - (before + begin) % self._batch, size, self._batch)
            return cuts.map(
                lambda cut: tf.gather(records, order[tf.maximum(cut, begin) : cut + self._batch])
            )

        return stream.prefetch(1).enumerate(first).flat_map(shuffled)


def _shift(value: Any, bits: int) -> Any:
    """A value shifted to the right, be it a tensor or a number."""
    if isinstance(value, int):
        return value >> bits
    return tf.bitwise.right_shift(value, tf.constant(bits, tf.int64))


def _permutation(size: tf.Tensor, key: list[Any]) -> tf.Tensor:
    """All of a `Permutation`, int64 [size]."""
    return _permuted(size, tf.stack([tf.convert_to_tensor(part, tf.int64) for part in key]))


# Hundreds of operations, of which a graph is made once and not for every dataset.
@tf.function(autograph=False)
def _permuted(size: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    keys = round_keys(tf.unstack(key), _shift)
    width = tf.cast(tf.sqrt(tf.cast(tf.maximum(size - 1, 0), tf.float64)), tf.int64) + 1

    def again(numbers: tf.Tensor, beyond: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        found = tf.where(beyond, permuted(numbers, size, width, keys, _shift), numbers)
        return found, found >= size

    numbers = tf.range(size)
    beyond = tf.ones_like(numbers, tf.bool)
    return tf.while_loop(lambda _, beyond: tf.reduce_any(beyond), again, (numbers, beyond))[0]
