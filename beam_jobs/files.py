"""Input files: from patterns to keys, from keys to paths, from paths to bytes.

A key is a file's path below the common root of all patterns. The root is taken from the patterns
alone, so a key does not depend on which files match, nor on where the data lies.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from beam_jobs.errors import UsageError

GLOB = re.compile(r"[*?\[]")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


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
    """The pattern as a worker in another directory must see it; remote ones as they are.

    A local directory stands for all files below it; a path that is there is meant as it stands,
    whatever characters it holds.

    Raises:
        UsageError: It is empty.
    """
    if not pattern:
        raise UsageError("--input is empty: name files or a folder")
    if not is_local(pattern):
        return pattern
    # Not Path.resolve: a link must keep its name, or keys would differ between machines.
    path = Path(pattern.rstrip("/") or "/").expanduser().absolute()
    if path.exists():
        return glob.escape(str(path)) + ("/**" if path.is_dir() else "")
    return str(path)


def common_root(patterns: list[str]) -> str:
    """The deepest directory above everything that the patterns can match, without a final slash.

    Args:
        patterns: As `absolute` gives them.

    Raises:
        UsageError: They lie on different filesystems.
    """
    parts = []
    for pattern in patterns:
        fixed = GLOB.split(pattern, maxsplit=1)[0]
        parts.append(fixed.rsplit("/", 1)[0].split("/"))
    common = parts[0]
    for other in parts[1:]:
        same = [a == b for a, b in zip(common, other, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    root = "/".join(common)
    if not all(map(is_local, patterns)) and len(common) < 3:
        raise UsageError(f"--input {' '.join(patterns)}: the inputs have no common directory")
    return root


def local_files(pattern: str) -> Iterator[tuple[str, int]]:
    """Yields (path, size in bytes) of the local files that a pattern matches, as a shell would.

    Linked folders are entered, unlike in Beam's own walk, which leaves them out without a word.
    Names that begin with a dot are passed over unless the pattern spells the dot. A link to
    nothing is a file that cannot be read.
    """
    fixed = GLOB.split(pattern, maxsplit=1)[0]
    top = fixed.rsplit("/", 1)[0]
    regex = LocalFileSystem(PipelineOptions([])).translate_pattern(pattern)
    wanted = re.compile(regex.replace("[[]", r"\["))  # the same, without Python's warning
    hidden = "/." in pattern[len(top) :]

    def walk(folder: str, above: frozenset[str]) -> Iterator[tuple[str, int]]:
        real = os.path.realpath(folder)
        if real in above:  # a link to a folder above itself
            return
        try:
            entries = sorted(os.scandir(folder or "/"), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            path = f"{folder}/{entry.name}"
            if entry.name.startswith(".") and not hidden:
                continue
            if entry.is_dir():
                yield from walk(path, above | {real})
            elif wanted.match(path):
                broken = entry.is_symlink() and not entry.is_file()
                yield path, 0 if broken else entry.stat().st_size

    return walk(top, frozenset())


def match(pattern: str, limit: int | None = None) -> list[tuple[str, int]]:
    """The files that a pattern matches, as (path, size in bytes), sorted by path.

    Raises:
        UsageError: The filesystem refuses, or no package for it is installed.
    """
    try:
        if is_local(pattern):
            return sorted(itertools.islice(local_files(pattern), limit))
        result = FileSystems.match([pattern], limits=[limit])[0]
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--input {pattern}: {error}") from None
    return sorted((found.path, found.size_in_bytes) for found in result.metadata_list)


def read_bytes(path: str) -> bytes:
    """A whole file on any Beam filesystem, as it is: never decompressed.

    Raises:
        OSError: It is missing or unreadable.
    """
    if is_local(path):
        return Path(path).read_bytes()
    try:
        with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
            return file.read()
    except BeamIOError as error:
        raise OSError(str(error)) from None


@dataclass(frozen=True)
class Inputs:
    """The files of a job.

    Attributes:
        patterns: As `absolute` gives them.
        root: Of all of them; a path is `root/key`.
        output: A directory whose files are no inputs, though it may lie among them.
    """

    patterns: tuple[str, ...]
    root: str
    output: str = ""

    @classmethod
    def of(cls, patterns: list[str], output: str = "") -> Inputs:
        """The inputs that `--input` flags name.

        Raises:
            UsageError: A pattern matches no file.
        """
        resolved = [absolute(pattern) for pattern in patterns]
        for given, pattern in zip(patterns, resolved, strict=True):
            if not match(pattern, limit=1):
                raise UsageError(
                    f"--input {given}: no file matches; quote the pattern, and check it with ls"
                )
        return cls(tuple(resolved), common_root(resolved), output)

    def path(self, key: str) -> str:
        return f"{self.root}/{key}"

    def files(self, pattern: str, limit: int | None = None) -> Iterator[tuple[str, int]]:
        """Yields (key, size in bytes) of the files that one of the patterns matches."""
        for path, size in match(pattern, limit):
            if self.output and path.startswith(f"{self.output}/"):
                continue
            yield path[len(self.root) + 1 :], size
