"""The baseline: a hand-written loop that writes the same shards on all cores, without Beam.

It shuffles the inputs and balances the shards, but does nothing else that a job of this project
does: no plan, no statistics, no indexes, no checksums of shards, no rejects, no second machine.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import numpy as np
import tensorflow as tf
from read import (
    class_name,
    class_names,
    list_files,
    parse_line,
    read_image,
    read_lines,
    read_recording,
)
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2

_Dim = tensor_shape_pb2.TensorShapeProto.Dim


def serialize_tensor(array: np.ndarray) -> bytes:
    """Returns the bytes of `tf.io.serialize_tensor`, faster.

    Filling the proto takes 2.8 µs for 6.6 KB and 8.3 µs for 150 KB, `tf.io.serialize_tensor` 9.3 and
    17.2 µs, `tf.make_tensor_proto` 9.9 and 16.4 µs.
    """
    return tensor_pb2.TensorProto(
        dtype=tf.as_dtype(array.dtype).as_datatype_enum,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(dim=[_Dim(size=n) for n in array.shape]),
        tensor_content=array.tobytes(),
    ).SerializeToString()


def example(name: str, value: bytes, label: int) -> bytes:
    """Returns a serialized `tf.train.Example` with a value and its label."""
    return tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
        )
    ).SerializeToString()


def encode_file(feature: str, labels: dict[str, int], path: str) -> bytes:
    """Returns the record of a file."""
    array = read_image(path) if feature == "image" else read_recording(path)
    return example(feature, serialize_tensor(array), labels[class_name(path)])


def encode_line(line: bytes) -> bytes:
    """Returns the record of a line."""
    text, label = parse_line(line)
    return example("text", text.encode(), label)


def write_shard(path: str, encode: Callable[[Any], bytes], items: Sequence[Any]) -> None:
    """Writes one shard."""
    with tf.io.TFRecordWriter(path) as writer:
        for item in items:
            writer.write(encode(item))


def main() -> None:
    """Writes the shards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("sensors", "images", "text"))
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--num_shards", type=int, required=True)
    flags = parser.parse_args()

    items: list[Any] = list_files(flags.input, flags.kind)
    encode: Callable[[Any], bytes]
    if flags.kind == "text":
        items = [line for path in items for line in read_lines(path)]
        encode = encode_line
    else:
        labels = {name: label for label, name in enumerate(class_names(flags.input))}
        encode = partial(encode_file, "image" if flags.kind == "images" else "signal", labels)
    random.Random(0).shuffle(items)

    output = Path(flags.output)
    output.mkdir(parents=True)
    bounds = [len(items) * shard // flags.num_shards for shard in range(flags.num_shards + 1)]
    shards = [
        (
            str(output / f"train-{shard:05d}-of-{flags.num_shards:05d}.tfrecord"),
            encode,
            items[bounds[shard] : bounds[shard + 1]],
        )
        for shard in range(flags.num_shards)
    ]
    # Forked processes need not import TensorFlow.
    with multiprocessing.get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        pool.starmap(write_shard, shards, chunksize=1)


if __name__ == "__main__":
    main()
