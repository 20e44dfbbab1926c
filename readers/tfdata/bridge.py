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
from readers.batches.collate import flat_arrays
from readers.batches.options import ReadOptions
from readers.format.decode.column import Allocator
from readers.format.schema import Feature, Schema
from readers.tfdata.batching import TensorColumn, ragged
from readers.tfdata.python_calls import of_shapes


class TensorBridge:
    """Turns a batch into a flat list of arrays in Python, and back into a batch in TensorFlow.

    The list holds an array for each dense name; three arrays for each ragged feature; and the keys of
    the records, if the options ask for them.

    Attributes:
        specs: The dtypes and shapes of the arrays.
    """

    def __init__(self, schema: Schema, options: ReadOptions) -> None:
        batch_format = options.format
        self._schema, self._format = schema, batch_format
        is_ragged = batch_format.batching == "ragged"
        self._ragged = [n for n, f in schema.items() if is_ragged and not f.is_fixed]
        self._dense = {n: f for n, f in schema.items() if n not in self._ragged}
        self._rows = options.rows
        self._dense_specs = _dense_specs(batch_format, self._dense, self._rows)
        self._pads = options.pads
        if options.pads:
            self._dense_specs[BATCH_MASK] = tf.TensorSpec([self._rows], tf.bool)
        self._seed, self._has_keys = options.seed or 0, options.keys
        self._part = options.part_of_host or 0
        self.specs = list(self._dense_specs.values())
        for name in self._ragged:
            self.specs += _ragged_specs(schema[name], self._rows)
        if self._has_keys:
            self.specs.append(tf.TensorSpec([self._rows], tf.int64))

    def arrays(self, found: BatchSlice, empty: Allocator) -> list[np.ndarray]:
        """The arrays of a batch.

        Args:
            found: The batch.
            empty: Allocates large arrays.
        """
        batch = found.arrays(self._dense, self._format, empty)
        arrays = [batch[name] for name in self._dense_specs]
        for name in self._ragged:
            arrays += flat_arrays(self._schema[name], found.columns[name])
        if self._has_keys:
            arrays.append(found.keys(self._seed, self._part))
        return arrays

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
        rest = iter(of_shapes(tensors, self.specs))
        dense = {name: next(rest) for name in self._dense_specs}
        varying = {}
        for name in self._ragged:
            varying[name] = tensor_column(self._schema[name], next(rest), next(rest), next(rest))
        return dense, varying, next(rest) if self._has_keys else None


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


def _ragged_specs(feature: Feature, rows: int | None) -> list[tf.TensorSpec]:
    """The specs of what `flat_arrays` returns of a feature."""
    if feature.is_sequence:
        arrays, rank = None, len(feature.shape) - 1
    else:
        arrays, rank = rows, len(feature.shape)
    values = tf.TensorSpec([None], tf.as_dtype(feature.dtype))
    return [values, tf.TensorSpec([arrays, rank], tf.int64), tf.TensorSpec([rows], tf.int64)]


def tensor_column(
    feature: Feature, values: tf.Tensor, shapes: tf.Tensor, counts: tf.Tensor
) -> TensorColumn:
    """The column that `flat_arrays` describes."""
    if not feature.is_sequence:
        return TensorColumn(values, shapes)
    inner = feature.shape[1:]
    if None in inner:
        return TensorColumn(values, shapes, counts)
    return TensorColumn(tf.reshape(values, [-1, *inner]), None, counts)
