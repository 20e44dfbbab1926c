"""The plan for TFRecord files without a manifest."""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from typing import NamedTuple

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local, path_text
from readers.files.of_path import files_of
from readers.format.manifest import INDEX_SUFFIX, TEXT_INDEX_SUFFIX, join
from readers.format.schema import Schema
from readers.order.split import parse_split, shard_ranges, split_name
from readers.shards.gzip_files import decompressed_extent, first_record_bytes, is_gzipped
from readers.shards.index import index_of
from readers.shards.local_shard import version_of
from readers.shards.plan import ALL, Part, Plan

_GLOB = frozenset("*?[")


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
        gzipped: Whether it is compressed with GZIP.
    """

    path: str
    size: int
    version: tuple[int, int] | None
    gzipped: bool

    def part(
        self,
        skip: int = 0,
        take: int | None = None,
        total: int | None = None,
        index_bytes: int = 0,
    ) -> Part:
        """A run of its records; all of an unknown number by default."""
        return Part(
            self.path,
            skip,
            take,
            total,
            gzipped=self.gzipped,
            version=self.version,
            index_bytes=index_bytes,
        )


def files_plan(
    paths: list[str], split: str | None, schema: Schema, scan: bool, any_order: bool
) -> Plan:
    """The plan for files without a manifest; arguments and errors as of `resolve`."""
    if not paths:
        raise ValueError("an empty list of files: there is nothing to read")
    if split is not None and split_name(split) != ALL:
        raise ValueError(
            f"unknown split {split_name(split)!r}: files without a manifest have only {ALL!r}"
        )
    paths = list(map(path_text, paths))
    are_local = all(map(is_local, paths))
    sizes = map_in_threads(_size_and_version, paths, are_local)
    gzipped = map_in_threads(is_gzipped, paths, are_local)
    if any_order and any(gzipped):
        raise ValueError(
            f"{paths[gzipped.index(True)]}: compressed with GZIP, so its records can only be read "
            "from front to back: decompress it, or use readers.load(..., order='interleave') without "
            "buckets and packing"
        )
    found = zip(paths, sizes, gzipped, strict=True)
    files = [_File(path, *known, compressed) for path, known, compressed in found]
    extents = map_in_threads(lambda file: _extent(file, scan), files, are_local)
    known_extents = [extent for extent in extents if extent]
    if len(known_extents) < len(files):
        return _uncounted_plan(files, files[extents.index(None)], split, schema)
    return _counted_plan(files, known_extents, split or ALL, schema)


def _uncounted_plan(
    files: list[_File], uncounted: _File, split: str | None, schema: Schema
) -> Plan:
    """The plan for all records of files, one of which at least has an unknown number of them."""
    if split not in (None, ALL):
        reason = f"{uncounted.path}{INDEX_SUFFIX} is missing"
        if uncounted.gzipped:
            reason = f"{uncounted.path} is compressed with GZIP: decompress it"
        raise ValueError(f"split {split!r}: a slice needs the number of records, and {reason}")
    largest = max(files, key=lambda file: file.size)
    return Plan(
        name=ALL,
        schema=schema,
        parts=tuple(file.part() for file in files),
        records=None,
        record_bytes=first_record_bytes(largest.path, largest.gzipped),
        fingerprint=_fingerprint(files),
    )


def _counted_plan(
    files: list[_File], extents: list[tuple[int, int, int]], split: str, schema: Schema
) -> Plan:
    """The plan for a split of files, given the number of records of each, their bytes and those of its index."""
    counts = [count for count, _, _ in extents]
    records = sum(counts)
    _, start, stop = parse_split(split, {ALL: records})
    return Plan(
        name=split,
        schema=schema,
        parts=tuple(
            files[number].part(skip, take, *extents[number][::2])
            for number, skip, take in shard_ranges(counts, start, stop)
        ),
        records=stop - start,
        record_bytes=sum(size for _, size, _ in extents) / records if records else None,
        fingerprint=(*_fingerprint(files), (start, stop)),
    )


def _fingerprint(files: list[_File]) -> tuple[tuple[str, int], ...]:
    return tuple((os.path.basename(file.path), file.size) for file in files)


def _extent(file: _File, scan: bool) -> tuple[int, int, int] | None:
    """The number of records in a file, their bytes, and those of its index.

    None if that takes a scan, and `scan` is off.
    """
    if file.gzipped:
        return (*decompressed_extent(file.path), 0) if scan else None
    if not (scan or not file.size or files_of(file.path).exists(file.path + INDEX_SUFFIX)):
        return None
    records, _, index_bytes = index_of(replace(file.part(), bytes=file.size))
    return records, file.size, index_bytes


def _size_and_version(file: str) -> tuple[int, tuple[int, int] | None]:
    """The size of a file in bytes, and the version of a local one."""
    try:
        if not is_local(file):
            return files_of(file).stat(file).size, None
        stat = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{file}: no such file") from None
    return stat.st_size, version_of(stat)
