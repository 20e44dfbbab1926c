"""A function of each record, in the graph: columns -> records -> columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from readers.batches.batch_format import BATCH_MASK
from readers.batches.options import ReadOptions
from readers.decoders.record_work import Map, RecordFunction
from readers.format.schema import Feature, Schema
from readers.tfdata.batching import TensorColumn, batch_of, padded_columns

_KEY = tf.TensorSpec([], tf.int64)


class RecordMap:
    """A function of records and keys, and the batches of its results.

    Args:
        mapped: (record, key) -> the record to use instead: dicts of tensors; with `readers.Map`, its
            features are known, otherwise they are those of the graph.
        decoded: The features of the records that the function is given.

    Attributes:
        schema: The features of the records that it returns.

    Raises:
        ValueError: A feature is a sequence of arrays of several shapes, or the function returns
            something else than a dict of tensors, or other features than stated.
    """

    def __init__(self, mapped: RecordFunction | Map, decoded: Schema) -> None:
        mapped = mapped if isinstance(mapped, Map) else Map(mapped)
        for name, feature in decoded.items():
            if feature.is_sequence and None in feature.shape[1:]:
                raise ValueError(
                    f"map= of load: {name!r}, {feature}, has arrays of several shapes: leave it out with "
                    "columns=, or use as_numpy"
                )
        self._decoded, self._function = decoded, tf.function(mapped.function)
        specs = {n: tf.TensorSpec(f.shape, tf.as_dtype(f.dtype)) for n, f in decoded.items()}
        found = self._function.get_concrete_function(specs, _KEY).structured_outputs
        if not isinstance(found, Mapping):
            raise ValueError(
                f"map returned {type(found).__name__}; expected a dict of tensors by name"
            )
        stated = None if mapped.schema is None else Schema(mapped.schema)
        self.schema = _checked_schema(found, decoded, stated)

    def batch(
        self,
        columns: Mapping[str, TensorColumn],
        keys: tf.Tensor,
        count: tf.Tensor,
        options: ReadOptions,
    ) -> Any:
        """The batch of the function's results; with keys, the pair (batch, keys).

        Args:
            columns: The features of the records that the function is given.
            keys: int64 [B], the keys of the rows.
            count: The number of rows that hold records, which come first.
            options: How to batch.
        """
        mapped, rows, mask = self._columns(columns, keys, count), options.rows, {}
        if options.pads and rows is not None:
            mapped = padded_columns(mapped, self.schema, rows, count)
            mask = {BATCH_MASK: tf.range(rows) < count}
        mapped = {name: _with_rows(column, rows) for name, column in mapped.items()}
        batch = batch_of(mapped, self.schema, options.format) | mask
        return (batch, tf.ensure_shape(keys, [rows])) if options.keys else batch

    def _columns(
        self, columns: Mapping[str, TensorColumn], keys: tf.Tensor, count: tf.Tensor
    ) -> dict[str, TensorColumn]:
        values = {name: _Values(self._decoded[name], column) for name, column in columns.items()}
        arrays = []
        for feature in self.schema.values():
            dtype, shape = tf.as_dtype(feature.dtype), feature.shape
            if feature.is_fixed:
                arrays.append(tf.TensorArray(dtype, count, element_shape=shape))
            else:
                flat = tf.TensorArray(dtype, count, infer_shape=False, element_shape=[None])
                arrays += [flat, tf.TensorArray(tf.int64, count, element_shape=[len(shape)])]

        def step(row: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
            record = {name: found.of_record(row) for name, found in values.items()}
            mapped, rest, written = self._function(record, keys[row]), iter(arrays), []
            for name, feature in self.schema.items():
                value = tf.ensure_shape(mapped[name], feature.shape)
                if feature.is_fixed:
                    written.append(next(rest).write(row, value))
                else:
                    written.append(next(rest).write(row, tf.reshape(value, [-1])))
                    written.append(next(rest).write(row, tf.shape(value, tf.int64)))
            return row + 1, *written

        begin = (tf.constant(0), *arrays)
        _, *done = tf.while_loop(lambda row, *_: row < count, step, begin)
        rest, found = iter(done), {}
        for name, feature in self.schema.items():
            if feature.is_fixed:
                found[name] = TensorColumn(next(rest).stack())
            else:
                found[name] = TensorColumn(next(rest).concat(), next(rest).stack())
        return found


class _Values:
    """The values of a feature, to be taken record by record."""

    def __init__(self, feature: Feature, column: TensorColumn) -> None:
        self._feature, self._column = feature, column
        sizes = None
        if column.row_lengths is not None:
            sizes = column.row_lengths
        elif column.shapes is not None:
            sizes = tf.reduce_prod(column.shapes, axis=1)
        self._sizes = sizes
        # Where the values of each record begin, and where the last ones end.
        self._ends = tf.constant(0) if sizes is None else tf.pad(tf.cumsum(sizes), [[1, 0]])

    def of_record(self, row: tf.Tensor) -> tf.Tensor:
        """The value of one record, with its static shape."""
        column, shape = self._column, self._feature.shape
        if self._sizes is None:
            return tf.ensure_shape(column.values[row], shape)
        value = column.values[self._ends[row] : self._ends[row + 1]]
        if column.row_lengths is None and column.shapes is not None:
            value = tf.reshape(value, column.shapes[row])
        return tf.ensure_shape(value, shape)


def _with_rows(column: TensorColumn, rows: int | None) -> TensorColumn:
    """The column with its number of records in its static shape, if that is known."""
    if column.shapes is None:
        values = tf.ensure_shape(column.values, [rows, *column.values.shape[1:]])
        return TensorColumn(values, None, column.row_lengths)
    shapes = tf.ensure_shape(column.shapes, [rows, column.shapes.shape[1]])
    return TensorColumn(column.values, shapes, column.row_lengths)


def _checked_schema(found: Mapping[str, Any], decoded: Schema, stated: Schema | None) -> Schema:
    """The features of what the function returns in the graph."""
    features = {}
    for name, tensor in found.items():
        if not isinstance(tensor, tf.Tensor) or tensor.shape.rank is None:
            raise ValueError(
                f"map returned {name!r} as {type(tensor).__name__} of unknown rank; expected a dense tensor"
            )
        features[name] = Feature(tensor.dtype.name, tensor.shape.as_list())
    if stated is None:
        return Schema({n: _as_before(f, decoded.get(n)) for n, f in features.items()})
    if features.keys() != stated.keys():
        raise ValueError(
            f"map returned {', '.join(sorted(features))}; readers.Map names {', '.join(stated)}"
        )
    for name, feature in stated.items():
        traced = features[name]
        if traced.dtype != feature.dtype or not _compatible(traced.shape, feature.shape):
            raise ValueError(f"readers.Map: {name!r} is {feature}, but map returned {traced}")
    return Schema(stated)


def _as_before(found: Feature, before: Feature | None) -> Feature:
    """The feature before the function if the one after it is the same."""
    same = before is not None and (before.dtype, before.shape) == (found.dtype, found.shape)
    return before if same and before else found


def _compatible(traced: tuple[int | None, ...], stated: tuple[int | None, ...]) -> bool:
    pairs = zip(traced, stated, strict=False)
    return len(traced) == len(stated) and all(None in pair or len(set(pair)) == 1 for pair in pairs)
