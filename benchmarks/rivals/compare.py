"""Checks that contenders wrote the same records: the same values with the same labels.

    python compare.py sensors ours=DIR floor=DIR tfds=DIR

The order of records and the other features may differ.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

FEATURES = {"sensors": "signal", "images": "image", "text": "text"}


def contents(kind: str, contender: str, folder: str) -> Counter[tuple[bytes, int]]:
    """Counts each pair (hash of the value, label)."""
    paths = [str(path) for path in Path(folder).rglob("*.tfrecord*") if path.suffix != ".idx"]
    found: Counter[tuple[bytes, int]] = Counter()
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        value = feature[FEATURES[kind]].bytes_list.value[0]
        if kind != "text" and contender != "tfds":
            value = tensor_pb2.TensorProto.FromString(value).tensor_content
        found[hashlib.sha256(value).digest(), feature["label"].int64_list.value[0]] += 1
    return found


def main() -> None:
    """Exits with one line if the records of two contenders differ."""
    kind, *outputs = sys.argv[1:]
    (first, expected), *others = (
        (name, contents(kind, name, folder))
        for name, _, folder in (output.partition("=") for output in outputs)
    )
    for name, found in others:
        missing, extra = (expected - found).total(), (found - expected).total()
        if missing or extra:
            sys.exit(f"{name} lacks {missing} records of {first}, and has {extra} others")


if __name__ == "__main__":
    main()
