"""The decoders of `readers.decoders` in a graph, where they see records as `as_numpy` does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from readers.decoders.decoder import Batch
from readers.decoders.record_work import RecordWork
from readers.format.decode.column import FeatureColumn
from readers.format.schema import Feature, Schema
from readers.shards.plan import Plan
from readers.tfdata.columns.column import TensorColumn
from readers.tfdata.python_calls import of_shapes, python_call
from readers.tfdata.records.errors import unless_failed


def read_schema(plan: Plan) -> Schema:
    """The features that TensorFlow reads: bytes in place of images that decoders take."""
    taken = [name for name in (plan.work.made if plan.work else ()) if plan.stored[name].is_image]
    return Schema({**plan.stored, **dict.fromkeys(taken, Feature("string"))})


def decoded_columns(
    columns: Mapping[str, TensorColumn], keys: tf.Tensor, work: RecordWork
) -> dict[str, TensorColumn]:
    """The columns after the decoders of a work.

    Args:
        columns: The features as they are read.
        keys: int64 [B], the keys of the records.
        work: The decoders.

    Raises:
        tf.errors.InvalidArgumentError: When run, if a value cannot be decoded.
    """
    made = work.made
    read = {name: work.stored[name] for name in made}
    read |= {name: Feature("string") for name, feature in read.items() if feature.is_image}
    rows = keys.shape[0]

    def decode(keys: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
        batch = Batch(_columns_of(read, iter(arrays)), keys, _located, np.empty)
        found, flat = work.decoded(batch), list[np.ndarray]()
        for name in made:
            flat.append(found[name].flat())
            if (shapes := found[name].shapes) is not None:
                flat.append(shapes)
        return flat

    given = []
    for name, feature in read.items():
        given.append(columns[name].values)
        if not feature.is_fixed:
            given.append(columns[name].shapes)
    specs = _specs(made, rows)
    failed, tensors = python_call(decode, [keys, *given], specs)
    rest = iter(of_shapes(unless_failed(failed, tensors), specs))
    found = dict(columns)
    for name, feature in made.items():
        found[name] = TensorColumn(next(rest), None if feature.is_fixed else next(rest))
    return found


def _specs(features: Mapping[str, Feature], rows: int | None) -> list[tf.TensorSpec]:
    """The specs of the arrays that hold columns of features."""
    specs = []
    for feature in features.values():
        if feature.is_fixed:
            specs.append(tf.TensorSpec([rows, *feature.shape], feature.dtype))
        else:
            specs.append(tf.TensorSpec([None], feature.dtype))
            specs.append(tf.TensorSpec([rows, len(feature.shape)], tf.int64))
    return specs


def _columns_of(
    features: Mapping[str, Feature], arrays: Iterator[np.ndarray]
) -> dict[str, FeatureColumn]:
    return {
        name: FeatureColumn(next(arrays), None if feature.is_fixed else next(arrays))
        for name, feature in features.items()
    }


@contextlib.contextmanager
def _located(row: int) -> Iterator[Any]:
    """Adds the row to the message of an error; a stream does not know a record's file."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"record {row} of a batch: {error}") from error.__cause__
