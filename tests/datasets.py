"""Small datasets on disk for the tests of the readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from readers.format.example import Encoder
from readers.format.manifest import Manifest, Shard, Split, shard_name
from readers.format.schema import Schema
from readers.format.tfrecord import format_index, frame

Record = dict[str, Any]


def write_shard(path: Path, examples: Sequence[bytes], index: bool = True) -> Shard:
    """Writes serialized Examples as one TFRecord file, with its index."""
    framed = [frame(example) for example in examples]
    data = b"".join(framed)
    path.write_bytes(data)
    if index:
        lengths = np.array([len(record) for record in framed], np.int64)
        Path(f"{path}.idx").write_bytes(format_index(lengths))
    return Shard(path.name, len(examples), len(data), google_crc32c.value(data))


def write_dataset(
    directory: Path,
    schema: Schema,
    splits: Mapping[str, Sequence[Sequence[Record]]],
    **manifest: Any,
) -> Path:
    """Writes a dataset; `splits` holds the records of each shard of each split."""
    directory.mkdir(parents=True, exist_ok=True)
    encoder = Encoder(schema)
    found = {}
    for name, shards in splits.items():
        found[name] = Split(
            tuple(
                write_shard(
                    directory / shard_name(name, number, len(shards)),
                    [encoder.encode(record) for record in records],
                )
                for number, records in enumerate(shards)
            )
        )
    text = Manifest(schema, found, **manifest).to_bytes()
    (directory / "manifest.json").write_bytes(text)
    return directory


NUMBERS = Schema({"id": ("int64", ()), "vector": ("float32", (3,)), "name": ("string", ())})


def numbers(first: int, count: int) -> list[Record]:
    """Records of fixed shape that tell their own number."""
    return [
        {"id": i, "vector": np.full(3, i, np.float32), "name": f"record {i}"}
        for i in range(first, first + count)
    ]


def write_numbers(directory: Path, counts: Sequence[int] = (5, 4, 7, 4), val: int = 3) -> Path:
    """A dataset whose train records are 0, 1, 2, ... in shards of the given sizes."""
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    train = [numbers(start, count) for start, count in zip(starts, counts, strict=True)]
    splits = {"train": train, "val": [numbers(1000, val)]}
    return write_dataset(directory, NUMBERS, splits, label_names=("cat", "dog"))


SIGNALS = Schema({"signal": ("float32", (None, 2)), "label": ("int64", ())})


def signals(lengths: Sequence[int]) -> list[Record]:
    """Records of a feature of unknown length; values count up from 1, so none looks like padding."""
    return [
        {"signal": np.arange(1, 2 * n + 1, dtype=np.float32).reshape(n, 2), "label": i}
        for i, n in enumerate(lengths)
    ]


def write_signals(directory: Path, lengths: Sequence[int] = (3, 0, 5, 1, 2)) -> Path:
    """A dataset of one shard with a feature of unknown length."""
    return write_dataset(directory, SIGNALS, {"train": [signals(lengths)]})
