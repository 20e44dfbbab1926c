"""TFRecord files written by TensorFlow alone, without this package."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def feature(value: Any) -> tf.train.Feature:
    """A feature of bytes, floats or integers, from one value, a list or an array.

    Of an empty list the dtype of an array tells which; without one it is integers.
    """
    if isinstance(value, np.ndarray):
        kind, values = value.dtype.kind, value.reshape(-1).tolist()
    else:
        values = value if isinstance(value, (list, tuple)) else [value]
        kind = "i" if not values else "f" if isinstance(values[0], float) else "i"
        kind = "O" if values and isinstance(values[0], (bytes, str)) else kind
    if kind == "O":
        texts = [text.encode() if isinstance(text, str) else text for text in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    if kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(**values: Any) -> bytes:
    """A serialized Example."""
    features = {name: feature(value) for name, value in values.items()}
    built = tf.train.Example(features=tf.train.Features(feature=features))
    return built.SerializeToString(deterministic=True)


def sequence_example(context: Mapping[str, Any] | None = None, **lists: Iterable[Any]) -> bytes:
    """A serialized SequenceExample; each list holds the values of its steps."""
    steps = {name: tf.train.FeatureList(feature=map(feature, v)) for name, v in lists.items()}
    context = {name: feature(value) for name, value in (context or {}).items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context),
        feature_lists=tf.train.FeatureLists(feature_list=steps),
    ).SerializeToString(deterministic=True)


def write_plain(path: str | os.PathLike[str], records: Iterable[bytes], packed: str = "") -> str:
    """Writes a TFRecord file, compressed with "GZIP", "ZLIB" or "" for none; returns its path."""
    with tf.io.TFRecordWriter(os.fspath(path), packed) as writer:
        for record in records:
            writer.write(record)
    return os.fspath(path)


def tensor(array: Any) -> bytes:
    """The bytes of `tf.io.serialize_tensor`."""
    return tf.io.serialize_tensor(array).numpy()


def jpeg(pixels: np.ndarray) -> bytes:
    return tf.io.encode_jpeg(pixels, quality=95).numpy()
