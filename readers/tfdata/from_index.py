"""A `tf.data` pipeline over records that Python finds by their index and decodes with NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.batch_slice import BatchSlice
from readers.batches.by_length import BatchesByLength
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.format.schema import Schema
from readers.order.state import Cursor
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.handle import DatasetHandle
from readers.tfdata.passes import bounds_of_each_pass
from readers.tfdata.tensor_columns import TensorColumn

# Batches handed to TensorFlow in one Python call: a call costs as much as a batch of small records,
# and the next batch is decoded faster if the core has done nothing else in between. A call ends
# with the batch that makes it this large, because images and padding are larger than in their
# files.
_CALL_BYTES, _CALL_STEPS = 8 << 20, 16

_NO_END = np.iinfo(np.int64).max

# The number of an iterator before its first call.
_NO_NAME = np.int64(0)

_SCALAR = tf.TensorSpec([], tf.int64)

# An (epoch, place, held places) of `Cursor`.
_CURSOR = [_SCALAR, _SCALAR, tf.TensorSpec([None], tf.int64)]

_State = tuple[tf.Tensor, ...]


# (columns, keys, number of records) -> a batch.
Finish = Callable[[dict[str, TensorColumn], tf.Tensor, tf.Tensor], Any]


def dataset_by_step(
    handle: DatasetHandle[BatchesByStep],
    schema: Schema,
    options: ReadOptions,
    finish: Finish | None = None,
) -> tf.data.Dataset:
    """The batches of all steps, dicts by feature name, or what `finish` makes of their columns.

    A batch depends on its step number alone, so an iterator can start anywhere. For `finish`, the
    options ask for keys and for ragged batches.
    """
    bridge = TensorBridge(schema, options)
    schedule = handle().schedule
    together = max(min(int(_CALL_BYTES / handle().batch_bytes), _CALL_STEPS), 1)
    width, nothing = len(bridge.dtypes), bridge.no_arrays()

    def read(first: Any, end: Any, name: Any) -> list[Any]:
        steps, nbytes, arrays = 0, 0, list[np.ndarray]()
        if first < end:
            reader, name = handle.reader(int(name), int(first))
        for step in range(int(first), min(int(first) + together, int(end))):
            found = bridge.arrays(functools.partial(reader.step, step), reader.memory.empty)
            steps, nbytes = steps + 1, nbytes + sum(array.nbytes for array in found)
            arrays += found
            if nbytes >= _CALL_BYTES:
                break
        return [np.int64(steps), name, *arrays, *nothing * (together - steps)]

    def separate(count: tf.Tensor, *arrays: tf.Tensor) -> tf.data.Dataset:
        ends = range(width, len(arrays) + 1, width)
        several = [tf.data.Dataset.from_tensors(arrays[end - width : end]) for end in ends]
        return functools.reduce(tf.data.Dataset.concatenate, several).take(count)

    def call(state: _State, _: tf.Tensor) -> tuple[_State, tf.data.Dataset]:
        dtypes = [tf.int64, tf.int64, *bridge.dtypes * together]
        # Stateless as TensorFlow means it: reading steps again gives the same batches.
        steps, name, *arrays = tf.numpy_function(read, state, dtypes, stateful=False)
        steps, name = tf.ensure_shape(steps, []), tf.ensure_shape(name, [])
        return (state[0] + steps, state[1], name), separate(steps, *arrays)

    def bounds(number: int) -> list[Any]:
        begin, end = schedule.steps_of_pass(number)
        return [np.int64(begin), np.int64(_NO_END if end is None else end)]

    def one_pass(begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        state = (begin, end, _NO_NAME)
        calls = tf.data.Dataset.counter().scan(state, call).prefetch(1)
        return calls.flat_map(lambda several: several).take(end - begin)

    passes = bounds_of_each_pass(bounds, [_SCALAR, _SCALAR], options.next_epochs).flat_map(one_pass)
    return handle.kept_by(_finished(passes, bridge, finish))


def dataset_by_length(
    handle: DatasetHandle[BatchesByLength],
    schema: Schema,
    options: ReadOptions,
    finish: Finish | None = None,
) -> tf.data.Dataset:
    """The batches grouped by length, dicts by feature name, or what `finish` makes of their columns.

    A batch depends on the cursor before it, which a checkpoint of the iterator holds.
    """
    bridge = TensorBridge(schema, options)

    def read(epoch: Any, place: Any, held: np.ndarray, end: Any, name: Any) -> list[Any]:
        cursor = Cursor(int(epoch), int(place), tuple(held.tolist()))
        reader, name = handle.reader(int(name), cursor)
        after, more = cursor, True

        def next_slice() -> BatchSlice | None:
            nonlocal after, more
            found = reader.batch(cursor, int(end))
            more = found is not None
            if found is None:
                return None
            after = found[1]
            return found[0]

        arrays = bridge.arrays(next_slice, reader.memory.empty)
        return [np.bool_(more), name, *_cursor_arrays(after), *arrays]

    def call(state: _State, _: tf.Tensor) -> tuple[_State, _State]:
        dtypes = [tf.bool, *[tf.int64] * 4, *bridge.dtypes]
        more, name, *found = tf.numpy_function(read, state, dtypes, stateful=False)
        cursor = [tf.ensure_shape(t, s.shape) for t, s in zip(found[:3], _CURSOR, strict=True)]
        state = (*cursor, state[3], tf.ensure_shape(name, []))
        return state, (tf.ensure_shape(more, []), *found[3:])

    def bounds(number: int) -> list[Any]:
        begin, end = handle().bounds_of(number)
        return [*_cursor_arrays(begin), np.int64(_NO_END if end is None else end)]

    def one_pass(*state: tf.Tensor) -> tf.data.Dataset:
        calls = (
            tf.data.Dataset.counter()
            .scan((*state, _NO_NAME), call)
            .take_while(lambda more, *_: more)
        )
        return _finished(calls.map(lambda _, *tensors: tensors), bridge, finish)

    passes = bounds_of_each_pass(bounds, [*_CURSOR, _SCALAR], options.next_epochs)
    return handle.kept_by(passes.flat_map(one_pass))


def _finished(
    arrays: tf.data.Dataset, bridge: TensorBridge, finish: Finish | None
) -> tf.data.Dataset:
    """The batches of lists of arrays."""
    if finish is None:
        return arrays.map(lambda *tensors: bridge.batch(tensors))
    return arrays.map(
        lambda *tensors: finish(*bridge.columns(tensors)),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _cursor_arrays(cursor: Cursor) -> list[Any]:
    return [np.int64(cursor.epoch), np.int64(cursor.place), np.array(cursor.held, np.int64)]
