"""Shards of a store kept on a local disk, within a limit; many processes may share the directory.

fsspec's own caches are none of this: `filecache`, `simplecache` and `blockcache` never take anything
away, and write a list of their files that two processes overwrite for each other.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import google_crc32c

from readers.files.remote import ask, file_size, filesystem_of, local_path, read_ranges
from readers.format.display import format_bytes
from readers.shards.plan import Part

_LOGGER = logging.getLogger("readers")

DEFAULT_CACHE_SIZE = "10GiB"

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}

_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", re.IGNORECASE)

# The only names that are ever written or taken away.
_OWN = re.compile(r"[0-9a-f]{40}\.(shard|partial)")

_LOCK = "cache.lock"

# Fetched and written at a time.
_PIECE_BYTES, _PIECES_AT_ONCE = 8 << 20, 4

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def parse_cache_size(size: int | str) -> int:
    """Bytes of `"10GiB"`, `"500MB"` or 1000.

    Raises:
        ValueError: It is no size, or not positive.
    """
    count = 0
    if isinstance(size, str):
        matched = _SIZE.fullmatch(size.strip())
        count = int(float(matched[1]) * _UNITS[(matched[2] or "").lower()]) if matched else 0
    elif isinstance(size, int) and not isinstance(size, bool):
        count = size
    if count <= 0:
        raise ValueError(f"cache_size={size!r}: expected a size such as '10GiB', or bytes")
    return count


def cache_of(
    cache_dir: str | os.PathLike[str] | None, cache_size: int | str | None
) -> ShardCache | None:
    """The cache that two arguments of a reader are for.

    Raises:
        ValueError: They are none for a cache, or go without each other.
        OSError: Nothing can be written there.
    """
    if cache_dir is None:
        if cache_size is not None:
            raise ValueError(f"cache_size={cache_size!r} is for a cache: give cache_dir too")
        return None
    directory = os.path.expanduser(os.fspath(cache_dir))
    local = local_path(directory)
    if not local:
        raise ValueError(f"cache_dir={directory!r}: expected a local directory")
    limit = parse_cache_size(DEFAULT_CACHE_SIZE if cache_size is None else cache_size)
    cache = ShardCache(str(Path(local).absolute()), limit)
    cache.check()
    return cache


@dataclass(frozen=True)
class ShardCache:
    """A directory of whole shards, named by what they hold.

    A shard is in it under its name when it is whole, and held against the manifest; until then it is
    a file that whoever fills it has locked. The least recently opened are taken away for others. A
    file that was taken away stays with those who have opened it.

    Args:
        directory: A local one.
        limit: Of the sizes of its files, in bytes.
    """

    directory: str
    limit: int

    def check(self) -> None:
        """Sees to it that the directory is there and can be written.

        Raises:
            OSError: It cannot.
        """
        try:
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            with self._locked():
                pass
        except OSError as error:
            raise OSError(
                f"cache_dir={self.directory!r} cannot be written ({error.strerror or error}): give a "
                "directory of a local disk that this user may write to"
            ) from None

    def chosen(self, parts: Sequence[Part]) -> frozenset[str]:
        """The paths of the remote files to be kept: the first ones that fit together.

        Of files that do not fit, whichever one is read next is the one that was just taken away; so
        the others are read where they are.
        """
        left, paths = self.limit, set[str]()
        for part in parts:
            if local_path(part.path) is not None or part.path in paths:
                continue
            size = _size_of(part)
            if size > left:
                break
            left -= size
            paths.add(part.path)
        return frozenset(paths)

    def open(self, part: Part) -> BinaryIO | None:
        """A shard's file, which is fetched first unless it is here; None where it cannot be kept.

        Raises:
            StoreError: (an OSError) The store does not give it.
            FileNotFoundError: The store has no such file.
        """
        size = _size_of(part)
        path = Path(self.directory, f"{_key(part, size)}.shard")
        try:
            while True:
                with contextlib.suppress(FileNotFoundError):
                    file = path.open("rb")
                    os.utime(path)  # The least recently opened one goes first.
                    return file
                with _alone(path.with_suffix(".partial")) as partial:
                    if partial is not None and not path.exists():
                        return self._filled(part, size, partial, path)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._not_kept(part, error.strerror or str(error))
            return None

    def _filled(self, part: Part, size: int, partial: BinaryIO, path: Path) -> BinaryIO | None:
        """The file of a shard, once it is fetched; None for one that is not as the manifest says."""
        if not self._make_room(size, partial, path.with_suffix(".partial")):
            self._not_kept(part, f"no room for {format_bytes(size)} beside what is being fetched")
            return None
        crc = _fetch(part.path, size, partial)
        if crc is None or part.crc32c not in (None, crc):
            # Of which record it is, its own checksum tells.
            self._not_kept(part, "it is not what the manifest says")
            return None
        # Else a machine that stops may have the name without the bytes.
        os.fsync(partial.fileno())
        file = path.with_suffix(".partial").open("rb")
        path.with_suffix(".partial").rename(path)
        return file

    def _not_kept(self, part: Part, why: str) -> None:
        _LOGGER.warning(
            "%s: not kept in cache_dir=%r, so it is read from the store each time: %s",
            part.path,
            self.directory,
            why,
        )

    def _make_room(self, size: int, partial: BinaryIO, own: Path) -> bool:
        """Whether there is room for so many bytes, which the partial file has then."""
        with self._locked():
            files = [(path, stat) for path, stat in self._files() if path != own]
            held = sum(stat.st_size for _, stat in files)
            for path, stat in sorted(files, key=lambda each: each[1].st_mtime_ns):
                if held + size <= self.limit:
                    break
                if path.suffix == ".shard":
                    path.unlink(missing_ok=True)
                elif not _left_behind(path):
                    continue
                held -= stat.st_size
            if held + size > self.limit:
                return False
            _allocate(partial, size)
        return True

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in Path(self.directory).iterdir():
            if _OWN.fullmatch(path.name):
                with contextlib.suppress(FileNotFoundError):
                    yield path, path.stat()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Lets one process or thread at a time look through the directory."""
        with Path(self.directory, _LOCK).open("ab") as file, _flocked(file):
            yield


