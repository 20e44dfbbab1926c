"""`readers.verify`: whether a dataset is what its manifest says, byte for byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

from readers.files.remote import file_size, open_file
from readers.format.display import format_bytes
from readers.format.manifest import INDEX_SUFFIX, TOKENIZER, VOCABULARY, Manifest, Shard, join
from readers.format.tfrecord import FRAME_BYTES, intact
from readers.shards.fetch import ShardBytes
from readers.shards.index import read_sidecar

# Tokens that are not in the vocabulary's file: padding and unknown.
_RESERVED = 2

# Read at a time: large enough for any disk, small enough for the processor's cache.
_CHUNK_BYTES = 1 << 20

# Of records that are looked at one by one, where a shard is damaged.
_BLOCK_BYTES = 32 << 20

_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Problem:
    """One thing that is not as it should be.

    Attributes:
        file: Its path.
        message: What is wrong.
        record: The number of the record in its file; None where it is about the whole file.
        offset: Where the record begins, in bytes.
    """

    file: str
    message: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        if self.record is None:
            return f"{self.file}: {self.message}"
        return f"{self.file}: record {self.record} at byte {self.offset}: {self.message}"


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes:
        shards, records, bytes: What the manifest lists, all of which was looked at.
        problems: In the order of the files; none where all is well.
    """

    shards: int
    records: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def __str__(self) -> str:
        looked = f"{self.shards:,} shards, {self.records:,} records, {format_bytes(self.bytes)}"
        if self.ok:
            return f"{looked}: all as written"
        return f"{looked}: {len(self.problems):,} problems"


def verify(path: str | os.PathLike[str]) -> Report:
    """Reads every byte of a dataset and holds it against the manifest.

    It finds changed bits, cut or missing files, records that were swapped or replaced, and indexes
    that do not fit. Shards are read side by side, one by each core.

    Args:
        path: The dataset's directory, on any filesystem that fsspec knows.

    Raises:
        DatasetError: (a ValueError) There is no manifest, or it cannot be read.
    """
    directory = os.fspath(path)
    manifest = Manifest.read(directory)
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = list(threads.map(lambda shard: list(_check(directory, shard)), shards))
    problems = [problem for several in found for problem in several]
    if manifest.vocabulary:
        problems += _check_vocabulary(join(directory, VOCABULARY), manifest.vocabulary)
    if manifest.tokenizer:
        problems += _check_tokenizer(join(directory, TOKENIZER), manifest.tokenizer)
    return Report(
        shards=len(shards),
        records=sum(shard.records for shard in shards),
        bytes=sum(shard.bytes for shard in shards),
        problems=tuple(problems),
    )


def _check(directory: str, shard: Shard) -> Iterator[Problem]:
    path = join(directory, shard.file)
    try:
        size = file_size(path)
    except FileNotFoundError:
        yield Problem(path, "missing")
        return
    index, problem = _index(path, shard)
    if problem:
        yield Problem(path + INDEX_SUFFIX, problem)
    crc, headers = _read(path, index)
    if (size, crc) != (shard.bytes, shard.crc32c):
        yield from _damage(path, shard, index, size, crc)
    elif index is not None and (headers != index[:, 1] - FRAME_BYTES).any():
        row = int(np.argmax(headers != index[:, 1] - FRAME_BYTES))
        yield Problem(
            path + INDEX_SUFFIX, f"no record of {index[row, 1]} bytes is at {index[row, 0]}"
        )


def _index(path: str, shard: Shard) -> tuple[np.ndarray | None, str | None]:
    """The index where it can be that of the shard as it was written, or what is wrong with it."""
    try:
        index = read_sidecar(path, shard.bytes)
    except ValueError as error:
        return None, str(error).removeprefix(f"{path}{INDEX_SUFFIX}: ")
    if index is None:
        return None, "missing"
    if len(index) != shard.records:
        return None, f"{len(index)} records, the manifest says {shard.records}"
    if (index[:, 0] != np.cumsum(index[:, 1]) - index[:, 1]).any():
        return None, "its records do not follow one after another"
    return index, None


