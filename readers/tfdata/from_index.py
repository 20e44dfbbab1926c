"""A `tf.data` pipeline over records that Python finds by their index and decodes with NumPy."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.by_length.batches import BatchesByLength
from readers.batches.by_step import BatchesByStep
from readers.batches.options import ReadOptions
from readers.format.schema import Schema
from readers.order.state import Cursor
from readers.tfdata.batching import TensorColumn
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.errors import has_failed, message_of, unless_failed
from readers.tfdata.iterators import IteratorReaders
from readers.tfdata.passes import bounds_of_each_pass
from readers.tfdata.python_calls import PythonFunction, arrays_of_nothing, of_shapes

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
    batches_by_step: BatchesByStep,
    schema: Schema,
    options: ReadOptions,
    finish: Finish | None = None,
) -> tf.data.Dataset:
    """The batches of all steps, dicts by feature name, or what `finish` makes of their columns.

    A batch depends on its step number alone, so an iterator can start anywhere. For `finish`, the
    options ask for keys and for ragged batches.
    """
    bridge = TensorBridge(schema, options)
    readers = IteratorReaders(batches_by_step)
    together = max(min(int(_CALL_BYTES / batches_by_step.batch_bytes), _CALL_STEPS), 1)
    width, nothing = len(bridge.specs), arrays_of_nothing(bridge.specs)

    def read(first: Any, end: Any, name: Any, failure: Any) -> list[Any]:
        steps, nbytes, arrays = 0, 0, list[np.ndarray]()
        if failure:
            raise ValueError(failure.decode())
        if first < end:
            reader, name = readers.reader(int(name), int(first))
        for step in range(int(first), min(int(first) + together, int(end))):
            try:
                batch = reader.batch(step, int(end))
                assert batch is not None
                found = bridge.arrays(batch[0], reader.memory.empty)
            except Exception as error:
                if not steps:
                    raise
                failure = message_of(error)  # After the batches before it, the next call fails.
                break
            steps, nbytes = steps + 1, nbytes + sum(array.nbytes for array in found)
            arrays += found
            if nbytes >= _CALL_BYTES:
                break
        return [
            np.bool_(True),
            np.int64(steps),
            name,
            failure,
            *arrays,
            *nothing * (together - steps),
        ]

    specs = [
        *(tf.TensorSpec([], tf.bool), _SCALAR, _SCALAR, tf.TensorSpec([], tf.string)),
        *bridge.specs * together,
    ]
    # Stateless as TensorFlow means it: reading steps again gives the same batches.
    function = PythonFunction(read, specs)

    def call(state: _State, _: tf.Tensor) -> tuple[_State, tuple[tf.Tensor, ...]]:
        failed, tensors = function(state)
        is_read, steps, name, failure = of_shapes(tensors[:4], specs[:4])
        arrays = tensors[4:]
        ends = range(width, len(arrays) + 1, width)
        several = [tf.data.Dataset.from_tensors(tuple(arrays[end - width : end])) for end in ends]
        batches = functools.reduce(tf.data.Dataset.concatenate, several).take(steps)
        # After a step that failed comes the next one.
        after = state[0] + tf.maximum(steps, 1), state[1], name, failure
        # The interpreter ends if nothing was read, without an error.
        more = (state[0] < state[1]) & (is_read | has_failed(failed))
        return after, (more, failed, batches)

    def unless_it_failed(
        _: tf.Tensor, failed: tf.Tensor, batches: tf.data.Dataset
    ) -> tf.data.Dataset:
        (count,) = unless_failed(failed, [tf.constant(_NO_END)])
        return batches.take(count)

    def bounds(number: int) -> list[Any]:
        begin, end = batches_by_step.bounds_of(number)
        return [np.int64(begin), np.int64(_NO_END if end is None else end)]

    def one_pass(begin: tf.Tensor, end: tf.Tensor) -> tf.data.Dataset:
        state = (begin, end, _NO_NAME, b"")
        calls = tf.data.Dataset.counter().scan(state, call).prefetch(1)
        # A pass in which steps failed has fewer batches, so it ends by the state, too.
        calls = calls.take_while(lambda more, *_: more)
        return calls.flat_map(unless_it_failed).take(end - begin)

    begin, of_bounds = bounds_of_each_pass(bounds, [_SCALAR, _SCALAR])
    found = _finished(begin.flat_map(one_pass), bridge, finish)
    return _keeping(found, function, of_bounds)


def dataset_by_length(
    batches_by_length: BatchesByLength,
    schema: Schema,
    options: ReadOptions,
    finish: Finish | None = None,
) -> tf.data.Dataset:
    """The batches grouped by length, dicts by feature name, or what `finish` makes of their columns.

    A batch depends on the cursor before it, which a checkpoint of the iterator holds.
    """
    bridge, readers = TensorBridge(schema, options), IteratorReaders(batches_by_length)
    specs = [tf.TensorSpec([], tf.bool), _SCALAR, *_CURSOR, *bridge.specs]
    nothing = arrays_of_nothing(bridge.specs)

    def read(epoch: Any, place: Any, held: np.ndarray, end: Any, name: Any) -> list[Any]:
        cursor = Cursor(int(epoch), int(place), tuple(held.tolist()))
        reader, name = readers.reader(int(name), cursor)
        found = reader.batch(cursor, Cursor(int(end)))
        if found is None:
            return [np.bool_(False), name, *_cursor_arrays(cursor), *nothing]
        batch, after = found
        arrays = bridge.arrays(batch, reader.memory.empty)
        return [np.bool_(True), name, *_cursor_arrays(after), *arrays]

    function = PythonFunction(read, specs)

    def call(state: _State, _: tf.Tensor) -> tuple[_State, _State]:
        failed, tensors = function(state)
        found = unless_failed(failed, tensors)
        more, name, epoch, place, held = of_shapes(found[:5], specs[:5])
        return (epoch, place, held, state[3], name), (more, *found[5:])

    def bounds(number: int) -> list[Any]:
        begin, end = batches_by_length.bounds_of(number)
        return [*_cursor_arrays(begin), np.int64(_NO_END if end is None else end.epoch)]

    def one_pass(*state: tf.Tensor) -> tf.data.Dataset:
        calls = (
            tf.data.Dataset.counter()
            .scan((*state, _NO_NAME), call)
            .take_while(lambda more, *_: more)
        )
        return _finished(calls.map(lambda _, *tensors: tensors), bridge, finish)

    begin, of_bounds = bounds_of_each_pass(bounds, [*_CURSOR, _SCALAR])
    return _keeping(begin.flat_map(one_pass), function, of_bounds)


def _keeping(dataset: tf.data.Dataset, *functions: PythonFunction) -> tf.data.Dataset:
    """The dataset, which keeps functions, and with them files, as long as it exists; iterators keep their dataset."""
    weakref.finalize(dataset, lambda *_: None, *functions).atexit = False
    return dataset


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
