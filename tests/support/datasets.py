"""Writes small inputs and datasets, and reads the output of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import google_crc32c
import numpy as np

import readers
from readers.format.encode.records import Encoder
from readers.format.index import Index, head_crc32c
from readers.format.manifest import Manifest
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split, shard_name
from readers.format.tfrecord import frame
from readers.shards.records import Records
from readers.shards.resolve import resolve

Record = dict[str, Any]


def write_shard(
    path: Path,
    examples: Sequence[bytes],
    index: bool = True,
    sections: Mapping[str, np.ndarray] | None = None,
) -> Shard:
    """Writes serialized Examples as one TFRecord file, with its index.

    Args:
        index: Whether it has an index.
        sections: The sections of the index beside `offset`.
    """
    framed = [frame(example) for example in examples]
    data, size = b"".join(framed), (0, 0)
    hashes = np.asarray((sections or {}).get("hash", ()), np.uint32)
    path.write_bytes(data)
    if index:
        lengths = np.array([len(record) for record in framed], np.int64)
        written = Index(lengths, sections or {}).to_bytes()
        Path(f"{path}.index").write_bytes(written)
        size = len(written), head_crc32c(written)
    smallest = int(hashes.min(initial=0xFFFFFFFF))
    return Shard(path.name, len(examples), len(data), google_crc32c.value(data), *size, smallest)


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
        written = []
        for number, records in enumerate(shards):
            path = directory / shard_name(name, number, len(shards))
            checked = [encoder.check(record) for record in records]
            # Nothing orders these records, so the hashes just ascend.
            hashes = [(row << 64) // len(records) for row in range(len(records))]
            sections = plain_sections(schema, checked, hashes)
            written.append(write_shard(path, list(map(encoder.pack, checked)), sections=sections))
        found[name] = Split(tuple(written))
    text = Manifest(schema, found, **manifest).to_bytes()
    (directory / "manifest.json").write_bytes(text)
    return directory


# Of a single number with one of these dtypes, an index has the value.
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS = {"bool", *_INTEGERS, "float16", "float32", "float64"}


def plain_sections(
    schema: Mapping[str, Feature], records: Sequence[Record], hashes: Sequence[int]
) -> dict[str, np.ndarray]:
    """The sections beside `offset` in the index of some records, found independently of the package.

    Args:
        records: Values as `Encoder.check` or a reader returns them.
        hashes: The hash by which each record is ordered.
    """
    halves = {"hash": [h >> 32 for h in hashes], "hash/low": [h & 0xFFFFFFFF for h in hashes]}
    found = {name: np.array(half, np.uint32) for name, half in halves.items()}
    for name, feature in schema.items():
        values = [record[name] for record in records]
        unknown = [axis for axis, size in enumerate(feature.shape) if size is None]
        if feature.encoding in ("jpeg", "png", "source") or feature.encoding.endswith(" steps"):
            continue
        if not feature.shape and feature.dtype in _NUMBERS:
            found[f"value/{name}"] = np.array([np.asarray(v).item() for v in values], feature.dtype)
        elif feature.encoding == "sequence" and unknown == [0]:
            found[f"length/{name}"] = np.array([len(v) for v in values], np.uint32)
        elif feature.encoding != "sequence" and unknown:
            lengths = [np.shape(v)[unknown[0]] for v in values]
            found[f"length/{name}"] = np.array(lengths, np.uint32)
    return found


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
    offsets = sections_of(path)["offset"].astype(np.int64)
    return np.stack([offsets[:-1], np.diff(offsets)], 1)


def sections_of(path: Path) -> dict[str, np.ndarray]:
    """The sections of the index of a shard by name, parsed independently of the package, all checked."""
    data = Path(f"{path}.index").read_bytes()
    magic, version, crc, records, _, start, count = struct.unpack_from("<8sIIQQII", data)
    assert (magic, version) == (b"TFINDEX\n", 1)
    assert google_crc32c.value(data[16:start]) == crc
    found, at = {}, 40
    for _ in range(count):
        begin, dtype, length = struct.unpack_from("<Q4sI", data, at)
        name = data[at + 16 : at + 16 + length].decode()
        at += 16 + length
        assert begin % 64 == 0 and begin >= start and name not in found
        numbers = records + (name == "offset")
        found[name] = np.frombuffer(data, f"<{dtype.rstrip(bytes(1)).decode()}", numbers, begin)
    blocks = [data[n : n + (1 << 16)] for n in range(start, len(data), 1 << 16)]
    crcs = struct.unpack_from(f"<{len(blocks)}I", data, at)
    assert list(crcs) == list(map(google_crc32c.value, blocks))
    return found


def damage(path: Path, *rows: int) -> list[int]:
    """Flips a bit in some records of a shard; returns where these records begin."""
    offsets: list[int] = index_of(path)[list(rows), 0].tolist()
    flip(path, *(offset + 25 for offset in offsets))
    return offsets


def files_of(directory: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file in a directory, hidden ones included.

    The versions of packages in a manifest are left out, and its checksum, and so are the names of folders, which
    follow from them.
    """
    found = {}
    names = {path.name for path in directory.rglob("*") if re.fullmatch("[0-9a-f]{8}", path.name)}
    folders = re.compile("|".join(names) or "(?!)")
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            if path.name == "manifest.json" or path.parent.name == "generations":
                manifest = json.loads(data)
                del manifest["versions"]
                manifest.pop("crc32c", None)  # Tests also write manifests that are none.
                data = folders.sub("FOLDER", json.dumps(manifest, indent=1)).encode()
            name = folders.sub("FOLDER", str(path.relative_to(directory)))
            assert name not in found
            found[name] = hashlib.sha256(data).hexdigest()
    return found


