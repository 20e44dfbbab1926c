"""Input files: from patterns to keys, from keys to paths, from paths to bytes.

A key is a file's path below the common root of all patterns. The root is taken from the patterns
alone, so a key does not depend on which files match, nor on where the data lies.
"""

from __future__ import annotations

import glob
import io
import itertools
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from beam_jobs.errors import UsageError
from beam_jobs.storage_options import tell_beam
from beam_jobs.stores import is_store, open_near, open_object, read_object, store_of

# Beam is imported where a path is remote: what reads local files starts in a tenth of a second.

GLOB = re.compile(r"[*?\[]")
_ESCAPED = re.compile(r"\[([*?[])\]")
_FIXED = re.compile(r"(?:[^*?\[]|\[[*?[]\])*")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


class File(NamedTuple):
    """One file that a pattern matches.

    Attributes:
        path: Or the key, where said so.
        size: In bytes.
        modified: Nanoseconds since the epoch.
    """

    path: str
    size: int
    modified: int


# A key is a feature of its record, and text in an Example is UTF-8.
NOT_UTF8 = "the file's name is not UTF-8: rename it"


def is_utf8(key: str) -> bool:
    """Whether a file's name is UTF-8; Python keeps other bytes as lone surrogates."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_local(path: str) -> bool:
    """Whether a path has no `scheme://`."""
    return not _SCHEME.match(path)


def absolute(pattern: str) -> str:
    """The pattern as a worker in another directory must see it; most remote ones as they are.

    A directory, local or of a store, stands for all files below it; a local path that is there is
    meant as it stands, whatever characters it holds.

    Raises:
        UsageError: It is empty, or a store refuses.
    """
    if not pattern:
        raise UsageError("--input is empty: name files or a folder")
    if is_store(pattern) and not GLOB.search(pattern):
        return pattern.rstrip("/") + ("/**" if _is_store_folder(pattern) else "")
    if not is_local(pattern):
        return pattern
    # Not Path.resolve: a link must keep its name, or keys would differ between machines.
    path = Path(pattern.rstrip("/") or "/").expanduser().absolute()
    if path.exists():
        return glob.escape(str(path)) + ("/**" if path.is_dir() else "")
    return str(path)


def _is_store_folder(path: str) -> bool:
    """Whether objects lie below a path and none has its name."""
    path = path.rstrip("/")
    store = store_of(path)
    named = next(store.listed(path), None)  # A name stands before all that begin with it.
    if named and named.path == path:
        return False
    return any(_is_seen(found.path, path) for found in store.listed(f"{path}/"))


def absolute_path(path: str) -> str:
    """A path as a worker in another directory must see it; remote ones as they are."""
    return str(Path(path).expanduser().absolute()) if is_local(path) else path.rstrip("/")


def _fixed_folder(pattern: str) -> str:
    """The deepest folder above all that one pattern can match, as it stands in the pattern."""
    fixed: str = _FIXED.findall(pattern)[0]
    return fixed.rsplit("/", 1)[0]


def _unescaped(pattern: str) -> str:
    """The path that a pattern spells, as `glob.escape` wrote it."""
    return _ESCAPED.sub(r"\1", pattern)


def common_root(patterns: list[str]) -> str:
    """The deepest directory above everything that the patterns can match, without a final slash.

    Args:
        patterns: As `absolute` gives them.

    Raises:
        UsageError: They lie on different filesystems.
    """
    parts = []
    for pattern in patterns:
        parts.append(_unescaped(_fixed_folder(pattern)).split("/"))
    common = parts[0]
    for other in parts[1:]:
        same = [a == b for a, b in zip(common, other, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    root = "/".join(common)
    if not all(map(is_local, patterns)) and len(common) < 3:
        raise UsageError(f"--input {' '.join(patterns)}: the inputs have no common directory")
    return root


def local_files(pattern: str, in_order: bool = False) -> Iterator[File]:
    """Yields the local files that a pattern matches, as a shell would.

    Linked folders are entered, unlike in Beam's own walk, which leaves them out without a word.
    Names that begin with a dot are passed over unless the pattern spells the dot. A link to
    nothing is a file that cannot be read.

    Args:
        in_order: By name within a folder; this holds all of a folder in memory.
    """
    fixed = _fixed_folder(pattern)
    top = _unescaped(fixed)
    wanted = _matching(pattern)
    hidden = "/." in pattern[len(fixed) :]

    def walk(folder: str, above: frozenset[str]) -> Iterator[File]:
        real = os.path.realpath(folder)
        if real in above:  # a link to a folder above itself
            return
        try:
            entries: Iterable[os.DirEntry[str]] = os.scandir(folder or "/")
        except (FileNotFoundError, NotADirectoryError):
            return
        if in_order:
            entries = sorted(entries, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.name.startswith(".") and not hidden:
                continue
            if _is_folder(entry):
                yield from walk(path, above | {real})
            elif wanted.match(path):
                yield _listed(entry, path)

    return walk(top, frozenset())


def _matching(pattern: str) -> re.Pattern[str]:
    """What the paths that a pattern matches look like, as all of Beam's filesystems understand it."""
    from apache_beam.io.localfilesystem import LocalFileSystem
    from apache_beam.options.pipeline_options import PipelineOptions

    regex = LocalFileSystem(PipelineOptions([])).translate_pattern(pattern)
    return re.compile(regex.replace("[[]", r"\["))  # the same, without Python's warning


