"""A `tf.data` pipeline over records that are found by their index, and decoded by NumPy."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from readers.batching import ragged
from readers.collate import flat_arrays
from readers.decode import Column
from readers.form import LENGTH, MASK, POSITIONS, SEGMENT_IDS, Form
from readers.format.pieces import Empty
from readers.format.schema import Feature, Schema
from readers.grouped import Grouped
from readers.options import ReadOptions
from readers.permutation import record_keys
from readers.schedule import Cursor
from readers.stream import Stream, Taken
from readers.streamed import numbered

# Given to TensorFlow in one call of Python: a call costs as much as a batch of small records, and the
# next batch is decoded in less time where a processor has not done anything else in between. It ends
# with the batch that makes it this large, since pictures and padding are larger than in their files.
_CALL_BYTES, _CALL_STEPS = 8 << 20, 16

_NO_END = np.iinfo(np.int64).max

# Of an iterator that has outlived its dataset: what it has made ahead is soon all, or it reads on.
_LAST_CALLS = 8

_S = TypeVar("_S", Stream, Grouped)


class Kept(Generic[_S]):
    """A stream, with its files and memory, that is there as long as a dataset which reads it.

    TensorFlow keeps a function of Python, and all that it refers to, until the process ends. So the
    function refers to this, and the dataset to the stream; iterators keep their dataset.

    Args:
        stream: The stream.
        reopen: Opens it again, for an iterator that has outlived its dataset.
    """

    def __init__(self, stream: _S, reopen: Callable[[], _S | None]) -> None:
        self._reopen: Callable[[], _S | None] = reopen
        self._stream: Callable[[], _S | None] = weakref.ref(stream)
        if not tf.executing_eagerly():
            # Of a dataset that is made within a function, only the graph is left after it.
            self._stream = lambda: stream
        self._reopened = 0

    def __call__(self) -> _S:
        stream = self._stream()
        if stream is None:
            stream = self._reopen()
            assert stream is not None
            self._reopened += 1
            if self._reopened > _LAST_CALLS:
                # Something of TensorFlow's alone refers to the dataset, and reads on.
                self._stream = lambda: stream
        return stream

    def by(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset, which keeps the stream from now on."""
        weakref.finalize(dataset, lambda stream: None, self()).atexit = False
        return dataset


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


