"""A `tf.data` pipeline over records that are found by their index, and decoded by NumPy."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.by_length import Grouped
from readers.batches.by_step import Stream, Taken
from readers.batches.options import ReadOptions
from readers.format.schema import Schema
from readers.order.state import Cursor
from readers.tfdata.bridge import _Interface
from readers.tfdata.from_streams import numbered
from readers.tfdata.handle import Kept

# Given to TensorFlow in one call of Python: a call costs as much as a batch of small records, and the
# next batch is decoded in less time where a processor has not done anything else in between. It ends
# with the batch that makes it this large, since pictures and padding are larger than in their files.
_CALL_BYTES, _CALL_STEPS = 8 << 20, 16

_NO_END = np.iinfo(np.int64).max


def indexed(stream: Kept[Stream], schema: Schema, options: ReadOptions) -> tf.data.Dataset:
    """The batches of a stream, dicts by feature name.

    A step's number is all that its batch depends on, so the dataset can be entered anywhere.
    """
    interface = _Interface(schema, options)
    schedule = stream().schedule
    together = max(min(int(_CALL_BYTES / stream().batch_bytes), _CALL_STEPS), 1)
    width, nothing = len(interface.dtypes), interface.nothing()

    def read(first: Any, end: Any) -> list[Any]:
        kept = stream()
        made, nbytes, arrays = 0, 0, list[np.ndarray]()
        for step in range(int(first), min(int(first) + together, int(end))):
            found = interface.arrays(functools.partial(kept.step, step), kept.memory.empty)
            made, nbytes = made + 1, nbytes + sum(array.nbytes for array in found)
            arrays += found
            if nbytes >= _CALL_BYTES:
                break
        return [np.int64(made), *arrays, *nothing * (together - made)]

    def each(count: tf.Tensor, *arrays: tf.Tensor) -> tf.data.Dataset:
        ends = range(width, len(arrays) + 1, width)
        several = [tf.data.Dataset.from_tensors(arrays[end - width : end]) for end in ends]
        joined = functools.reduce(tf.data.Dataset.concatenate, several)
        return joined.take(count)

    def scanned(
        state: tuple[tf.Tensor, ...], _: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
        dtypes = [tf.int64, *interface.dtypes * together]
        # It is one: steps read twice are the same batches.
        made, *arrays = tf.numpy_function(read, state, dtypes, stateful=False)
        made = tf.ensure_shape(made, [])
        return (state[0] + made, state[1]), each(made, *arrays)

    def batch(*arrays: tf.Tensor) -> Any:
        return interface.batch(arrays)

    iterations = itertools.count()

    def bounds() -> tuple[np.int64, np.int64]:
        begin, end = schedule.steps_of(next(iterations))
        return np.int64(begin), np.int64(_NO_END if end is None else end)

    def found_bounds() -> tuple[tf.Tensor, ...]:
        found = tf.numpy_function(bounds, [], [tf.int64] * 2)
        return tuple(tf.ensure_shape(tensor, []) for tensor in found)

    def iteration(begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        calls = tf.data.Dataset.counter().scan((begin, end), scanned).prefetch(1)
        return calls.flat_map(lambda several: several).take(end - begin)

    return stream.by(numbered(found_bounds).flat_map(iteration).map(batch))


def grouped(stream: Kept[Grouped], schema: Schema, options: ReadOptions) -> tf.data.Dataset:
    """The batches of a stream that are grouped by lengths, dicts by feature name.

    A batch depends on the cursor before it, which a checkpoint of the iterator holds.
    """
    interface = _Interface(schema, options)

    def read(epoch: Any, place: Any, held: np.ndarray, end: Any) -> list[Any]:
        kept = stream()
        cursor = Cursor(int(epoch), int(place), tuple(held.tolist()))
        after, more = cursor, True

        def take() -> Taken | None:
            nonlocal after, more
            found = kept.step(cursor, int(end))
            more = found is not None
            if found is None:
                return None
            after = found[1]
            return found[0]

        arrays = interface.arrays(take, kept.memory.empty)
        return [np.bool_(more), *_array_of(after), *arrays]

    def scanned(
        state: tuple[tf.Tensor, ...], _: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, ...], tuple[tf.Tensor, ...]]:
        dtypes = [tf.bool, *[tf.int64] * 3, *interface.dtypes]
        more, *found = tf.numpy_function(read, state, dtypes, stateful=False)
        tensors = (tf.ensure_shape(more, []), *found[3:])
        return (*_cursor_tensors(found[:3]), state[3]), tensors

    def batch(_: tf.Tensor, *tensors: tf.Tensor) -> Any:
        return interface.batch(list(tensors))

    iterations = itertools.count()

    def bounds() -> list[Any]:
        begin, end = stream().bounds_of(next(iterations))
        return [*_array_of(begin), np.int64(_NO_END if end is None else end)]

    def found_bounds() -> tuple[tf.Tensor, ...]:
        found = tf.numpy_function(bounds, [], [tf.int64] * 4)
        return (*_cursor_tensors(found[:3]), tf.ensure_shape(found[3], []))

    def iteration(*state: tf.Tensor) -> tf.data.Dataset:
        batches = tf.data.Dataset.counter().scan(state, scanned)
        return batches.take_while(lambda more, *_: more).map(batch)

    return stream.by(numbered(found_bounds).flat_map(iteration))


def _array_of(cursor: Cursor) -> list[Any]:
    return [np.int64(cursor.epoch), np.int64(cursor.place), np.array(cursor.held, np.int64)]


def _cursor_tensors(tensors: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
    epoch, place, held = tensors
    return tf.ensure_shape(epoch, []), tf.ensure_shape(place, []), tf.ensure_shape(held, [None])
