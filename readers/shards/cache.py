"""A cache of a store's shards on a local disk, of limited size and shared by any number of processes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import google_crc32c
import numpy as np

from readers.files.files import Range
from readers.files.local import is_local, path_text
from readers.files.locks import locked, open_partial, remove_abandoned
from readers.files.of_path import files_of
from readers.format.display import format_bytes, parse_bytes
from readers.shards.plan import Part

_LOGGER = logging.getLogger("readers")

# The only files in the directory that are ever written or deleted, apart from the lock.
_OWN_FILES = re.compile(r"[0-9a-f]{40}\.(shard|partial)")

_LOCK = "cache.lock"

# The size of one request, and the number of requests whose responses are written together. Half as many
# requests as with 8 MiB are as fast as long as several shards are fetched at a time.
_REQUEST_BYTES, _REQUESTS_AT_ONCE = 16 << 20, 2

# A link, or a socket.
_NO_FILE = {errno.ELOOP, errno.ENXIO}

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_cache(cache: Cache | None) -> None:
    """Checks the argument `cache` of a reader, and makes sure that its directory can be written.

    Raises:
        ValueError: It is no cache.
        OSError: The directory cannot be written.
    """
    if cache is not None:
        if not isinstance(cache, Cache):
            raise ValueError(f"cache={cache!r}: expected readers.Cache(DIRECTORY, '500GiB')")
        cache.check()


@dataclass(frozen=True)
class Cache:
    """A local directory that keeps whole shards of a store: `cache=readers.Cache("/local/cache", "500GiB")`.

    Any number of processes may share it. A shard gets its name once it is complete and matches the
    manifest. Until then it is a partial file, locked by the process that fills it. The least recently
    opened shards are deleted to make room for others; a process that has one of them open continues to
    read it. Only its user may read the directory and its files, whoever may read the store.

    Args:
        directory: A directory on a local disk, which is created if necessary.
        size: The maximum size of its files, as `"500GiB"` or in bytes.

    Attributes:
        directory: Its absolute path.
        size: The maximum size of its files, in bytes.

    Raises:
        ValueError: The directory is not local, or the size is none.
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

    def check(self) -> None:
        """Creates the directory if necessary, and makes sure that it can be written.

        Raises:
            OSError: The directory cannot be written.
        """
        try:
            Path(self.directory).mkdir(0o700, parents=True, exist_ok=True)
            with self._locked():
                pass
        except OSError as error:
            raise OSError(
                f"Cache({self.directory!r}) cannot be written ({error.strerror or error}): give a "
                "directory on a local disk that this user may write to"
            ) from None

    def cacheable(self, parts: Sequence[Part]) -> frozenset[str]:
        """The paths of the remote files to cache: the first ones that fit together.

        If all files were cached in turn although they do not fit, the one to read next would always be
        the one that was just deleted. So the others are read from the store.
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
        """Opens the cached file of a shard, and fetches it first if necessary.

        Returns:
            The open file; None if the shard cannot be cached, which is logged as a warning.

        Raises:
            StoreError: (an OSError) The store did not deliver the shard.
            FileNotFoundError: The shard does not exist in the store.
        """
        size = _size_of(part)
        path = Path(self.directory, f"{_key(part, size)}.shard")
        try:
            while True:
                with contextlib.suppress(FileNotFoundError):
                    file = self._opened(path, size)
                    if file is not None:
                        os.utime(path)  # The least recently opened shards are deleted first.
                        return file
                    path.unlink()
                with open_partial(path.with_suffix(".partial")) as partial:
                    if partial is not None and not path.exists():
                        return self._filled(part, size, partial, path)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            self._warn(part, error.strerror or str(error))
            return None

    def drop(self, part: Part) -> None:
        """Deletes the copy of a shard, which is damaged: the next reader fetches it again."""
        path = Path(self.directory, f"{_key(part, _size_of(part))}.shard")
        path.unlink(missing_ok=True)
        _LOGGER.warning(
            "%s: its copy %s in readers.Cache(%r) is damaged and was deleted; it is read from the store",
            part.path,
            path.name,
            self.directory,
        )

    def _opened(self, path: Path, size: int) -> BinaryIO | None:
        """Opens a file of the cache; None if it is not whole, or not what the cache has written."""
        try:
            file = open(path, "rb", opener=_open_no_link)  # noqa: SIM115 - the caller closes it
        except OSError as error:
            if error.errno in _NO_FILE:
                return None
            raise
        found = os.fstat(file.fileno())
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid in _owners(self.directory)
        if is_own and found.st_size == size:
            return file
        file.close()
        return None

    def _filled(self, part: Part, size: int, partial: BinaryIO, path: Path) -> BinaryIO | None:
        """Fetches a shard and opens its file; None if there is no room or it is not as expected."""
        partial_path = path.with_suffix(".partial")
        if not self._make_room(size, partial, partial_path):
            self._warn(
                part, f"no room for {format_bytes(size)} next to the shards that are being fetched"
            )
            return None
        # Another size than the manifest's shows in the checksum.
        has_size = part.crc32c is not None or _stated(part.path) == size
        crc = _fetch(part.path, size, partial) if has_size else None
        if crc is None or part.crc32c not in (None, crc):
            # The checksums of the records will show which of them is damaged.
            self._warn(part, "it does not match the manifest")
            return None
        # Otherwise the name may survive a crash of the machine, but not the bytes.
        os.fsync(partial.fileno())
        file = partial_path.open("rb")
        partial_path.rename(path)
        return file

    def _warn(self, part: Part, reason: str) -> None:
        _LOGGER.warning(
            "%s: not kept in readers.Cache(%r), so it is read from the store each time: %s",
            part.path,
            self.directory,
            reason,
        )

    def _make_room(self, size: int, partial: BinaryIO, own: Path) -> bool:
        """Reserves space for a partial file, in bytes; returns False if there is no room for it."""
        with self._locked():
            files = [(path, stat) for path, stat in self._files() if path != own]
            held = sum(stat.st_size for _, stat in files)
            for path, stat in sorted(files, key=lambda each: each[1].st_mtime_ns):
                if held + size <= self.size:
                    break
                if path.suffix == ".shard":
                    path.unlink(missing_ok=True)
                elif not remove_abandoned(path):
                    continue
                held -= stat.st_size
            if held + size > self.size:
                return False
            _reserve(partial, size)
        return True

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """The cache's own files."""
        for path in Path(self.directory).iterdir():
            if _OWN_FILES.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.lstat()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Admits one process or thread at a time to the accounting of sizes."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(Path(self.directory, _LOCK), flags, 0o600)
        with os.fdopen(descriptor, "ab") as file, locked(file):
            yield


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file without following a link, or waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _owners(directory: str) -> set[int]:
    """The users whose files a cache trusts: this one, and the owner of its directory.

    A server of files may state another owner than this user for all that it writes.
    """
    return {os.geteuid(), os.stat(directory).st_uid}