@contextlib.contextmanager
def _flocked(file: BinaryIO) -> Iterator[None]:
    """A file's lock; closing it would not do where a process was forked in between."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[BinaryIO | None]:
    """A partial file that nobody else fills; None where somebody has just done so."""
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(opened, "r+b", buffering=0) as file, _flocked(cast(BinaryIO, file)):
        if not _is_file_of(path, opened):
            yield None
            return
        try:
            # A process may have died over it.
            file.truncate(0)
            yield cast(BinaryIO, file)
        finally:
            # It has another name once it is whole.
            if _is_file_of(path, opened):
                path.unlink()


def _size_of(part: Part) -> int:
    if part.bytes is not None:
        return part.bytes
    return int(ask(part.path, lambda filesystem, name: filesystem.size(name)))


def _key(part: Part, size: int) -> str:
    """What tells a shard's contents from those of others, without anything of the path that is secret."""
    state: Any = part.crc32c
    if state is None:
        state = ask(part.path, lambda filesystem, name: filesystem.ukey(name))
    text = repr((part.path, size, state))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _fetch(path: str, size: int, output: BinaryIO) -> int | None:
    """The CRC32C of a file that is copied in pieces; None if it has not the size."""
    if file_size(path) != size:
        return None
    filesystem, name = filesystem_of(path)
    pieces = [
        (path, name, first, min(first + _PIECE_BYTES, size))
        for first in range(0, size, _PIECE_BYTES)
    ]
    crc = 0
    for at in range(0, len(pieces), _PIECES_AT_ONCE):
        several = pieces[at : at + _PIECES_AT_ONCE]
        for (_, _, first, last), data in zip(
            several, read_ranges(filesystem, several), strict=True
        ):
            if len(data) != last - first:
                return None
            crc = google_crc32c.extend(crc, data)
            _write(output, data)
    return crc


def _write(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _allocate(file: BinaryIO, size: int) -> None:
    """Takes the room at once, so that a full disk is found before anything is fetched."""
    allocate: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
    if allocate and size:
        allocate(file.fileno(), 0, size)
    else:
        file.truncate(size)


def _left_behind(path: Path) -> bool:
    """Takes away a partial file that nobody fills any more; whether it was one."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(path, file.fileno()):
                path.unlink()
            fcntl.flock(file, fcntl.LOCK_UN)
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
