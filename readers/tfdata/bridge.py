"""Passes batches from NumPy to TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.batch_format import (
    BATCH_MASK,
    LENGTH,
    MASK,
    POSITIONS,
    SEGMENT_IDS,
    BatchFormat,
)
from readers.batches.batch_slice import BatchSlice
from readers.batches.collate import flat_arrays
from readers.batches.options import ReadOptions
from readers.format.decode.column import Allocator
from readers.format.schema import Feature, Schema
from readers.tfdata.batching import ragged
from readers.tfdata.records.errors import error_text, no_error, unless_failed
from readers.tfdata.tensor_columns import TensorColumn


class TensorBridge:
    """Turns a batch into a flat list of arrays in Python, and back into a batch in TensorFlow.

    The list holds an error message; an array for each dense name; three arrays for each ragged
    feature; and the keys of the records, if the options ask for them.

    Attributes:
        dtypes: The dtypes of the arrays.
    """

    def __init__(self, schema: Schema, options: ReadOptions) -> None:
        batch_format = options.format
        self._schema, self._format = schema, batch_format
        is_ragged = batch_format.batching == "ragged"
        self._ragged = [n for n, f in schema.items() if is_ragged and not f.is_fixed]
        self._dense = {n: f for n, f in schema.items() if n not in self._ragged}
        self._rows = options.rows
        self._specs = _dense_specs(batch_format, self._dense, self._rows)
        self._pads = options.pads
        if options.pads:
            self._specs[BATCH_MASK] = tf.TensorSpec([self._rows], tf.bool)
        self._seed, self._has_keys = options.seed or 0, options.keys
        self._part = options.part_of_host or 0
        # After the error message: the (dtype, rank) of each array.
        self._kinds = [(spec.dtype, spec.shape.rank) for spec in self._specs.values()]
        for name in self._ragged:
            self._kinds += [(tf.as_dtype(schema[name].dtype), 1), (tf.int64, 2), (tf.int64, 1)]
        if self._has_keys:
            self._kinds.append((tf.int64, 1))
        self.dtypes = [tf.string, *(dtype for dtype, _ in self._kinds)]

    def arrays(self, read: Callable[[], BatchSlice | None], empty: Allocator) -> list[np.ndarray]:
        """The arrays of a batch.

        If reading fails, the first array is the error message and the others are empty; if there
        is no batch, all of them are.

        Args:
            read: Reads the batch; None if there is none.
            empty: Allocates large arrays.
        """
        try:
            found = read()
        except Exception as error:
            return [error_text(error), *self.no_arrays()[1:]]
        if found is None:
            return self.no_arrays()
        batch = found.arrays(self._dense, self._format, empty)
        arrays = [batch[name] for name in self._specs]
        for name in self._ragged:
            arrays += flat_arrays(self._schema[name], found.columns[name], empty)
        if self._has_keys:
            arrays.append(found.keys(self._seed, self._part))
        return [no_error(), *arrays]

    def no_arrays(self) -> list[np.ndarray]:
        """The empty arrays that stand for no batch."""
        return [
            no_error(),
            *(np.empty([0] * rank, d.as_numpy_dtype) for d, rank in self._kinds),
        ]

    def batch(self, tensors: Sequence[tf.Tensor]) -> Any:
        """The batch of a list of arrays, now tensors; with keys, the pair (batch, keys)."""
        found, varying, keys = self._separate(tensors)
        for name, column in varying.items():
            found[name] = ragged(self._schema[name], column)
        return (found, keys) if self._has_keys else found

    def columns(
        self, tensors: Sequence[tf.Tensor]
    ) -> tuple[dict[str, TensorColumn], tf.Tensor, Any]:
        """The columns, keys and number of records of a list of arrays of ragged batches, now tensors."""
        found, varying, keys = self._separate(tensors)
        mask = found.pop(BATCH_MASK) if self._pads else None
        count = tf.size(keys) if mask is None else tf.reduce_sum(tf.cast(mask, tf.int32))
        return {name: TensorColumn(t) for name, t in found.items()} | varying, keys, count

    def _separate(
        self, tensors: Sequence[tf.Tensor]
    ) -> tuple[dict[str, Any], dict[str, TensorColumn], tf.Tensor | None]:
        """The dense tensors, the ragged features as columns, and the keys."""
        tensors = unless_failed(tensors[0], tensors[1:])
        dense, varying = {}, {}
        for (name, spec), tensor in zip(self._specs.items(), tensors, strict=False):
            dense[name] = tf.ensure_shape(tensor, spec.shape)
        for number, name in enumerate(self._ragged):
            values, shapes, counts = tensors[len(self._specs) + 3 * number :][:3]
            varying[name] = _column_of(self._schema[name], values, shapes, counts, self._rows)
        keys = tf.ensure_shape(tensors[-1], [self._rows]) if self._has_keys else None
        return dense, varying, keys


def _dense_specs(
    batch_format: BatchFormat, features: Mapping[str, Feature], rows: int | None
) -> dict[str, tf.TensorSpec]:
    """The specs of the dense tensors of a batch by name."""
    specs = {}
    for name, feature in features.items():
        dtype = tf.as_dtype(feature.dtype)
        if batch_format.batching == "packed":
            length = batch_format.limit(name)
            specs[name] = tf.TensorSpec([rows, length, *feature.shape[1:]], dtype)
            for suffix in (SEGMENT_IDS, POSITIONS):
                specs[name + suffix] = tf.TensorSpec([rows, length], tf.int32)
            continue
        shape = batch_format.padded_shape(name, feature)
        specs[name] = tf.TensorSpec([rows, *shape], dtype)
        if batch_format.mask and not feature.is_fixed:
            covered = shape[: feature.varying_rank]
            specs[name + MASK] = tf.TensorSpec([rows, *covered], tf.bool)
        if batch_format.lengths and not feature.is_fixed:
            unknown = feature.shape.count(None)
            specs[name + LENGTH] = tf.TensorSpec([rows, *[unknown] * (unknown > 1)], tf.int64)
    return specs


def _column_of(
    feature: Feature, values: tf.Tensor, shapes: tf.Tensor, counts: tf.Tensor, rows: int | None
) -> TensorColumn:
    """The column that `flat_arrays` describes."""
    values = tf.ensure_shape(values, [None])
    if not feature.is_sequence:
        return TensorColumn(values, tf.ensure_shape(shapes, [rows, len(feature.shape)]))
    counts = tf.ensure_shape(counts, [rows])
    inner = feature.shape[1:]
    if None in inner:
        return TensorColumn(values, tf.ensure_shape(shapes, [None, len(inner)]), counts)
    return TensorColumn(tf.reshape(values, [-1, *inner]), None, counts)