def _size_of(part: Part) -> int:
    return _stated(part.path) if part.bytes is None else part.bytes


def _stated(path: str) -> int:
    """The size of a file in bytes, as its store states it."""
    return files_of(path).stat(path).size


def _key(part: Part, size: int) -> str:
    """A name for the content of a shard, 40 hexadecimal digits, that reveals no secret of its path."""
    state: Any = part.crc32c
    if state is None:
        state = files_of(part.path).stat(part.path).version
    text = repr((part.path, size, state))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _fetch(path: str, size: int, output: BinaryIO) -> int | None:
    """Copies a file from a store, and returns its CRC32C; None if the file is shorter."""
    ranges = [
        Range(path, first, min(first + _REQUEST_BYTES, size))
        for first in range(0, size, _REQUEST_BYTES)
    ]
    crc = 0
    for at in range(0, len(ranges), _REQUESTS_AT_ONCE):
        batch = ranges[at : at + _REQUESTS_AT_ONCE]
        for wanted, data in zip(batch, files_of(path).read_ranges(batch), strict=True):
            if len(data) != wanted.stop - wanted.start:
                return None
            crc = google_crc32c.extend(crc, data)
            _write(output, data)
    return crc


def _write(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _reserve(file: BinaryIO, size: int) -> None:
    """Allocates disk space in advance, so that a full disk is noticed before anything is fetched."""
    allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if allocate and size:
        allocate(file.fileno(), 0, size)
    else:
        file.truncate(size)
