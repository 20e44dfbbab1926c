"""Passes batches from NumPy to TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from readers.batches.options import ReadOptions
from readers.format.decode.column import Allocator, FeatureColumn
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema


class TensorBridge:
    """Flattens a batch to a list of arrays in Python, and rebuilds the batch in TensorFlow.

    The list holds an array for each dense name, the result of `ragged_arrays` for each ragged feature, and the
    keys of the records, if the options ask for them. `specs` are the dtypes and shapes of the arrays.
    """

    def __init__(self, schema: Schema, options: ReadOptions) -> None:
        is_ragged, rows = options.format.batching == "ragged", options.rows
        self._options = options
        self._ragged = {n: f for n, f in schema.items() if is_ragged and not f.is_fixed}
        self._dense = {n: f for n, f in schema.items() if n not in self._ragged}
        self._dense_specs = _dense_specs(options.format, self._dense, rows)
        if options.pads:
            self._dense_specs[BATCH_MASK] = tf.TensorSpec([rows], tf.bool)
        self.specs = list(self._dense_specs.values())
        for feature in self._ragged.values():
            self.specs += _ragged_specs(feature, rows)
        if options.keys:
            self.specs.append(tf.TensorSpec([rows], tf.int64))

    def arrays(self, records: BatchSlice, empty: Allocator) -> list[np.ndarray]:
        """Converts a batch to arrays; `empty` allocates large ones."""
        options = self._options
        batch = records.arrays(self._dense, options.format, empty)
        arrays = [batch[name] for name in self._dense_specs]
        for name, feature in self._ragged.items():
            arrays += ragged_arrays(feature, records.columns[name])
        if options.keys:
            arrays.append(records.keys(options.seed or 0, options.part_of_host or 0))
        return arrays

    def batch(self, tensors: Sequence[tf.Tensor]) -> Any:
        """Converts a list of arrays, now tensors, to a batch; with keys, to the pair (batch, keys)."""
        rest = iter(tensors)
        batch = {name: next(rest) for name in self._dense_specs}
        for name, feature in self._ragged.items():
            values, lengths = next(rest), [next(rest) for _ in range(feature.varying_rank)]
            batch[name] = ragged_tensor(feature, values, lengths)
        return (batch, next(rest)) if self._options.keys else batch


def _dense_specs(
    batch_format: BatchFormat, features: Mapping[str, Feature], rows: int | None
) -> dict[str, tf.TensorSpec]:
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


def _ragged_specs(feature: Feature, rows: int | None) -> list[tf.TensorSpec]:
    """The specs of the result of `ragged_arrays` for a feature."""
    lengths = [tf.TensorSpec([None], tf.int64)] * (feature.varying_rank - 1)
    values = tf.TensorSpec([None], tf.as_dtype(feature.dtype))
    return [values, tf.TensorSpec([rows], tf.int64), *lengths]


def ragged_arrays(feature: Feature, column: FeatureColumn) -> list[np.ndarray]:
    """Converts a column of unknown shape to the arrays that `ragged_tensor` takes.

    These are the values, flat; and for each dimension up to the last unknown one, int64 [n], the lengths of its rows.
    """
    if feature.is_sequence:
        arrays = [array for value in column.flat() for array in value]
        flat = [np.empty(0, numpy_dtype(feature.dtype)), *(array.reshape(-1) for array in arrays)]
        values = np.concatenate(flat)
        lengths = [np.array([len(value) for value in column.flat()], np.int64)]
        shapes = np.array([array.shape for array in arrays], np.int64)
        shapes = shapes.reshape(-1, len(feature.shape) - 1)
    else:
        assert column.shapes is not None
        values, lengths, shapes = column.flat(), [], column.shapes
    for axis in range(feature.varying_rank - len(lengths)):
        lengths.append(np.repeat(shapes[:, axis], shapes[:, :axis].prod(axis=1)))
    return [values, *lengths]


def ragged_tensor(
    feature: Feature, values: tf.Tensor, lengths: Sequence[tf.Tensor]
) -> tf.RaggedTensor:
    """Converts the result of `ragged_arrays` to a tensor [B, *shape].

    Dimensions after the last unknown one are dense. Known dimensions between unknown ones are uniform partitions, so
    they stay static.
    """
    varying, inner = feature.shape[: len(lengths)], feature.shape[len(lengths) :]
    rows = tf.reduce_sum(lengths[-1])  # A size of -1 could not be inferred if an inner one is 0.
    nested = tf.reshape(values, tf.stack([rows, *inner]))
    nested = tf.ensure_shape(nested, [None, *inner])
    for size, row_lengths in zip(reversed(varying), reversed(lengths), strict=True):
        if size is None:
            nested = tf.RaggedTensor.from_row_lengths(nested, row_lengths, validate=False)
        else:
            count = tf.size(row_lengths, tf.int64)
            nested = tf.RaggedTensor.from_uniform_row_length(nested, size, count, validate=False)
    return nested
