"""Writes small inputs and datasets, and reads the output of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import numpy as np

import readers
from readers.format.encode import Encoder
from readers.format.index import format_index, parse_index
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Shard, Split, shard_name
from readers.format.tfrecord import frame
from readers.shards.records import Records
from readers.shards.resolve import resolve

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
    """Records of fixed shape whose values follow from their number."""
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
    """Records with a feature of unknown length; values count up from 1, so none equals padding."""
    return [
        {"signal": np.arange(1, 2 * n + 1, dtype=np.float32).reshape(n, 2), "label": i}
        for i, n in enumerate(lengths)
    ]


def write_signals(directory: Path, lengths: Sequence[int] = (3, 0, 5, 1, 2)) -> Path:
    """A dataset of one shard with a feature of unknown length."""
    return write_dataset(directory, SIGNALS, {"train": [signals(lengths)]})


@contextlib.contextmanager
def in_memory(directory: Path) -> Iterator[str]:
    """The path of a copy of a directory's files on a filesystem that is not local."""
    filesystem = fsspec.filesystem("memory")
    for file in directory.iterdir():
        filesystem.pipe(f"/{directory.name}/{file.name}", file.read_bytes())
    yield f"memory://{directory.name}"
    filesystem.rm(f"/{directory.name}", recursive=True)


def flip(path: Path, *places: int) -> None:
    """Flips a bit of the bytes at some places of a file."""
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 4
    path.write_bytes(data)


def index_of(path: Path) -> np.ndarray:
    """The (offset, length) of every record in a shard, int64 [records, 2], from its index."""
    return parse_index(Path(f"{path}.idx").read_bytes(), path.name)


def damage(path: Path, *rows: int) -> list[int]:
    """Flips a bit in some records of a shard; returns where these records begin."""
    offsets: list[int] = index_of(path)[list(rows), 0].tolist()
    flip(path, *(offset + 25 for offset in offsets))
    return offsets


def files_of(directory: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file in a directory, hidden ones included.

    The versions of packages in a manifest are left out, and its checksum.
    """
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name == "manifest.json":
                manifest = json.loads(data)
                del manifest["versions"]
                manifest.pop("crc32c", None)  # Tests also write manifests that are none.
                data = json.dumps(manifest, indent=1).encode()
            found[str(path.relative_to(directory))] = hashlib.sha256(data).hexdigest()
    return found


def manifest_bytes(value: Mapping[str, Any]) -> bytes:
    """The content of `manifest.json` for some JSON values, with its checksum."""
    values = {name: each for name, each in value.items() if name != "crc32c"}
    text = json.dumps(values, indent=1).removesuffix("\n}") + ",\n"
    return f'{text} "crc32c": "{crc32c(text.encode()):08x}"\n}}\n'.encode()


def verified(directory: Path) -> Manifest:
    """The manifest of a dataset that `verify` finds nothing wrong with."""
    report = readers.verify(str(directory))
    assert report.ok, report.problems
    assert not (directory / ".staging").exists()
    return Manifest.read(str(directory))


def balanced(directory: Path) -> Manifest:
    """The manifest of a verified dataset whose shards differ by at most one record."""
    manifest = verified(directory)
    for split in manifest.splits.values():
        counts = [shard.records for shard in split.shards]
        assert max(counts, default=0) - min(counts, default=0) <= 1, counts
    return manifest


def records_of(directory: Path, split: str = "") -> dict[str, Record]:
    """Key -> record of a verified dataset: arrays, and the name of its `split`.

    Args:
        split: The only split to read; "" reads all.
    """
    found: dict[str, Record] = {}
    for name, part in verified(directory).splits.items():
        if part.records and split in ("", name):
            records = Records(resolve(str(directory), name, None, None))
            for record in records.read(range(len(records))):
                key = record["key"].item().decode()
                assert key not in found, key
                found[key] = {**record, "split": name}
    return found


def rejects_of(directory: Path) -> dict[str, str]:
    """Key -> reason of every reject; no key is listed twice."""
    lines = [
        json.loads(line.decode(errors="surrogateescape"))
        for path in sorted((directory / "rejects").glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]
    found = {line["key"]: line["error"] for line in lines}
    assert len(found) == len(lines) == Manifest.read(str(directory)).rejected
    return found


def npy(dtype: str, shape: Sequence[int], data: bytes) -> bytes:
    """The bytes of a .npy file, the same with every version of NumPy."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    head = text + " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data


def write_recordings(directory: Path, lengths: Sequence[int], bad: Sequence[int] = ()) -> None:
    """Writes recordings `a/00000.npy`, `b/00001.npy`, `c/00002.npy`, … of int16 [length, 3].

    Args:
        bad: The numbers of the files that hold no array.
    """
    for label in "abc":
        (directory / label).mkdir(parents=True, exist_ok=True)
    for number, length in enumerate(lengths):
        values = (np.arange(3 * length) * (number + 1) % 1009).astype("<i2").tobytes()
        data = b"broken" if number in set(bad) else npy("<i2", (length, 3), values)
        (directory / "abc"[number % 3] / f"{number:05d}.npy").write_bytes(data)


def parse_tfrecord(data: bytes) -> list[bytes]:
    """The records of a TFRecord file, parsed independently of the package, checksums verified.

    Source: tensorflow/core/lib/io/record_reader.cc.
    """
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + length]
        assert len(data) >= at + 16 + length, f"cut off at byte {at}"
        assert _masked(data[at : at + 8]) == struct.unpack_from("<I", data, at + 8)[0], at
        assert _masked(body) == struct.unpack_from("<I", data, at + 12 + length)[0], at
        found.append(body)
        at += 16 + length
    return found


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The CRC32C of some bytes, a byte at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