def folder_of(directory: Path) -> Path:
    """The folder with the files of the newest generation of a dataset that a job wrote."""
    (folder,) = {shard.path.rpartition("/")[0] for shard in Manifest.read(str(directory)).shards}
    return directory / folder


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


def records_of(directory: Path, split: str = "", seed: int | None = None) -> dict[str, Record]:
    """Key -> record of a verified dataset: arrays, and the name of its `split`.

    The indexes of a dataset that a job wrote are compared with the records.

    Args:
        split: The only split to read; "" reads all.
        seed: The seed of the job; None is the one in the manifest, or 0.
    """
    found: dict[str, Record] = {}
    manifest = verified(directory)
    if seed is None:
        seed = manifest.options.get("seed", 0)
    for name, part in manifest.splits.items():
        if part.records and split in ("", name):
            records = _records(directory, name)
            keys = [key_of(record) for record in records]
            if manifest.versions:
                # A record that is written again has its key, and the place of another one.
                places = None if manifest.options.get("job") == "reshard" else keys
                _check_indexes(directory, manifest, name, records, places, seed)
            for key, record in zip(keys, records, strict=True):
                assert key not in found, key
                found[key] = {**record, "split": name}
    return found


def _records(directory: Path, split: str) -> list[Record]:
    source = Records(resolve(str(directory), split, None, None))
    return list(source.read(range(len(source))))


def key_of(record: Record) -> str:
    """The key that a record states."""
    key: bytes = record["key"].item()
    return key.decode()


def has_moved_records(directory: Path, key: Callable[[Record], str] = key_of) -> bool:
    """Whether records of a dataset have moved to other shards.

    Asserts that the indexes say of each record what its key and its values say.

    Args:
        key: Finds the key of a record.
    """
    manifest, moved = Manifest.read(str(directory)), False
    for name, split in manifest.splits.items():
        records = _records(directory, name)
        keys = [key(record) for record in records]
        seed = manifest.options.get("seed", 0)
        hashes = _check_indexes(directory, manifest, name, records, keys, seed)
        # A shard is written in the order of hashes, and so are the shards of a split.
        moved |= len(split.shards) > 1 and bool((np.diff(hashes.astype(np.int64)) < 0).any())
    return moved


def _check_indexes(
    directory: Path,
    manifest: Manifest,
    split: str,
    records: Sequence[Record],
    keys: Sequence[str] | None,
    seed: int,
) -> np.ndarray:
    """Asserts that the indexes of a split say of each record what its key and its values say.

    Args:
        records, keys: All records of the split in their order, and their keys if they are known.
        seed: The seed of the job.

    Returns:
        uint32 [n], the hashes in the indexes.
    """
    parts = [sections_of(directory / shard.path) for shard in manifest.splits[split].shards]
    hashes = [0 if keys is None else order_hash(seed, keys[row]) for row in range(len(records))]
    expected = plain_sections(manifest.schema, records, hashes)
    for part in parts:
        assert part.keys() == {"offset", *expected}
    found = {name: np.concatenate([part[name] for part in parts]) for name in expected}
    if keys is None:
        del expected["hash"], expected["hash/low"]
    for name, numbers in expected.items():
        assert (name, found[name].dtype) == (name, numbers.dtype)
        assert (name, found[name].tobytes()) == (name, numbers.tobytes())
    return found["hash"]


def order_hash(seed: int, key: str) -> int:
    """The hash that decides the place of a record in the order of all."""
    text, whole = key.encode("utf-8", "surrogateescape"), seed.to_bytes(8, "little", signed=True)
    found = hashlib.blake2b(text, digest_size=8, key=whole, person=b"order")
    return int.from_bytes(found.digest(), "little")


def rejects_of(directory: Path) -> dict[str, str]:
    """Key -> reason of every reject; no key is listed twice."""
    lines = [
        json.loads(line.decode(errors="surrogateescape"))
        for path in sorted(folder_of(directory).glob("rejects/*.jsonl"))
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
