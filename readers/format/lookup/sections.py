"""Reads sections of the indexes of shards, one shard after another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.mapped import MappedFile
from readers.format.lookup.index_file import IndexFile
from readers.format.manifest import DatasetError
from readers.format.splits import Shard

# Indexes that are open at a time, and requested from a store together.
_AT_ONCE = 16


def sections(
    directory: str, shards: Sequence[Shard], names: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields some sections of the index of each shard: name -> array [records], or [records + 1] for `OFFSET`.

    Only the blocks of these sections are read and checked; an index in a store is copied once to this machine.

    Raises:
        FileNotFoundError: An index is missing.
        DatasetError: (a ValueError) An index is damaged, belongs to another file, or lacks a section.
    """
    return sections_of([IndexFile.of(directory, shard) for shard in shards], names)


def joined_sections(
    files: Iterable[tuple[Collection[str], Sequence[IndexFile]]], names: Sequence[str]
) -> list[dict[str, np.ndarray]]:
    """The same from several indexes for each shard, given the features in each of them."""
    found = list[dict[str, np.ndarray]]()
    for features, indexes in files:
        found = found or [{} for _ in indexes]
        if some := [name for name in names if name.partition("/")[2] in features]:
            for columns, more in zip(found, sections_of(indexes, some), strict=True):
                columns.update(more)
    return found


def sections_of(
    indexes: Sequence[IndexFile], names: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the same for the indexes of some files."""
    for first in range(0, len(indexes), _AT_ONCE):
        some = indexes[first : first + _AT_ONCE]
        are_local = all(index.is_on_local_disk for index in some)
        files = map_in_threads(IndexFile.open, some, are_local, _AT_ONCE)
        for index, file in zip(some, files, strict=True):
            with file:
                yield _sections(index, np.frombuffer(MappedFile(file).view, np.uint8), names)


def _sections(index: IndexFile, data: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
    head = index.head(data)
    for name in names:
        if name not in head.sections:
            raise DatasetError(
                f"{index.path}: no section {name!r}, it has {', '.join(head.sections)}"
            )
        at = head.damaged(data, name)
        if at is not None:
            raise index.damaged(at)
    return {name: head.numbers(data, name) for name in names}
