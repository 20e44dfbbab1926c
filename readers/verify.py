"""`readers.verify`: compares every byte of a dataset with its manifest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import google_crc32c
import numpy as np

from readers.files.files import RefusedError
from readers.files.local import path_text
from readers.files.of_path import files_of, read_file
from readers.files.processors import processors
from readers.format.display import counted, format_bytes
from readers.format.lookup.index_file import IndexFile
from readers.format.lookup.rows import unpack_rows
from readers.format.manifest import Manifest, generation_file, join, open_generation
from readers.format.splits import Shard
from readers.format.tfrecord import FRAME_BYTES, intact
from readers.shards.opened.fetch import fetch

# Bytes read at a time: enough for any disk, and few enough for the processor's cache.
_CHUNK_BYTES = 1 << 20

# Bytes read at a time from a damaged shard, to check its records one by one.
_BLOCK_BYTES = 32 << 20

_LENGTH_BYTES = 8


@dataclass(frozen=True)
class Problem:
    """A problem that `verify` found.

    Attributes:
        file: The path of the file.
        message: A description of the problem.
        record: The number of the record in the file; None if the problem concerns the whole file.
        offset: The byte at which the record begins; None without a record.
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
class Verification:
    """The result of `verify`.

    Attributes:
        shards: The number of shards in the manifest, all of which were checked.
        records: The number of their records.
        bytes: Their size.
        problems: The problems, in the order of the files; empty if there are none.
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
        shards, records = counted(self.shards, "shard"), counted(self.records, "record")
        problems = counted(len(self.problems), "problem") if self.problems else "no problems"
        return f"{shards}, {records}, {format_bytes(self.bytes)}: {problems}"


def verify(path: str | os.PathLike[str]) -> Verification:
    """Compares every byte of a dataset with its manifest.

    It finds changed bits, truncated or missing files, swapped or replaced records, and indexes that
    do not match their shards. It reads one shard per core at a time.

    Args:
        path: The dataset's directory: a path, or a URL of an object store or another fsspec protocol.

    Returns:
        The problems; its `ok` is true if there are none.

    Raises:
        DatasetError: (a ValueError) There is no manifest, or it is damaged.
        StoreError: (an OSError) A store fails to deliver the manifest after several retries.

    Example:
        >>> verified = readers.verify("shards/sensors")
        >>> verified.ok, verified.records, verified.problems
        (True, 120, ())
    """
    directory, manifest, _ = open_generation(path_text(path))
    splits = manifest.splits.values()
    shards = [shard for split in splits for shard in split.every_shard]
    indexes = [IndexFile.of(directory, shard) for shard in shards]
    paths = [index.file for index in indexes]
    with ThreadPoolExecutor(processors()) as threads:
        found = list(threads.map(_problems, paths, map(_check_shard, indexes, shards)))
    problems = [problem for several in found for problem in several]
    for name, file in manifest.files.items():
        path = join(directory, file.path)
        problems += _problems(path, _check_file(path, partial(manifest.check_file, name)))
    for split in splits:
        for rows in filter(None, (split.gone, split.rows)):
            path = join(directory, rows.path)
            unpack = partial(unpack_rows, listed=rows, stored=split.stored)
            problems += _problems(path, _check_file(path, unpack))
    path = join(directory, generation_file(manifest.generation))
    problems += _problems(path, _check_generation(path))
    return Verification(
        shards=len(shards),
        records=sum(split.records for split in splits),
        bytes=sum(shard.bytes for shard in shards),
        problems=tuple(problems),
    )


def _problems(path: str, checks: Iterator[Problem]) -> list[Problem]:
    """The problems of a file. A file that cannot be read is a problem, so that other files are still checked."""
    found = list[Problem]()
    try:
        found.extend(checks)
    except FileNotFoundError:
        found.append(Problem(path, "missing"))
    except OSError as error:
        found.append(Problem(path, f"cannot be read: {error}"))
    return found


def _check_shard(of_index: IndexFile, shard: Shard) -> Iterator[Problem]:
    path = of_index.file
    size = files_of(path).stat(path).size
    index, problem = _index(of_index)
    if problem:
        yield Problem(of_index.path, problem)
    crc, headers = _read(path, index)
    if (size, crc) != (shard.bytes, shard.crc32c):
        yield from _damage(path, shard, index, size, crc)
    elif index is not None and (headers != index[:, 1] - FRAME_BYTES).any():
        row = int(np.argmax(headers != index[:, 1] - FRAME_BYTES))
        words = f"it lists a record of {index[row, 1]} bytes at byte {index[row, 0]}"
        yield Problem(of_index.path, f"{words}, but the shard has none there")


def _index(index: IndexFile) -> tuple[np.ndarray | None, str | None]:
    """The (offset, length) of each record, int64 [n, 2], if the index is as written; otherwise its problem."""
    try:
        data = read_file(index.path)
        offsets = index.offsets(index.head(data), data)
    except FileNotFoundError:
        return None, "missing"
    except ValueError as error:
        return None, str(error).removeprefix(f"{index.path}: ")
    return np.stack([offsets[:-1], np.diff(offsets)], 1), None


def _read(path: str, index: np.ndarray | None) -> tuple[int, np.ndarray]:
    """The CRC32C of a file, and the record length stored at each offset of an index, int64 [n]."""
    offsets = np.empty(0, np.int64) if index is None else index[:, 0]
    lengths = np.full(len(offsets), -1, np.int64)
    crc = at = 0
    buffer = bytearray(_LENGTH_BYTES + _CHUNK_BYTES)
    octets = np.frombuffer(buffer, np.uint8)
    with files_of(path).open(path) as file:
        while count := file.readinto(memoryview(buffer)[_LENGTH_BYTES:]):
            crc = google_crc32c.extend(crc, octets[_LENGTH_BYTES : _LENGTH_BYTES + count])
            # The buffer also holds the last bytes of the previous chunk.
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
    if size != shard.bytes:
        yield Problem(path, f"found {size:,} bytes, the manifest states {shard.bytes:,}")
    bad = [] if index is None else list(_damaged_records(path, index, size))
    yield from bad
    if not bad and size == shard.bytes:
        message = f"its CRC32C is {crc:08x}, the manifest states {shard.crc32c:08x}"
        if index is not None:
            message += "; each record is intact, so some were swapped or replaced"
        yield Problem(path, message)


def _damaged_records(path: str, index: np.ndarray, size: int) -> Iterator[Problem]:
    blocks = np.flatnonzero(np.diff(index[:, 0] // _BLOCK_BYTES)) + 1
    for first, rows in zip(np.append(0, blocks), np.split(index, blocks), strict=True):
        there = rows[rows.sum(axis=1) <= size]
        if len(there):
            start, length = int(there[0, 0]), int(there[:, 1].sum())
            data = bytearray(length)
            fetch([(path, [(0, start, length, 0)])], memoryview(data))
            for row in np.flatnonzero(~intact(data, there[:, 1])).tolist():
                yield Problem(path, "damaged", int(first) + row, int(there[row, 0]))
        for row in range(len(there), len(rows)):
            yield Problem(path, "truncated or missing", int(first) + row, int(rows[row, 0]))


def _check_file(path: str, check: Callable[[bytes], object]) -> Iterator[Problem]:
    """The problem of a file for whose bytes a function raises an error, if there is one."""
    try:
        check(read_file(path))
    except (ValueError, RecursionError) as error:
        yield Problem(path, str(error))


def _check_generation(path: str) -> Iterator[Problem]:
    """The problem of the newest generation's manifest. It may be missing, because readers use its copy."""
    try:
        yield from _check_file(path, Manifest.from_bytes)
    except (FileNotFoundError, PermissionError) as error:
        # Stores answer 403 for a missing file if the user may not list.
        if isinstance(error, RefusedError):
            raise
