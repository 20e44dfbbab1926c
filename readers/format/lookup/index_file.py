"""The index of a TFRecord file: opened on this machine, or made by a scan, and compared with what is known about it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.kept import drop, kept
from readers.files.local import is_local, open_local
from readers.files.mapped import MappedFile
from readers.files.mounts import is_on_local_disk
from readers.files.of_path import files_of
from readers.format.index import Head, checked_offsets, head_crc32c, parse_head
from readers.format.lookup.scan import scanned
from readers.format.manifest import DatasetError, index_path, join
from readers.format.splits import Shard

# Indexes that are open at a time, and requested from a store together.
_AT_ONCE = 16


class IndexFile(NamedTuple):
    """An index, and what is known about it; None for what is not.

    Its methods raise OSError if a file cannot be read, and DatasetError (a ValueError) if the index is damaged or does not
    belong to its file.

    Attributes:
        path: Its path.
        file: The path of its TFRecord file.
        records, file_bytes: The number of records in that, and its size.
        size: Its own size in bytes.
        crc32c: The checksum of its head, if a manifest lists it.
        outside_of: The directory of the dataset that lists it, if its TFRecord file is in another.
    """

    path: str
    file: str
    records: int | None
    file_bytes: int | None
    size: int | None
    crc32c: int | None
    outside_of: str = ""

    @classmethod
    def of(cls, directory: str, shard: Shard) -> IndexFile:
        """The index of a shard that a manifest lists."""
        path, file = (join(directory, name) for name in (index_path(shard), shard.path))
        known = shard.records, shard.bytes, shard.index_bytes, shard.index_crc32c
        return cls(path, file, *known, "" if file.startswith(join(directory, "")) else directory)

    @property
    def is_on_local_disk(self) -> bool:
        """Whether it is mapped where it is; any other is copied once to this machine."""
        return is_local(self.path) and is_on_local_disk(
            os.path.dirname(os.path.realpath(self.path))
        )

    @property
    def advice(self) -> str:
        """Advice if it is damaged, or does not belong to its file."""
        if self.crc32c is None:
            return "delete the index"
        return "copy it again from where the job wrote it, or run the job again"

    def open(self) -> BinaryIO:
        """Opens it as a local file, which a scan makes if no manifest lists it and it is missing.

        Raises:
            FileNotFoundError: The manifest lists it, but it is missing.
            CorruptRecordError: (a ValueError) The file has no index, and its records do not fill it without gaps.
        """
        if self.is_on_local_disk:
            try:
                file: BinaryIO = open_local(self.path)
                return file
            except FileNotFoundError:
                if self.crc32c is not None:
                    raise self.missing(self.path, "index") from None
        return kept(*self._copy())

    def _copy(self) -> tuple[Any, Callable[[], bytes]]:
        """The key of its local copy, and a function that makes that."""
        if self.crc32c is not None:
            return (self.path, self.size, self.crc32c), self.fetch
        try:
            data = self.fetch()
        except FileNotFoundError:
            version = files_of(self.file).stat(self.file).version
            return (self.file, version), lambda: scanned(self.file).to_bytes()
        return (self.path, len(data), head_crc32c(data)), lambda: data

    def forget(self) -> bool:
        """Deletes the local copy, so that the next process makes it again; returns whether there was one."""
        if self.is_on_local_disk and Path(self.path).exists():
            return False
        return drop(self._copy()[0])

    def fetch(self) -> bytes:
        """Reads its bytes, and checks them: a damaged copy would outlive the repair of the original."""
        try:
            data = files_of(self.path).read(self.path, 0, self.size or None)
        except FileNotFoundError:
            if self.crc32c is None:
                raise
            raise self.missing(self.path, "index") from None
        at = self.head(data).damaged(data)
        if at is not None:
            raise self._damaged(at)
        return data

    def head(self, data: Any) -> Head:
        """Parses the head, given all bytes."""
        try:
            head = parse_head(data, self.path)
        except ValueError as error:
            raise DatasetError(f"{error}; {self.advice}") from None
        for what, found, expected in (
            ("records", head.records, self.records),
            ("bytes of records", head.bytes, self.file_bytes),
            ("bytes", head.size, self.size),
            ("as the CRC32C of its head", _hex(head.crc32c), _hex(self.crc32c)),
        ):
            if expected not in (None, found):
                source = "its file has" if self.crc32c is None else "the manifest states"
                raise DatasetError(
                    f"{self.path}: {found} {what}, {source} {expected}; {self.advice}"
                )
        return head

    def read_head(self) -> Head:
        """Opens it for its head."""
        with self.open() as file:
            return self.head(MappedFile(file).view)

    def read_offsets(self) -> np.ndarray:
        """Opens it for `offsets`."""
        with self.open() as file:
            data = file.read()
        return self.offsets(self.head(data), data)

    def offsets(self, head: Head, data: Any) -> np.ndarray:
        """The byte at which each record begins and the last one ends, int64 [records + 1], given the head and all bytes."""
        try:
            return checked_offsets(data, head, self.path)
        except ValueError as error:
            raise DatasetError(f"{error}; {self.advice}") from None

    def sections(self, data: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Some sections: name -> array [records], or [records + 1] for `OFFSET`; only their blocks are read and checked."""
        head = self.head(data)
        for name in names:
            if name not in head.sections:
                raise DatasetError(
                    f"{self.path}: no section {name!r}, it has {', '.join(head.sections)}"
                )
            at = head.damaged(data, name)
            if at is not None:
                raise self._damaged(at)
        return {name: head.numbers(data, name) for name in names}

    def _damaged(self, at: int) -> DatasetError:
        return DatasetError(f"{self.path}: damaged at byte {at}; {self.advice}")

    def missing(self, path: str, what: str) -> FileNotFoundError:
        """An error that says that a file is missing, this one or its TFRecord file."""
        if self.outside_of:
            return FileNotFoundError(
                f"{path}: missing; {self.outside_of} reads this file of another dataset, which has since been "
                f"overwritten, purged, moved or deleted. Delete {self.outside_of}, and run select, merge or index again"
            )
        return FileNotFoundError(
            f"{path}: the manifest lists this {what}, but it is missing; {self.advice}"
        )


def sections_of(
    indexes: Sequence[IndexFile], names: Sequence[str]
) -> Iterator[dict[str, np.ndarray]]:
    """Yields `IndexFile.sections` of several indexes, one after another; an index in a store is copied once to this machine."""
    for first in range(0, len(indexes), _AT_ONCE):
        some = indexes[first : first + _AT_ONCE]
        are_local = all(index.is_on_local_disk for index in some)
        files = map_in_threads(IndexFile.open, some, are_local, _AT_ONCE)
        for index, file in zip(some, files, strict=True):
            with file:
                yield index.sections(np.frombuffer(MappedFile(file).view, np.uint8), names)


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


def _hex(crc: int | None) -> str | None:
    return None if crc is None else f"{crc:08x}"
