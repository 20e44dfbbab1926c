"""Input files: from patterns to keys, from keys to paths, from paths to bytes.

A key is a file's path below the common root of all patterns. The root is taken from the patterns
alone, so a key does not depend on which files match, nor on where the data lies.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from beam_jobs.errors import UsageError
from beam_jobs.storage.objects import is_store, store_of
from beam_jobs.storage.paths import _FIXED, _fixed_folder, _is_seen, _unescaped, is_local


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


def _remote_files(pattern: str) -> Iterator[File]:
    """Yields the files that a pattern matches in a store, or in a filesystem of Beam's with folders.

    Links aside, they are the files that `local_files` would yield.
    """
    folder, prefix = _fixed_folder(pattern), _FIXED.findall(pattern)[0]
    wanted, hidden = _matching(pattern), "/." in pattern[len(folder) :]
    top = _unescaped(folder)
    if is_store(pattern):
        found: Iterable[tuple[str, int, int]] = store_of(pattern).listed(_unescaped(prefix))
    else:
        found = walked_files(top)
    for path, size, modified in found:
        if wanted.match(path) and _is_seen(path, top, hidden):
            yield File(path, size, modified)


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
        if is_store(pattern) or FileSystems.get_filesystem(pattern).has_dirs():
            yield from itertools.islice(_remote_files(pattern), limit)
            return
        result = FileSystems.match([pattern], limits=[limit])[0]
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--input {pattern}: {error}") from None
    listed = result.metadata_list
    for found in sorted(listed, key=lambda file: file.path) if in_order else listed:
        modified = int((found.last_updated_in_seconds or 0) * 1e9)
        yield File(found.path, found.size_in_bytes, modified)
