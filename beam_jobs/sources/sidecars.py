"""Members of archives that say something of the member of their name, as WebDataset has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.archive import read_member
from beam_jobs.sources.archives.member import Member
from beam_jobs.sources.source import MAX_FILE_BYTES, Source

_KINDS = ("cls", "txt", "json")

MAX_SIDECAR_BYTES = 1 << 20

ALONE = "there is no member of its name beside it, of which it could say something"


def _parts(name: str) -> tuple[str, str]:
    """The stem and the extension of a member: WebDataset has them part at the first dot."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return folder + slash + stem, extension.lower()


def stem_of(name: str) -> str:
    """What the names of a member and of its sidecars share."""
    return _parts(name)[0]


def is_sidecar(name: str) -> bool:
    """Whether a member says something of another one: a `.cls`, `.txt` or `.json`."""
    return _parts(name)[1] in _KINDS


def row_of(sidecars: Iterable[tuple[Member, bytes]]) -> dict[str, Any]:
    """The columns that the sidecars of a member hold: `cls`, `txt`, and the fields of `json`.

    Raises:
        RejectError: One of them cannot be read.
    """
    row: dict[str, Any] = {}
    for member, data in sidecars:
        if member.error:
            raise RejectError(f"{member.name}: {member.error}")
        kind = _parts(member.name)[1]
        try:
            if kind != "json":
                row[kind] = data.decode("utf-8-sig").strip()
            elif isinstance(fields := orjson.loads(data), dict):
                row |= fields
            else:
                raise RejectError(f"{member.name}: expected a JSON object")
        except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are some.
            raise RejectError(f"{member.name}: {error}") from None
    return row


@dataclass
class _Sample:
    """Members of a `.tar.gz` that stand next to each other and share a stem.

    Attributes:
        stem: Of their names.
        sidecars: With their bytes.
        named: Whether one is no sidecar.
    """

    stem: str
    sidecars: list[tuple[Member, bytes]] = field(default_factory=list)
    named: bool = False
    _records: list[tuple[Member, bytes]] = field(default_factory=list)
    _held: int = 0

    def add_sidecar(self, member: Member, stream: BinaryIO) -> None:
        self.sidecars.append(self._read(member, stream, MAX_SIDECAR_BYTES))

    def add_record(self, member: Member, stream: BinaryIO) -> None:
        self.named = True
        self._records.append(self._read(member, stream, MAX_FILE_BYTES))

    def _read(self, member: Member, stream: BinaryIO, limit: int) -> tuple[Member, bytes]:
        if member.error:
            return member, b""
        if member.size > limit:
            member = member._replace(error=_too_many(member.size, limit))
        elif self._held + member.size > MAX_FILE_BYTES:
            held = f"{self._held + member.size} bytes with those of its name before it"
            member = member._replace(error=f"{held}, more than {MAX_FILE_BYTES}")
        try:
            data = b"" if member.error else stream.read(member.size)
        except RejectError as error:
            raise RejectError(
                f"the archive is damaged or cut off in {member.name!r}: {error}"
            ) from None
        self._held += len(data)
        return member, data

    def take(self) -> list[tuple[Member, bytes]]:
        """The records since the last call, and their bytes."""
        taken, self._records = self._records, []
        self._held -= sum(len(data) for _, data in taken)
        return taken

    def alone(self, archive: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the sidecars where there is nothing else."""
        for member, _ in () if self.named else self.sidecars:
            yield _alone(archive, member), b""


def _alone(archive: Source, sidecar: Member) -> Source:
    key = f"{archive.key}/{sidecar.name}"
    return Source(key, archive=archive.key, error=sidecar.error or ALONE)


def _read_sidecar(file: BinaryIO, member: Member) -> tuple[Member, bytes]:
    """A sidecar and its bytes, or why there are none."""
    if member.place is None:
        return member, b""
    try:
        return member, read_member(file, member.place, member.name, MAX_SIDECAR_BYTES)
    except RejectError as error:
        return member._replace(error=str(error)), b""


def _too_many(size: int, limit: int) -> str:
    return f"it has {size} bytes, more than {limit}"
