"""Batches from NumPy to TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.by_step import Taken
from readers.batches.collate import flat_arrays
from readers.batches.options import LENGTH, MASK, POSITIONS, SEGMENT_IDS, Form, ReadOptions
from readers.format.decode.column import Empty
from readers.format.schema import Feature, Schema
from readers.order.permutation import record_keys
from readers.tfdata.batching import ragged
from readers.tfdata.decode import Column


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
