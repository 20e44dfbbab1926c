"""The inputs of a job: patterns become sources, which are files and members of archives.

A key is a file's path relative to the common root of all patterns. The root follows only from the patterns,
so a key depends neither on which files match nor on where the data is. The key of a member is the archive's
followed by the member's path, or only that path.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from beam_jobs.engines.pool import note_reading
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.archives.archive import archive_kind, members, walk
from beam_jobs.sources.archives.member import Member, member_bytes, open_member, read_member
from beam_jobs.sources.archives.sidecars import (
    Held,
    Samples,
    group_of,
    held_member,
    lone_sidecar,
    read_sidecar,
    row_of,
)
from beam_jobs.sources.chunks import CHUNK_BYTES, STORE_TASK_BYTES, Chunk
from beam_jobs.sources.rows import DEFAULT, Dialect
from beam_jobs.sources.source import Source, used_columns
from beam_jobs.storage.files import open_file, open_seekable, read_bytes
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, check_bytes
from beam_jobs.storage.listing import ALL, Span, match, spans_of_pattern
from beam_jobs.storage.paths import (
    GLOB,
    absolute,
    common_root,
    fixed_folder,
    membership,
    unescaped,
)
from readers.files.local import is_local
from readers.files.stores.ahead import Read
from readers.files.stores.clients import is_store
from readers.files.stores.reading import EAGER_BYTES

# The number of inputs and rows to read for the names of columns: not every line of .jsonl has all of them.
SAMPLED_ROWS = 100


def _has_index(path: str) -> bool:
    """Whether listing a file takes longer than a request: an archive, or a Parquet table."""
    return archive_kind(path) in ("zip", "tar") or path.lower().endswith(".parquet")


@dataclass(frozen=True)
class Inputs:
    """Files and archives that patterns match.

    Attributes:
        patterns: Patterns from `absolute`.
        root: Their common directory; a path is `root/key`.
        output: A directory whose files are skipped, even if a pattern matches them.
        samples: Whether `.cls`, `.txt` and `.json` members of archives are sidecars, with columns of the
            member with the same name.
        columns: The columns to take from sidecars.
        skips: Whether to skip a file that a pattern matches, or a member (`x.zip/name`), given its path; None skips none.
        dialect: How tables and texts are written.
        key: The source of keys: "path", or "member" for the paths of members inside their archives.
        span: The names to list, if the inputs are on a disk or in a store.
        max_bytes: The most bytes of a file or a member that are read into memory.
        prefix: Precedes all keys.
    """

    patterns: tuple[str, ...]
    root: str
    output: str = ""
    samples: bool = False
    columns: tuple[str, ...] = ()
    skips: Callable[[str], bool] | None = None
    dialect: Dialect = DEFAULT
    key: str = "path"
    span: Span = ALL
    max_bytes: int = DEFAULT_RECORD_BYTES
    prefix: str = ""

    @classmethod
    def of(cls, patterns: list[str], **how: Any) -> Inputs:
        """The inputs that `--input` flags name, with further attributes.

        Raises:
            UsageError: a pattern matches no file.
        """
        resolved = [absolute(pattern) for pattern in patterns]
        for given, pattern in zip(patterns, resolved, strict=True):
            if not any(match(pattern, limit=1)):
                lacks = "no file matches" + "; in a name, write [[] for [" * ("[" in given)
                if is_local(given) and not GLOB.search(given):
                    folder = Path(given).expanduser().is_dir()
                    lacks = "the folder has no files" if folder else "no such file or folder"
                raise UsageError(f"--input {given}: {lacks}; check it with ls")
        return cls(tuple(resolved), common_root(resolved), **how)

    @property
    def packed(self) -> bool:
        """Whether a pattern names `.tar.gz` files, which can only be read from front to back."""
        return any(pattern.lower().endswith((".gz", ".tgz")) for pattern in self.patterns)

    @property
    def in_one_folder(self) -> bool:
        """Whether the patterns show that all inputs are files in `root` itself, and none is an archive."""
        for pattern in self.patterns:
            folder = fixed_folder(pattern)
            name = pattern[len(folder) + 1 :]
            # Only a single star stays within a name.
            if unescaped(folder) != self.root or {*"/?["} & {*name} or "**" in name:
                return False
            if self.packed or archive_kind(name) or "." not in name.rpartition("*")[2]:
                return False
        return True

    @cached_property
    def in_store(self) -> bool:
        """Whether the inputs are objects of a store, where each read waits for an answer."""
        return is_store(self.root)

    @property
    def task_bytes(self) -> int:
        """The bytes of inputs for a task, if there are enough."""
        return STORE_TASK_BYTES if self.in_store else CHUNK_BYTES

    def path(self, key: str) -> str:
        """The path of a file."""
        return f"{self.root}/{key.removeprefix(self.prefix)}"

    def path_of(self, source: Source) -> str:
        """The path of a source, or of the archive that contains it."""
        return self.path(source.archive or source.file)

    def files(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the files that one of the patterns matches; arguments as for `sources`."""
        in_output, start = membership(self.output), len(self.root) + 1
        # With a limit, a remote folder is not listed to its end, unless files may be skipped.
        listed = None if is_local(pattern) or self.skips else limit
        files = (
            Source(self.prefix + path[start:], size, modified)
            for path, size, modified in match(pattern, listed, limit is not None, self.span)
            if not in_output(path) and not (self.skips and self.skips(path))
        )
        return itertools.islice(files, limit)

    def spans(self, pattern: str, processes: int = 1) -> list[Span]:
        """Values of `span` that cover all that a pattern matches, one for each listing task; arguments as for
        `spans_of_pattern`.
        """
        # A store is listed with many requests at once; spans would only add requests.
        if processes > 1 and self.in_store:
            return [ALL]
        return spans_of_pattern(pattern, _has_index, processes)

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the files that one of the patterns matches, and members of its `.zip` and `.tar` files.

        A `.tar.gz` is one source; `unpacked` yields its members. A damaged archive ends with a source
        that has an error. With a limit, only the first files and archives by name are read.
        """
        for source in self.files(pattern, limit):
            kind = archive_kind(source.key)
            if kind in ("zip", "tar"):
                yield from self._members(source, kind)
            else:
                yield source

    def first(self, limit: int) -> Iterator[tuple[Source, bytes | None]]:
        """Yields the first sources of each pattern, with the bytes of those from a `.tar.gz`."""
        for pattern in self.patterns:
            opened: Iterator[Iterable[tuple[Source, bytes | None]]] = (
                self.unpacked(source) if source.packed and not source.error else [(source, None)]
                for source in self.sources(pattern, limit)
            )
            yield from itertools.islice(itertools.chain.from_iterable(opened), limit)

    def named(self) -> Iterator[Source]:
        """Yields the sources of all patterns; the sizes of files may be unknown."""
        return itertools.chain.from_iterable(map(self.sources, self.patterns))

    def first_columns(self) -> set[str]:
        """The names of the columns that the first inputs have as metadata."""
        return {name for source, _ in self.first(SAMPLED_ROWS) for name in source.row}

    def first_value(self, column: str) -> Any:
        """The first value of a column in the first inputs; None if they have none."""
        values = (source.row.get(column) for source, _ in self.first(SAMPLED_ROWS))
        return next((value for value in values if value not in (None, "")), None)

    def _members(self, archive: Source, kind: str) -> Iterator[Source]:
        listed: list[Member] = []
        broken = ""
        try:
            with open_seekable(self.path(archive.key)) as file:
                try:
                    for member in members(file, kind):
                        path = f"{self.path(archive.key)}/{member.name}"
                        if not (self.skips and self.skips(path)):
                            listed.append(member)
                except RejectError as error:  # The members before the damage are good.
                    broken = str(error)
                yield from self._samples(archive, listed, file)
        except OSError as error:
            broken = f"cannot be read: {error}"
        if broken:
            yield Source(archive.key, error=broken)

    def _samples(self, archive: Source, listed: list[Member], file: BinaryIO) -> Iterator[Source]:
        """Yields the members with the columns of their sidecars, but neither those nor companions."""
        samples = Samples(self.samples)
        for member in listed:
            samples.add(member)
        for member in listed:
            role = samples.role(member.name)
            if role == "lone":
                yield lone_sidecar(archive, member)
            elif role == "record":
                own = samples.sidecars_of(member.name)
                yield self._member(archive, member, (read_sidecar(file, m) for m, _ in own))

    def _member(self, archive: Source, member: Member, sidecars: Iterable[Held]) -> Source:
        source = Source(
            member.name if self.key == "member" else f"{archive.key}/{member.name}",
            0 if member.error else member.size,  # An error may be about the size.
            archive.modified,  # Many archives give all their members the same time.
            archive.key,
            member.location,
            error=member.error,
            remark=member.remark,
        )
        if member.error or not self.columns:
            return source
        try:
            row = row_of(sidecars)
        except RejectError as error:
            return source._replace(error=str(error))
        return source._replace(row=used_columns(row, self.columns))

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the members of a `.tar.gz` with their bytes, reading it once from front to back.

        A damaged archive ends with a source that has an error. Sidecars must be next to their member.
        """
        broken = ""
        try:
            with open_file(self.path(source.key)) as file:
                for _, found in itertools.groupby(walk(file), lambda each: group_of(each[0].name)):
                    yield from self._neighbours(source, found)
        except OSError as error:
            broken = f"cannot be read to its end: {error}"
        except RejectError as error:
            broken = str(error)
        if broken:
            yield Source(source.key, error=broken), b""

    def _neighbours(
        self, archive: Source, found: Iterator[tuple[Member, BinaryIO]]
    ) -> Iterator[tuple[Source, bytes]]:
        """Yields the sources among members whose names may describe each other, then the error of reading them."""
        samples, records, waiting, size = Samples(self.samples), list[Held](), list[Held](), 0
        error: OSError | RejectError | None = None
        try:
            for member, stream in found:
                if samples.role(member.name) == "companion":
                    continue
                held, data = held_member(member, stream, self.max_bytes, size)
                samples.add(held, data)
                if not self.columns and not samples.may_describe(member.name):
                    yield self._member(archive, held, ()), data  # It does not wait for sidecars.
                    continue
                (waiting if samples.may_describe(member.name) else records).append((held, data))
                size += len(data)
        except (OSError, RejectError) as damage:
            error = damage
        records += [held for held in waiting if samples.role(held[0].name) == "record"]
        for member, data in records:
            yield self._member(archive, member, samples.sidecars_of(member.name)), data
        for member, _ in waiting:
            if samples.role(member.name) == "lone":
                yield lone_sidecar(archive, member), b""
        if error:
            raise error

    def open(self, source: Source) -> BinaryIO:
        """Opens a source in which seeking is cheap; errors as for `stream`."""
        if source.location is None:
            return open_seekable(self.path_of(source))
        return io.BytesIO(self.read(source))

    def stream(self, source: Source) -> BinaryIO:
        """Opens a source of any size for reading from front to back.

        Raises:
            OSError: the source is missing or unreadable.
            RejectError: the source is a damaged member; reading may raise this too.
        """
        if source.location is None:
            return open_file(self.path_of(source))
        archive = open_file(self.path_of(source))
        return open_member(archive, source.location, source.key)

    def reads(self, source: Source, most: int | None = None) -> Iterator[Read]:
        """Yields the first read of a source in a store; nothing for others, and for packed archives.

        Args:
            source: The source.
            most: The most bytes to read, if the beginning of a large file is needed first; None if
                it is read whole.
        """
        if not self.in_store or source.error or source.packed:
            return
        path, at = self.path_of(source), source.location
        if at:
            size = min(member_bytes(at, source.key), most or self.max_bytes)
            if size:
                yield Read(path, at.offset, size, size)
        elif source.size <= self.max_bytes:
            whole = most is None or 0 < source.size <= most
            expected = min(source.size, most or source.size)
            yield Read(path, 0, None if whole else most, expected)

    def range_reads(self, chunk: Chunk) -> Iterator[Read]:
        """Yields the reads of a range of bytes and the byte before it; nothing for other files."""
        if self.in_store:
            path = self.path_of(chunk.source)
            for start in range(max(chunk.start - 1, 0), chunk.end, EAGER_BYTES):
                size = min(EAGER_BYTES, chunk.end - start)
                yield Read(path, start, size, size)

    def read(self, source: Source) -> bytes:
        """Reads a whole source.

        Raises:
            RejectError: the source is missing, unreadable, larger than a record may be, or a damaged
                member.
        """
        note_reading(source.key)
        try:
            if source.location is None:
                check_bytes(source.size, self.max_bytes, "it has")
                return read_bytes(self.path_of(source))
            check_bytes(source.location.size, self.max_bytes, "it has")
            with open_file(self.path_of(source)) as archive:
                return read_member(archive, source.location, source.key, self.max_bytes)
        except OSError as error:
            raise RejectError(f"cannot be read: {error}") from None
