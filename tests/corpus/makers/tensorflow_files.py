"""Files by the TFRecordWriter of TensorFlow 1 or 2: `python tensorflow_files.py FOLDER`.

It imports nothing of this package, because TensorFlow 1.15 runs in Python 3.7.
"""

import os
import sys

import tensorflow as tf
from values import RECORDS

IS_OLD = tf.__version__.startswith("1.")


def feature(values):
    """A Feature of bytes, floats or integers; an empty list is one of integers."""
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def writer(path, packed):
    """A writer of either version; `packed` is GZIP, ZLIB or empty."""
    if not IS_OLD:
        return tf.io.TFRecordWriter(path, packed)
    kind = tf.python_io.TFRecordCompressionType
    options = tf.python_io.TFRecordOptions(getattr(kind, packed or "NONE"))
    return tf.python_io.TFRecordWriter(path, options)


def main(folder):
    """Writes a plain file, one with GZIP and one with ZLIB."""
    os.makedirs(folder, exist_ok=True)
    for packed, ending in (("", ""), ("GZIP", ".gz"), ("ZLIB", ".zlib")):
        with writer(os.path.join(folder, "a.tfrecord" + ending), packed) as file:
            for record in RECORDS:
                features = {name: feature(values) for name, values in record.items()}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                file.write(example.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])
