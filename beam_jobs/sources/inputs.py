"""The inputs of a job: patterns -> sources, files and the members of archives alike."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.archives.archive import archive_kind, members, open_member, read_member, walk
from beam_jobs.sources.archives.member import Member
from beam_jobs.sources.sidecars import (
    _alone,
    _read_sidecar,
    _Sample,
    _too_many,
    is_sidecar,
    row_of,
    stem_of,
)
from beam_jobs.sources.source import MAX_FILE_BYTES, Source
from beam_jobs.storage.files import open_file, open_seekable, read_bytes
from beam_jobs.storage.listing import File, match
from beam_jobs.storage.paths import absolute, common_root, is_local


def _no(path: str) -> bool:
    return False


@dataclass(frozen=True)
class Inputs:
    """Files and archives that patterns match.

    Attributes:
        patterns: As `absolute` gives them.
        root: Of all of them; a path is `root/key`.
        output: A directory whose files are no inputs, though it may lie among them.
        samples: Whether `.cls`, `.txt` and `.json` members of archives are sidecars: columns of the
            member of their name.
        columns: The columns to take from those.
        skips: Whether a file that a pattern matches is no input, by its path.
    """

    patterns: tuple[str, ...]
    root: str
    output: str = ""
    samples: bool = False
    columns: tuple[str, ...] = ()
    skips: Callable[[str], bool] = _no

    @classmethod
    def of(
        cls,
        patterns: list[str],
        output: str = "",
        samples: bool = False,
        columns: tuple[str, ...] = (),
    ) -> Inputs:
        """The inputs that `--input` flags name.

        Raises:
            UsageError: A pattern matches no file.
        """
        resolved = [absolute(pattern) for pattern in patterns]
        for given, pattern in zip(patterns, resolved, strict=True):
            if not any(match(pattern, limit=1)):
                raise UsageError(
                    f"--input {given}: no file matches; quote the pattern, and check it with ls"
                )
        return cls(tuple(resolved), common_root(resolved), output, samples, columns)

    @property
    def packed(self) -> bool:
        """Whether a pattern names `.tar.gz` files, which can only be read from the front."""
        return any(pattern.lower().endswith((".gz", ".tgz")) for pattern in self.patterns)

    def path(self, key: str) -> str:
        return f"{self.root}/{key}"

    def path_of(self, source: Source) -> str:
        """The path of a source, or of the archive that holds it."""
        return self.path(source.archive or source.file)

    def files(self, pattern: str, limit: int | None = None) -> Iterator[File]:
        """Yields the files that one of the patterns matches, their keys in place of their paths."""
        output, start = f"{self.output}/", len(self.root) + 1
        # A remote folder is not listed to its end for the first few, unless some do not count.
        listed = None if is_local(pattern) or self.skips is not _no else limit
        found = (
            File(path[start:], size, modified)
            for path, size, modified in match(pattern, listed, in_order=limit is not None)
            if not (self.output and path.startswith(output)) and not self.skips(path)
        )
        return itertools.islice(found, limit)

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields what one of the patterns matches: files, and the members of `.zip` and `.tar`.

        A `.tar.gz` is one source, whose members `unpacked` yields. A damaged archive ends with a
        source that has an error.

        Args:
            limit: How many files and archives at most, in order of their names.
        """
        for file in self.files(pattern, limit):
            source, kind = Source(*file), archive_kind(file.path)
            if kind in ("zip", "tar"):
                yield from self._members(source, kind)
            else:
                yield source

    def first(self, pattern: str, limit: int) -> Iterator[tuple[Source, bytes | None]]:
        """Yields the first sources of a pattern, and the bytes of those that lie in a `.tar.gz`.

        Args:
            limit: How many at most.
        """

        def found() -> Iterator[tuple[Source, bytes | None]]:
            for source in self.sources(pattern, limit):
                if source.packed and not source.error:
                    yield from self.unpacked(source)
                else:
                    yield source, None

        return itertools.islice(found(), limit)

    def _members(self, archive: Source, kind: str) -> Iterator[Source]:
        found: list[Member] = []
        broken = ""
        try:
            with open_seekable(self.path(archive.key)) as file:
                try:
                    for member in members(file, kind):
                        found.append(member)
                except RejectError as error:  # What stands before the damage is good.
                    broken = str(error)
                yield from self._samples(archive, found, file)
        except OSError as error:
            broken = f"cannot be read: {error}"
        if broken:
            yield Source(archive.key, error=broken)

    def _samples(self, archive: Source, found: list[Member], file: BinaryIO) -> Iterator[Source]:
        """Yields the members that are no sidecars, with what those say."""
        sidecars: dict[str, list[Member]] = {}
        named = set()
        for member in found if self.samples else ():
            if is_sidecar(member.name):
                sidecars.setdefault(stem_of(member.name), []).append(member)
            else:
                named.add(stem_of(member.name))
        for member in found:
            stem = stem_of(member.name)
            if not (self.samples and is_sidecar(member.name)):
                beside = sidecars.get(stem, ())
                yield self._member(archive, member, (_read_sidecar(file, m) for m in beside))
            elif stem not in named:
                yield _alone(archive, member)

    def _member(
        self, archive: Source, member: Member, sidecars: Iterable[tuple[Member, bytes]]
    ) -> Source:
        source = Source(
            f"{archive.key}/{member.name}",
            0 if member.error else member.size,  # An error may be about the size.
            archive.modified,  # Many archives give all their members the same time.
            archive.key,
            member.place,
            error=member.error,
        )
        if member.error or not self.columns:
            return source
        try:
            row = row_of(sidecars)
        except RejectError as error:
            return source._replace(error=str(error))
        return source._replace(row={name: row[name] for name in self.columns if name in row})

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the members of a `.tar.gz` and their bytes, read once from its front.

        A damaged archive ends with a source that has an error. Sidecars must stand next to the
        member that they say something of.
        """
        sample = _Sample("")
        broken = ""
        try:
            with open_file(self.path(source.key)) as file:
                for member, stream in walk(file):
                    if stem_of(member.name) != sample.stem:
                        yield from self._taken(source, sample)
                        yield from sample.alone(source)
                        sample = _Sample(stem_of(member.name))
                    if self.samples and is_sidecar(member.name):
                        sample.add_sidecar(member, stream)
                    else:
                        sample.add_record(member, stream)
                        if not self.columns:  # It need not wait for its sidecars.
                            yield from self._taken(source, sample)
        except OSError as error:
            broken = f"cannot be read to its end: {error}"
        except RejectError as error:
            broken = str(error)
        yield from self._taken(source, sample)
        yield from sample.alone(source)
        if broken:
            yield Source(source.key, error=broken), b""

    def _taken(self, archive: Source, sample: _Sample) -> Iterator[tuple[Source, bytes]]:
        for member, data in sample.take():
            yield self._member(archive, member, sample.sidecars), data

    def open(self, source: Source) -> BinaryIO:
        """A source, open for reading, and cheap to seek in.

        Raises:
            OSError: It is missing or unreadable.
            RejectError: It is a member that cannot be unpacked.
        """
        if source.place is None:
            return open_seekable(self.path_of(source))
        return io.BytesIO(self.read(source))

    def stream(self, source: Source) -> BinaryIO:
        """A source of any size, open for reading from its front.

        Raises:
            OSError, RejectError: As `open`; the latter also from reading.
        """
        if source.place is None:
            return open_file(self.path_of(source))
        archive = open_file(self.path_of(source))
        return open_member(archive, source.place, source.key)

    def read(self, source: Source) -> bytes:
        """The bytes of a source.

        Raises:
            OSError, RejectError: As `open`; the latter also where they are more than a record holds.
        """
        if source.place is None:
            if source.size > MAX_FILE_BYTES:
                raise RejectError(_too_many(source.size, MAX_FILE_BYTES))
            return read_bytes(self.path_of(source))
        with open_file(self.path_of(source)) as archive:
            return read_member(archive, source.place, source.key, MAX_FILE_BYTES)
