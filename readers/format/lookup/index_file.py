"""The file of an index: opened on this machine, and compared with what is known about it."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple

from readers.files.kept import kept
from readers.files.local import is_local, open_local
from readers.files.mounts import is_on_local_disk
from readers.files.of_path import files_of
from readers.format.index import Head, parse_head
from readers.format.manifest import DatasetError, index_path, join
from readers.format.splits import Shard


class IndexFile(NamedTuple):
    """An index, and what is known about it; None for what is not.

    Attributes:
        path: Its path.
        records, shard_bytes: The number of records in its TFRecord file, and the size of that.
        size: Its size in bytes.
        crc32c: The checksum of its head, if a manifest lists it.
    """

    path: str
    records: int | None
    shard_bytes: int | None
    size: int | None
    crc32c: int | None

    @classmethod
    def of(cls, directory: str, shard: Shard) -> IndexFile:
        """The index of a shard that a manifest lists."""
        sizes = shard.records, shard.bytes, shard.index_bytes, shard.index_crc32c
        return cls(join(directory, index_path(shard)), *sizes)

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
        """Opens it, if a manifest lists it, as a local file.

        Raises:
            FileNotFoundError: It is missing.
            DatasetError: (a ValueError) It is in a store, and is damaged or does not belong to its file.
            OSError: It cannot be read.
        """
        if not self.is_on_local_disk:
            return kept(self.key, self.fetch)
        try:
            file: BinaryIO = open_local(self.path)
        except FileNotFoundError:
            raise self._missing() from None
        return file

    @property
    def key(self) -> tuple[str, int | None, int | None]:
        """The key of its local copy."""
        return self.path, self.size, self.crc32c

    def fetch(self) -> bytes:
        """Reads its bytes, and checks them: a damaged copy would outlive the repair of the original."""
        try:
            data = files_of(self.path).read(self.path, 0, self.size or None)
        except FileNotFoundError:
            if self.crc32c is None:
                raise
            raise self._missing() from None
        at = self.head(data).damaged(data)
        if at is not None:
            raise self.damaged(at)
        return data

    def head(self, data: Any) -> Head:
        """Parses the head, given all bytes; DatasetError if it does not belong to its file."""
        try:
            head = parse_head(data, self.path)
        except ValueError as error:
            raise DatasetError(f"{error}; {self.advice}") from None
        for what, found, expected in (
            ("records", head.records, self.records),
            ("bytes of records", head.bytes, self.shard_bytes),
            ("bytes", head.size, self.size),
            ("as the CRC32C of its head", _hex(head.crc32c), _hex(self.crc32c)),
        ):
            if expected not in (None, found):
                source = "its file has" if self.crc32c is None else "the manifest states"
                raise DatasetError(
                    f"{self.path}: {found} {what}, {source} {expected}; {self.advice}"
                )
        return head

    def damaged(self, at: int) -> DatasetError:
        """The error for a damaged block that begins at a byte."""
        return DatasetError(f"{self.path}: damaged at byte {at}; {self.advice}")

    def _missing(self) -> FileNotFoundError:
        return FileNotFoundError(
            f"{self.path}: the manifest lists this index, but it is missing; {self.advice}"
        )


def _hex(crc: int | None) -> str | None:
    return None if crc is None else f"{crc:08x}"
