"""Lists the files that a pattern matches, on any filesystem."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from beam_jobs.errors import UsageError
from beam_jobs.storage.object_store import FileInfo
from beam_jobs.storage.objects import is_store, store_of
from beam_jobs.storage.paths import FIXED, fixed_folder, is_local, is_seen, unescaped
from beam_jobs.storage.ranges import ALL, Span, listed_in_ranges, spans_of


def local_files(pattern: str, in_order: bool = False) -> Iterator[FileInfo]:
    """Yields the local files that a pattern matches, as a shell would.

    Symlinked folders are followed; Beam's own walk silently leaves them out. Names that begin with a
    dot are skipped unless the pattern contains the dot. A broken symlink is a file that cannot be read.

    Args:
        in_order: Whether to sort each folder by name, which holds its entries in memory.
    """
    fixed = fixed_folder(pattern)
    top = unescaped(fixed)
    wanted = _matching(pattern)
    hidden = "/." in pattern[len(fixed) :]

    def walk(folder: str, above: frozenset[str]) -> Iterator[FileInfo]:
        real = os.path.realpath(folder)
        if real in above:  # A link to a folder above itself.
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
                yield _local_info(entry, path)

    return walk(top, frozenset())


def _matching(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression, as all of Beam's filesystems translate it."""
    from apache_beam.io.localfilesystem import LocalFileSystem
    from apache_beam.options.pipeline_options import PipelineOptions

    regex = LocalFileSystem(PipelineOptions([])).translate_pattern(pattern)
    return re.compile(regex.replace("[[]", r"\["))  # The same, without Python's warning.


def _remote_files(pattern: str, limited: bool, span: Span) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches in a store, or on a Beam filesystem with folders.

    Apart from symlinks, the same files match as in `local_files`.

    Args:
        limited: Whether only the first ones are needed, so that a store is listed page by page.
        span: The names that a store lists.
    """
    folder, prefix = fixed_folder(pattern), FIXED.findall(pattern)[0]
    wanted, hidden = _matching(pattern), "/." in pattern[len(folder) :]
    top = unescaped(folder)
    if is_store(pattern):
        store, start = store_of(pattern), unescaped(prefix)
        found: Iterable[FileInfo] = (
            store.listed(start) if limited else listed_in_ranges(store, start, span)
        )
    else:
        found = walked_files(top)
    for file in found:
        if wanted.match(file.path) and is_seen(file.path, top, hidden):
            yield file


def walked_files(folder: str) -> Iterator[FileInfo]:
    """Yields all files under a folder of a Beam filesystem that has folders, such as HDFS.

    Beam's `match` lists a single folder, and reports its sub-folders as empty files.

    Raises:
        OSError: the filesystem refuses.
    """
    from apache_beam.io.filesystems import FileSystems

    def entries(below: str) -> list[Any]:
        listed: list[Any] = FileSystems.match([f"{below}/*"])[0].metadata_list
        return listed

    def walk(found: list[Any]) -> Iterator[FileInfo]:
        for entry in found:
            inside = [] if entry.size_in_bytes else entries(entry.path)
            # An empty file lists itself, with a nameless entry.
            if entry.size_in_bytes or any(one.path == f"{entry.path}/" for one in inside):
                yield beam_info(entry)
            else:
                yield from walk(inside)

    if FileSystems.exists(folder):
        yield from walk(entries(folder))


def beam_info(metadata: Any) -> FileInfo:
    """One of Beam's `FileMetadata`."""
    modified = int((metadata.last_updated_in_seconds or 0) * 1e9)
    return FileInfo(metadata.path, metadata.size_in_bytes, modified)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A link to itself.
        return False


def _local_info(entry: os.DirEntry[str], path: str) -> FileInfo:
    try:
        status = entry.stat()
    except OSError:  # A broken link.
        return FileInfo(path, 0, 0)
    return FileInfo(path, status.st_size, status.st_mtime_ns)


def spans_of_pattern(pattern: str, is_alone: Callable[[str], bool]) -> list[Span]:
    """The spans that a listing of a pattern in a store is cut into; arguments as for `spans_of`."""
    with _as_usage_errors(pattern):
        return spans_of(store_of(pattern), unescaped(FIXED.findall(pattern)[0]), is_alone)


@contextlib.contextmanager
def _as_usage_errors(pattern: str) -> Iterator[None]:
    """Raises the errors of a filesystem as what they mean for a pattern."""
    from apache_beam.io.filesystem import BeamIOError

    try:
        yield
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--input {pattern}: {error}") from None


def match(
    pattern: str, limit: int | None = None, in_order: bool = False, span: Span = ALL
) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches.

    Args:
        limit: Maximum number of files. The first ones by name are yielded, the same in every run.
        in_order: Whether to sort by name without a limit, too.
        span: The names that are listed, if the pattern is in a store and there is no limit.

    Raises:
        UsageError: the filesystem refuses, or its package is not installed.
    """
    from apache_beam.io.filesystems import FileSystems

    with _as_usage_errors(pattern):
        if is_local(pattern):
            found = local_files(pattern, in_order or limit is not None)
            yield from itertools.islice(found, limit)
            return
        if is_store(pattern) or FileSystems.get_filesystem(pattern).has_dirs():
            yield from itertools.islice(_remote_files(pattern, limit is not None, span), limit)
            return
        result = FileSystems.match([pattern], limits=[limit])[0]
    listed = map(beam_info, result.metadata_list)
    yield from sorted(listed) if in_order else listed
