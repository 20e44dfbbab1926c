"""Reads sections of the indexes of shards, one shard after another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local, open_local
from readers.files.mapped import MappedFile
from readers.files.mounts import is_on_local_disk
from readers.files.of_path import read_file
from readers.format.index import parse_head
from readers.format.manifest import INDEX_SUFFIX, DatasetError, join
from readers.format.splits import Shard

# Indexes that are read from a store at a time.
_AT_ONCE = 16

ADVICE = "copy it again from where the job wrote it, or run the job again"


def sections(
    directory: str, shards: Sequence[Shard], names: Iterable[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields some sections of the index of each shard: name -> array [records], or [records + 1] for `OFFSET`.

    An index on a local disk is mapped, and only the blocks of these sections are read and checked. Others are read whole.

    Raises:
        FileNotFoundError: An index is missing.
        DatasetError: (a ValueError) An index is damaged, belongs to another file, or lacks a section.
    """
    names = list(names)
    on_disk = is_local(directory) and is_on_local_disk(os.path.realpath(directory))
    for first in range(0, len(shards), _AT_ONCE):
        group = shards[first : first + _AT_ONCE]
        paths = [join(directory, shard.path) + INDEX_SUFFIX for shard in group]
        data = map(_mapped, paths) if on_disk else map_in_threads(_fetched, paths, False, _AT_ONCE)
        for path, shard, octets in zip(paths, group, data, strict=True):
            yield _sections(octets, path, shard, names)


def _mapped(path: str) -> Any:
    try:
        with open_local(path) as file:
            return MappedFile(file).view
    except FileNotFoundError:
        raise _missing(path) from None


def _fetched(path: str) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError:
        raise _missing(path) from None


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(f"{path}: the manifest lists this index, but it is missing; {ADVICE}")


def _sections(data: Any, path: str, shard: Shard, names: Sequence[str]) -> dict[str, np.ndarray]:
    try:
        head = parse_head(data, path)
    except ValueError as error:
        raise DatasetError(f"{error}; {ADVICE}") from None
    known = head.records, head.bytes, head.size, head.crc32c
    if known != (shard.records, shard.bytes, shard.index_bytes, shard.index_crc32c):
        raise DatasetError(f"{path}: it does not belong to its file in the manifest; {ADVICE}")
    for name in names:
        if name not in head.sections:
            raise DatasetError(f"{path}: no section {name!r}: it has {', '.join(head.sections)}")
        at = head.damaged(data, name)
        if at is not None:
            raise DatasetError(f"{path}: damaged at byte {at}; {ADVICE}")
    return {name: head.numbers(data, name) for name in names}
