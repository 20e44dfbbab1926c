"""A `tf.data` pipeline over records that are found by their index, and decoded by NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batching import ragged
from readers.collate import collate, flat_arrays
from readers.decode import Column
from readers.format.schema import Feature, Schema
from readers.options import MASK_SUFFIX, BatchOptions
from readers.stream import Stream
from readers.streamed import numbered


def indexed(stream: Stream, schema: Schema, options: BatchOptions) -> tf.data.Dataset:
    """The batches of a stream, dicts by feature name.

    A step's number is all that its batch depends on, so the dataset can be entered anywhere.
    """
    varying = [n for n, f in schema.items() if options.batching == "ragged" and not f.is_fixed]
    fixed = {name: feature for name, feature in schema.items() if name not in varying}
    whole = options.drop_remainder and options.on_corrupt == "raise"
    rows = options.batch_size if whole else None
    specs = _specs(options, fixed, rows)

    def read(step: np.ndarray) -> list[Any]:
        batch = {}
        try:
            columns = stream.columns(int(step))
        except (ValueError, OSError, ImportError) as error:
            # TensorFlow would show where in Python it was raised, in twenty lines.
            return [str(error).encode(), *(np.empty(0, d.as_numpy_dtype) for d in dtypes)]
        if fixed:
            empty = stream.memory.empty
            batch = collate(columns, fixed, options.batching, options.mask, empty)
        arrays = [batch[name] for name in specs]
        for name in varying:
            arrays += flat_arrays(schema[name], columns[name])
        return [b"", *arrays]

    dtypes = [spec.dtype for spec in specs.values()]
    for name in varying:
        dtypes += [tf.as_dtype(schema[name].dtype), tf.int64, tf.int64]

    def batch(step: tf.Tensor) -> dict[str, Any]:
        # It is one: a step read twice is the same batch.
        error, *tensors = tf.numpy_function(read, [step], [tf.string, *dtypes], stateful=False)
        with tf.control_dependencies([tf.debugging.Assert(error == b"", [error])]):
            tensors = [tf.identity(tensor) for tensor in tensors]
        found: dict[str, Any] = {}
        for (name, spec), tensor in zip(specs.items(), tensors[: len(specs)], strict=True):
            found[name] = tf.ensure_shape(tensor, spec.shape)
        for number, name in enumerate(varying):
            values, shapes, counts = tensors[len(specs) + 3 * number :][:3]
            found[name] = _ragged(schema[name], values, shapes, counts, rows)
        return found

    schedule, iterations = stream.schedule, itertools.count()

    def bounds() -> tuple[np.int64, np.int64]:
        begin, end = schedule.steps_of(next(iterations))
        return np.int64(begin), np.int64(np.iinfo(np.int64).max if end is None else end)

    def found_bounds() -> list[tf.Tensor]:
        return [tf.ensure_shape(t, []) for t in tf.numpy_function(bounds, [], [tf.int64] * 2)]

    # Python runs one at a time anyway, and a step waits for the chunk of the step before it.
    steps = numbered(lambda: tuple(found_bounds())).flat_map(tf.data.Dataset.range)
    return steps.map(batch, num_parallel_calls=1, deterministic=True)


def _specs(
    options: BatchOptions, features: dict[str, Feature], rows: int | None
) -> dict[str, tf.TensorSpec]:
    specs = {}
    for name, feature in features.items():
        specs[name] = tf.TensorSpec([rows, *feature.shape], tf.as_dtype(feature.dtype))
        if options.mask and not feature.is_fixed:
            shape = [rows, *feature.shape[: feature.varying_rank]]
            specs[name + MASK_SUFFIX] = tf.TensorSpec(shape, tf.bool)
    return specs


def _ragged(
    feature: Feature, values: tf.Tensor, shapes: tf.Tensor, counts: tf.Tensor, rows: int | None
) -> tf.RaggedTensor:
    values = tf.ensure_shape(values, [None])
    if feature.encoding != "sequence":
        return ragged(feature, Column(values, tf.ensure_shape(shapes, [rows, len(feature.shape)])))
    counts = tf.ensure_shape(counts, [rows])
    inner = feature.shape[1:]
    if None in inner:
        shapes = tf.ensure_shape(shapes, [None, len(inner)])
        return ragged(feature, Column(values, shapes, counts))
    return ragged(feature, Column(tf.reshape(values, [-1, *inner]), None, counts))
