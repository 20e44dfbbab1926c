"""Makes the plan for TFRecord files without a manifest."""

from __future__ import annotations

import glob
import os
from dataclasses import replace

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local
from readers.files.of_path import files_of
from readers.format.lookup.index_file import IndexFile
from readers.format.manifest import INDEX_SUFFIX, TEXT_INDEX_SUFFIX, join
from readers.format.schema import Schema
from readers.order.split import parse_split, shard_ranges
from readers.shards.opened.local_shard import version_of
from readers.shards.plan import ALL, Part, Plan

_GLOB = frozenset("*?[")


def is_glob(path: str) -> bool:
    """Whether a path is a pattern, and not the name of an existing file with such characters."""
    if not _GLOB.intersection(path):
        return False
    files = files_of(path)
    return not (files.exists(path) or files.is_folder(path))


def found_files(path: str) -> list[str]:
    """The sorted TFRecord files of a glob or a directory, or the path itself; FileNotFoundError if a folder has none."""
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


def files_plan(paths: list[str], split: str | None, schema: Schema) -> Plan:
    """Makes the plan for files without a manifest; arguments and errors as for `resolve`."""
    are_local = all(map(is_local, paths))
    files = map_in_threads(_uncounted, paths, are_local)
    files = map_in_threads(_counted, files, are_local)
    counts = [file.take for file in files]
    records = sum(counts)
    split = split or ALL
    runs = parse_split(split, {ALL: records})
    return Plan(
        name=split,
        schema=schema,
        parts=tuple(
            replace(files[number], skip=skip, take=take, bytes=None)
            for _, start, stop in runs
            for number, skip, take in shard_ranges(counts, start, stop)
        ),
        records=sum(stop - start for _, start, stop in runs),
        record_bytes=sum(file.bytes or 0 for file in files) / records if records else None,
        fingerprint=(
            *((os.path.basename(file.path), file.bytes) for file in files),
            *(run[1:] for run in runs),
        ),
    )


def _uncounted(path: str) -> Part:
    """The part for a file whose records are not counted yet."""
    try:
        stat = os.stat(path) if is_local(path) else None
        size = stat.st_size if stat else files_of(path).stat(path).size
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path}: no such file") from None
    index = IndexFile(path + INDEX_SUFFIX, path, None, size, None, None)
    return Part(path, 0, 0, None, index, size, version=version_of(stat) if stat else None)


def _counted(file: Part) -> Part:
    """The part with all records of a file, counted."""
    head = file.index.read_head()
    index = file.index._replace(records=head.records, file_bytes=None, size=head.size)
    return replace(file, take=head.records, total=head.records, index=index)