def _read(path: str, index: np.ndarray | None) -> tuple[int, np.ndarray]:
    """The CRC32C of a file, and the length that stands at each offset of an index, int64 [n]."""
    offsets = np.empty(0, np.int64) if index is None else index[:, 0]
    lengths = np.full(len(offsets), -1, np.int64)
    crc = at = 0
    buffer = bytearray(_LENGTH_BYTES + _CHUNK_BYTES)
    octets = np.frombuffer(buffer, np.uint8)
    with open_file(path) as file:
        while count := file.readinto(memoryview(buffer)[_LENGTH_BYTES:]):
            crc = google_crc32c.extend(crc, octets[_LENGTH_BYTES : _LENGTH_BYTES + count])
            # What is known now begins with the last bytes of the chunk before.
            first = at - _LENGTH_BYTES
            low, high = np.searchsorted(
                offsets, [max(first + 1, 0), at + count - _LENGTH_BYTES + 1]
            )
            places = (offsets[low:high] - first)[:, None] + np.arange(_LENGTH_BYTES)
            lengths[low:high] = octets[places].view("<i8")[:, 0]
            octets[:_LENGTH_BYTES] = octets[count : count + _LENGTH_BYTES].copy()
            at += count
    return crc, lengths


def _damage(
    path: str, shard: Shard, index: np.ndarray | None, size: int, crc: int
) -> Iterator[Problem]:
    """What is wrong with a shard that is not as it was written."""
    if size != shard.bytes:
        yield Problem(path, f"{size:,} bytes, the manifest says {shard.bytes:,}")
    bad = 0
    for problem in [] if index is None else _damaged_records(path, index, size):
        bad += 1
        yield problem
    if not bad and size == shard.bytes:
        told = f"its CRC32C is {crc:08x}, the manifest says {shard.crc32c:08x}"
        if index is None:
            yield Problem(path, told)
        else:
            yield Problem(path, f"{told}; each record is whole, so some were swapped or replaced")


def _damaged_records(path: str, index: np.ndarray, size: int) -> Iterator[Problem]:
    shard = ShardBytes(path)
    blocks = np.flatnonzero(np.diff(index[:, 0] // _BLOCK_BYTES)) + 1
    for first, rows in zip(np.append(0, blocks), np.split(index, blocks), strict=True):
        there = rows[rows.sum(axis=1) <= size]
        if len(there):
            start, length = int(there[0, 0]), int(there[:, 1].sum())
            data = bytearray(length)
            shard.read([(0, start, length, 0)], memoryview(data))
            for row in np.flatnonzero(~intact(data, there[:, 1])).tolist():
                yield Problem(path, "damaged", int(first) + row, int(there[row, 0]))
        for row in range(len(there), len(rows)):
            yield Problem(path, "cut off or missing", int(first) + row, int(rows[row, 0]))


def _check_vocabulary(path: str, tokens: int) -> Iterator[Problem]:
    try:
        with open_file(path) as file:
            found = file.read().count(b"\n")
    except FileNotFoundError:
        yield Problem(path, "missing")
        return
    if found != tokens - _RESERVED:
        yield Problem(path, f"{found:,} words, the manifest says {tokens - _RESERVED:,}")


def _check_tokenizer(path: str, ids: int) -> Iterator[Problem]:
    try:
        with open_file(path) as file:
            found = _ids_in(json.loads(file.read()))
    except FileNotFoundError:
        yield Problem(path, "missing")
        return
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        yield Problem(path, f"no tokenizer ({error})")
        return
    if found != ids:
        yield Problem(path, f"{found:,} ids, the manifest says {ids:,}")


def _ids_in(tokenizer: dict[str, Any]) -> int:
    """One more than the largest id of a tokenizer, by its file as JSON."""
    vocabulary = tokenizer["model"]["vocab"]
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = (token["id"] for token in tokenizer.get("added_tokens") or ())
    return 1 + max([-1, *ids, *added])