def _store_files(pattern: str) -> Iterator[File]:
    """Yields the objects that a pattern matches, as `local_files` would yield files."""
    top = _unescaped(_fixed_folder(pattern))
    begin: str = _FIXED.findall(pattern)[0]
    wanted = _matching(pattern)
    hidden = "/." in pattern[len(_fixed_folder(pattern)) :]
    for found in store_of(pattern).listed(_unescaped(begin)):
        if wanted.match(found.path) and _is_seen(found.path, top, hidden):
            yield File(*found)


def walked_files(folder: str) -> Iterator[File]:
    """Yields all files below a folder of a filesystem of Beam's that has folders, such as HDFS.

    Its `match` looks into one folder alone, and takes folders for empty files.

    Raises:
        OSError: The filesystem refuses.
    """
    from apache_beam.io.filesystems import FileSystems

    def entries(below: str) -> list[Any]:
        listed: list[Any] = FileSystems.match([f"{below}/*"])[0].metadata_list
        return listed

    def walk(found: list[Any]) -> Iterator[File]:
        for entry in found:
            inside = [] if entry.size_in_bytes else entries(entry.path)
            # An empty file lists itself, as its own nameless entry.
            if entry.size_in_bytes or any(one.path == f"{entry.path}/" for one in inside):
                modified = int((entry.last_updated_in_seconds or 0) * 1e9)
                yield File(entry.path, entry.size_in_bytes, modified)
            else:
                yield from walk(inside)

    if FileSystems.exists(folder):
        yield from walk(entries(folder))


def _walked(pattern: str) -> Iterator[File]:
    """Yields the files that a pattern of such a filesystem matches."""
    top = _unescaped(_fixed_folder(pattern))
    wanted = _matching(pattern)
    hidden = "/." in pattern[len(_fixed_folder(pattern)) :]
    for found in walked_files(top):
        if wanted.match(found.path) and _is_seen(found.path, top, hidden):
            yield found


def _is_seen(path: str, top: str, hidden: bool = False) -> bool:
    """Whether an object is a file for those who look below `top`.

    Consoles make empty objects whose names end with a slash, to show folders.
    """
    return not path.endswith("/") and (hidden or "/." not in path[len(top) :])


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _listed(entry: os.DirEntry[str], path: str) -> File:
    try:
        status = entry.stat()
    except OSError:  # a link to nothing, or to itself
        return File(path, 0, 0)
    return File(path, status.st_size, status.st_mtime_ns)


def match(pattern: str, limit: int | None = None, in_order: bool = False) -> Iterator[File]:
    """Yields the files that a pattern matches.

    Args:
        limit: How many at most: then they come in order of their names, and are the same ones in
            every run.
        in_order: Whether they come so without a limit as well.

    Raises:
        UsageError: The filesystem refuses, or no package for it is installed.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems

    try:
        if is_local(pattern):
            found = local_files(pattern, in_order or limit is not None)
            yield from itertools.islice(found, limit)
            return
        if is_store(pattern):
            yield from itertools.islice(_store_files(pattern), limit)
            return
        if FileSystems.get_filesystem(pattern).has_dirs():
            yield from itertools.islice(_walked(pattern), limit)
            return
        result = FileSystems.match([pattern], limits=[limit])[0]
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--input {pattern}: {error}") from None
    listed = result.metadata_list
    for found in sorted(listed, key=lambda file: file.path) if in_order else listed:
        modified = int((found.last_updated_in_seconds or 0) * 1e9)
        yield File(found.path, found.size_in_bytes, modified)


def open_file(path: str) -> BinaryIO:
    """A file on any Beam filesystem, open for reading as it is: never decompressed.

    Raises:
        OSError: It is missing or unreadable.
    """
    if is_local(path):
        return open(_open_regular(path), "rb")
    if is_store(path):
        return open_object(path)
    from apache_beam.io.filesystem import BeamIOError, CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    tell_beam()
    try:
        file: Any = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except BeamIOError as error:
        raise OSError(str(error)) from None
    except Exception as error:  # HDFS has errors of its own.
        if type(error).__name__ != "HdfsError":
            raise
        raise OSError(f"{path}: {str(error).splitlines()[0][:200]}") from None
    return file


def _open_regular(path: str) -> int:
    """The descriptor of a local file; a pipe or a device would never end, or never begin."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is no regular file")
    return descriptor


def open_seekable(path: str) -> BinaryIO:
    """A file on any Beam filesystem that is cheap to seek in: a remote one is read first.

    Raises:
        OSError: It is missing or unreadable.
    """
    if is_store(path):
        return open_near(path)
    return open_file(path) if is_local(path) else io.BytesIO(read_bytes(path))


def read_bytes(path: str) -> bytes:
    """A whole file on any Beam filesystem, as it is.

    Raises:
        OSError: It is missing or unreadable.
    """
    if is_store(path):
        return read_object(path)
    if not is_local(path):
        with open_file(path) as file:
            return file.read()
    # A third of the time of Path.read_bytes, which counts where files are a few kilobytes.
    descriptor = _open_regular(path)
    try:
        size = os.fstat(descriptor).st_size
        parts = [os.read(descriptor, size + 1)]
        while parts[-1] and sum(map(len, parts)) != size:
            parts.append(os.read(descriptor, 1 << 20))
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(descriptor)
