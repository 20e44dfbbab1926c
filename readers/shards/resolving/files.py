"""The plan for TFRecord files without a manifest."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local, path_text
from readers.files.of_path import files_of
from readers.format.manifest import INDEX_SUFFIX, TEXT_INDEX_SUFFIX, join
from readers.format.schema import Schema
from readers.order.split import parse_split, shard_ranges
from readers.shards.index import index_of
from readers.shards.opened.local_shard import version_of
from readers.shards.plan import ALL, Part, Plan

_GLOB = frozenset("*?[")

# In seconds: counting that takes longer shows its progress.
_MOMENT = 2.0

# The number of records in a file, their bytes, and those of its index.
_Extent = tuple[int, int, int]


def is_glob(path: str) -> bool:
    """Whether a path is a pattern, and not the name of a file that has such characters."""
    if not _GLOB.intersection(path):
        return False
    files = files_of(path)
    return not (files.exists(path) or files.is_folder(path))


def found_files(path: str) -> list[str]:
    """The TFRecord files of a glob or a directory, sorted; or the path itself if it is neither.

    Raises:
        FileNotFoundError: There are none.
    """
    files = files_of(path)
    if is_glob(path):
        pattern = path
    elif files.is_folder(path):
        pattern = join(glob.escape(path), "*.tfrecord*")
    else:
        return [path]
    indexes = INDEX_SUFFIX, TEXT_INDEX_SUFFIX
    found = [file for file in files.glob(pattern) if not file.endswith(indexes)]
    if not found:
        raise FileNotFoundError(f"{path}: no TFRecord files here")
    return found


class _File(NamedTuple):
    """A file to read.

    Attributes:
        path: Its path; or URL.
        size: Its size in bytes.
        version: The version of a local file.
    """

    path: str
    size: int
    version: tuple[int, int] | None

    def part(self, skip: int, take: int, total: int | None, index_bytes: int) -> Part:
        """A run of its records."""
        return Part(self.path, skip, take, total, version=self.version, index_bytes=index_bytes)


def files_plan(paths: list[str], split: str | None, schema: Schema) -> Plan:
    """The plan for files without a manifest; arguments and errors as of `resolve`."""
    if not paths:
        raise ValueError("an empty list of files: there is nothing to read")
    paths = list(map(path_text, paths))
    are_local = all(map(is_local, paths))
    sizes = map_in_threads(_size_and_version, paths, are_local)
    files = [_File(path, *known) for path, known in zip(paths, sizes, strict=True)]
    with _progress(len(files)) as advance:
        extents = map_in_threads(lambda file: advance(_extent(file)), files, are_local)
    counts = [count for count, _, _ in extents]
    records = sum(counts)
    split = split or ALL
    runs = parse_split(split, {ALL: records})
    return Plan(
        name=split,
        schema=schema,
        parts=tuple(
            files[number].part(skip, take, *extents[number][::2])
            for _, start, stop in runs
            for number, skip, take in shard_ranges(counts, start, stop)
        ),
        records=sum(stop - start for _, start, stop in runs),
        record_bytes=sum(size for _, size, _ in extents) / records if records else None,
        fingerprint=(*_fingerprint(files), *(run[1:] for run in runs)),
    )


def _fingerprint(files: list[_File]) -> tuple[tuple[str, int], ...]:
    return tuple((os.path.basename(file.path), file.size) for file in files)


def _extent(file: _File) -> _Extent:
    """The number of records in a file, their bytes, and those of its index."""
    records, _, index_bytes = index_of(replace(file.part(0, 0, None, 0), bytes=file.size))
    return records, file.size, index_bytes


@contextlib.contextmanager
def _progress(files: int) -> Iterator[Callable[[_Extent], _Extent]]:
    """Shows how many files are counted, in a line of standard error, if that takes more than a moment."""
    counted, shown, began = itertools.count(1), False, time.monotonic()

    def advance(extent: _Extent) -> _Extent:
        nonlocal shown
        number = next(counted)
        if (shown or time.monotonic() - began > _MOMENT) and sys.stderr is not None:
            shown = True
            print(
                f"\rcounting the records of {number} of {files} files without a manifest",
                end="",
                file=sys.stderr,
                flush=True,
            )
        return extent

    try:
        yield advance
    finally:
        if shown:
            print(file=sys.stderr)


def _size_and_version(file: str) -> tuple[int, tuple[int, int] | None]:
    """The size of a file in bytes, and the version of a local one."""
    try:
        if not is_local(file):
            return files_of(file).stat(file).size, None
        stat = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{file}: no such file") from None
    return stat.st_size, version_of(stat)
