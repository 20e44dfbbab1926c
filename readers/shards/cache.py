"""A cache of an object store's shards on a local disk, of limited size and shared by any number of processes."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import google_crc32c
import numpy as np

from readers.files.files import Range
from readers.files.kept_files import KeptFiles, write
from readers.files.local import is_local, path_text
from readers.files.of_path import files_of
from readers.format.display import parse_bytes
from readers.shards.plan import Part

_LOGGER = logging.getLogger("readers")

# The size of one request, and the number of requests whose responses are written together. Half as many
# requests as with 8 MiB are as fast if several shards are fetched at a time.
_REQUEST_BYTES, _REQUESTS_AT_ONCE = 16 << 20, 2

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Cache:
    """A local directory that keeps whole shards of a store: `cache=readers.Cache("/local/cache", "500GiB")`.

    Any number of processes may share it. A shard gets its name once it is complete and matches the
    manifest; until then it is a partial file, locked by the process that fills it. The least recently
    opened shards are deleted to make room for others; a process that has one of them open continues to
    read it. Only the user may read the directory and its files, whoever may read the store.

    Attributes:
        directory: A directory on a local disk, which is created if necessary.
        size: The maximum size of its files, as `"500GiB"` or in bytes; stored in bytes.

    Raises:
        ValueError: The directory is not local, or the size is not valid.

    Example:
        >>> readers.Cache("/local/cache", "500GiB").size
        536870912000
    """

    directory: str
    size: int = 10 << 30

    if TYPE_CHECKING:  # The directory may be a path, and the size a text.

        def __init__(self, directory: str | os.PathLike[str], size: int | str = ...) -> None: ...

    def __post_init__(self) -> None:
        directory, size = path_text(self.directory), self.size
        if not directory or not is_local(directory):
            raise ValueError(f"Cache({directory!r}): expected a local directory")
        count = parse_bytes(size) if isinstance(size, str) else size
        count = int(count) if isinstance(count, np.integer) else count
        if type(count) is not int or count <= 0:
            raise ValueError(
                f"Cache(size={size!r}): expected a size such as '10GiB', or a number of bytes"
            )
        object.__setattr__(self, "directory", str(Path(directory).absolute()))
        object.__setattr__(self, "size", count)

    def cacheable(self, parts: Sequence[Part]) -> frozenset[str]:
        """The paths of the remote files to cache: the first ones that fit together.

        If all files were cached in turn although they do not fit, the next file to read would always be
        one that was just deleted. So the others are read from the store.
        """
        left, paths = self.size, set[str]()
        for part in parts:
            if is_local(part.path) or part.path in paths:
                continue
            size = _size_of(part)
            if size > left:
                break
            left -= size
            paths.add(part.path)
        return frozenset(paths)

    def open(self, part: Part) -> BinaryIO | None:
        """Opens the cached file of a shard, after fetching it if necessary; None if it cannot be kept, which is logged.

        Raises StoreError (an OSError) if the store did not deliver the shard, FileNotFoundError if it does not exist there.
        """
        size = _size_of(part)
        try:
            file = self._files.fill(_name(part, size), size, lambda out: _fetched(part, size, out))
            reason = "it does not match the manifest"
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            file, reason = None, error.strerror or str(error)
        if file is None:
            text = "%s: not kept in readers.Cache(%r), so it is read from the store each time: %s"
            _LOGGER.warning(text, part.path, self.directory, reason)
        return file

    def drop(self, part: Part) -> None:
        """Deletes the copy of a shard, which is damaged; the next reader fetches it again."""
        name = _name(part, _size_of(part))
        self._files.drop(name)
        text = "%s: its copy %s in readers.Cache(%r) is damaged and was deleted; it is read from the store"
        _LOGGER.warning(text, part.path, name, self.directory)

    @property
    def _files(self) -> KeptFiles:
        return KeptFiles(self.directory, self.size)


def check_cache(cache: Cache | None) -> None:
    """Creates the directory of the argument `cache` of a reader; ValueError if it is not a cache, OSError if it cannot be written."""
    if cache is None:
        return
    if not isinstance(cache, Cache):
        raise ValueError(f"cache={cache!r}: expected readers.Cache(DIRECTORY, '500GiB')")
    try:
        KeptFiles(cache.directory, cache.size).check()
    except OSError as error:
        raise OSError(
            f"Cache({cache.directory!r}) cannot be written ({error.strerror or error}): choose a "
            "directory on a local disk that this user may write to"
        ) from None


def _size_of(part: Part) -> int:
    return files_of(part.path).stat(part.path).size if part.bytes is None else part.bytes


def _name(part: Part, size: int) -> str:
    """A name for the content of a shard that does not reveal secrets in its path."""
    state: Any = part.crc32c
    if state is None:
        state = files_of(part.path).stat(part.path).version
    text = repr((part.path, size, state))
    return hashlib.sha256(text.encode()).hexdigest()[:40] + ".shard"


def _fetched(part: Part, size: int, output: BinaryIO) -> bool:
    """Copies a shard from its store; returns whether its size and CRC32C match the manifest.

    If not, the checksums of the records will show which of them is damaged.
    """
    path, crc = part.path, 0
    # If the size differs from the manifest's, so does the checksum.
    if part.crc32c is None and files_of(path).stat(path).size != size:
        return False
    ranges = [
        Range(path, first, min(first + _REQUEST_BYTES, size))
        for first in range(0, size, _REQUEST_BYTES)
    ]
    for at in range(0, len(ranges), _REQUESTS_AT_ONCE):
        batch = ranges[at : at + _REQUESTS_AT_ONCE]
        for wanted, data in zip(batch, files_of(path).read_ranges(batch), strict=True):
            if len(data) != wanted.stop - wanted.start:
                return False
            crc = google_crc32c.extend(crc, data)
            write(output, data)
    return part.crc32c in (None, crc)