class _Interface:
    """How a batch passes from NumPy to TensorFlow: as a list of arrays, and made one again there.

    Attributes:
        dtypes: Of the arrays.
    """

    def __init__(self, schema: Schema, options: ReadOptions) -> None:
        form, sizes = options.form, options.batch_size
        self._schema, self._form = schema, form
        ragged = form.batching == "ragged"
        self._varying = [n for n, f in schema.items() if ragged and not f.is_fixed]
        self._fixed = {n: f for n, f in schema.items() if n not in self._varying}
        whole = options.drop_remainder and options.on_corrupt == "raise"
        self._rows = sizes if whole and isinstance(sizes, int) else None
        self._specs = _specs(form, self._fixed, self._rows)
        self._dtypes = [spec.dtype for spec in self._specs.values()]
        for name in self._varying:
            self._dtypes += [tf.as_dtype(schema[name].dtype), tf.int64, tf.int64]
        self._seed, self._keys = options.seed or 0, options.keys
        self._ranks = [spec.shape.rank for spec in self._specs.values()]
        self._ranks += [1, 2, 1] * len(self._varying) + [1] * self._keys
        if self._keys:
            self._dtypes.append(tf.int64)
        self.dtypes = [tf.string, *self._dtypes]

    def arrays(self, take: Callable[[], Taken | None], empty: Empty) -> list[np.ndarray]:
        """What is taken as arrays, after what went wrong, or nothing, as text."""
        try:
            taken = take()
        except Exception as error:
            # TensorFlow would show where in Python it was raised, in twenty lines; and the step would
            # be tried again for ever where errors are ignored.
            told = isinstance(error, (ValueError, OSError, ImportError))
            text = str(error) if told else f"{type(error).__name__}: {error}"
            return [_text(text), *self.nothing()[1:]]
        if taken is None:
            return self.nothing()
        batch = taken.batch(self._fixed, self._form, empty) if self._fixed else {}
        arrays = [batch[name] for name in self._specs]
        for name in self._varying:
            arrays += flat_arrays(self._schema[name], taken.columns[name], empty)
        if self._keys:
            arrays.append(_keys_of(taken, self._seed))
        return [_text(""), *arrays]

    def nothing(self) -> list[np.ndarray]:
        """The arrays where there is no batch."""
        kinds = zip(self._dtypes, self._ranks, strict=True)
        return [_text(""), *(np.empty([0] * rank, dtype.as_numpy_dtype) for dtype, rank in kinds)]

    def batch(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The batch that the tensors of the arrays make; a pair of it and its keys, if asked for."""
        error, *tensors = tensors
        error = tf.ensure_shape(error, [])
        with tf.control_dependencies([tf.debugging.Assert(error == b"", [error])]):
            tensors = [tf.identity(tensor) for tensor in tensors]
        found: dict[str, Any] = {}
        for (name, spec), tensor in zip(self._specs.items(), tensors, strict=False):
            found[name] = tf.ensure_shape(tensor, spec.shape)
        for number, name in enumerate(self._varying):
            values, shapes, counts = tensors[len(self._specs) + 3 * number :][:3]
            found[name] = _ragged(self._schema[name], values, shapes, counts, self._rows)
        return (found, tf.ensure_shape(tensors[-1], [self._rows])) if self._keys else found


def _text(text: str) -> np.ndarray:
    return np.array(text.encode(), object)


def _keys_of(taken: Taken, seed: int) -> np.ndarray:
    """A key for each row of a batch, int64 [B]; of several records in a row, that of the first."""
    places = taken.places
    if taken.rows is not None:
        places = places[np.unique(taken.rows, return_index=True)[1]]
    return np.asarray(record_keys(places, (seed, taken.epoch, 0)))


def _specs(
    form: Form, features: Mapping[str, Feature], rows: int | None
) -> dict[str, tf.TensorSpec]:
    """What a batch has by name; no ragged tensors."""
    specs = {}
    for name, feature in features.items():
        dtype = tf.as_dtype(feature.dtype)
        if form.batching == "packed":
            length = form.limit(name)
            specs[name] = tf.TensorSpec([rows, length, *feature.shape[1:]], dtype)
            for suffix in (SEGMENT_IDS, POSITIONS):
                specs[name + suffix] = tf.TensorSpec([rows, length], tf.int32)
            continue
        specs[name] = tf.TensorSpec([rows, *feature.shape], dtype)
        if form.mask and not feature.is_fixed:
            shape = [rows, *feature.shape[: feature.varying_rank]]
            specs[name + MASK] = tf.TensorSpec(shape, tf.bool)
        if form.lengths and not feature.is_fixed:
            unknown = feature.shape.count(None)
            specs[name + LENGTH] = tf.TensorSpec([rows, *[unknown] * (unknown > 1)], tf.int64)
    return specs


def _ragged(
    feature: Feature, values: tf.Tensor, shapes: tf.Tensor, counts: tf.Tensor, rows: int | None
) -> tf.RaggedTensor:
    values = tf.ensure_shape(values, [None])
    if not feature.is_sequence:
        return ragged(feature, Column(values, tf.ensure_shape(shapes, [rows, len(feature.shape)])))
    counts = tf.ensure_shape(counts, [rows])
    inner = feature.shape[1:]
    if None in inner:
        shapes = tf.ensure_shape(shapes, [None, len(inner)])
        return ragged(feature, Column(values, shapes, counts))
    return ragged(feature, Column(tf.reshape(values, [-1, *inner]), None, counts))
