"""Sidecars: members of archives that describe the member of the same name, as in WebDataset."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import Member, read_member
from beam_jobs.sources.source import Source
from beam_jobs.storage.limits import exceeds

_KINDS = ("cls", "txt", "json")

# Extensions such as `seg.png`. Not any two: `cat.1.jpg` next to `cat.jpg` is another photograph.
_COMPANION = re.compile(
    r"(seg|segmentation|semantic|instance|panoptic|mask|matte|alpha|label|depth|disparity|normal|edge|"
    r"flow)s?[_-]?\d*\.(png|jpe?g|webp|tiff?|bmp|gif)"
)

MAX_SIDECAR_BYTES = 1 << 20

NO_MATCH = "no matching member in the archive"


def _split_name(name: str) -> tuple[str, str]:
    """(stem, extension) of a member's name, split at the first dot after its folder."""
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    return folder + slash + stem, extension.lower()


def stem_of(name: str) -> str:
    """The part of its name that a member shares with its sidecars."""
    return _split_name(name)[0]


def is_sidecar(name: str) -> bool:
    """Whether a member describes another one: a `.cls`, `.txt` or `.json`."""
    return _split_name(name)[1] in _KINDS


def is_companion(name: str) -> bool:
    """Whether a member is an image that describes another one: a mask, a depth map, ..."""
    return _COMPANION.fullmatch(_split_name(name)[1]) is not None


def row_of(sidecars: Iterable[tuple[Member, bytes]]) -> dict[str, Any]:
    """The columns in a member's sidecars: `cls`, `txt`, and the fields of `json`.

    Raises:
        RejectError: a sidecar cannot be read; the message names it.
    """
    row: dict[str, Any] = {}
    for member, data in sidecars:
        if member.error:
            raise RejectError(f"{member.name}: {member.error}")
        kind = _split_name(member.name)[1]
        try:
            if kind != "json":
                row[kind] = data.decode("utf-8-sig").strip()
            elif isinstance(fields := orjson.loads(data), dict):
                row |= fields
            else:
                raise RejectError(f"{member.name}: expected a JSON object")
        except ValueError as error:  # Also UnicodeDecodeError and JSONDecodeError.
            raise RejectError(f"{member.name}: {error}") from None
    return row


@dataclass
class MemberGroup:
    """Neighbouring members of a `.tar.gz` whose names share a stem.

    Attributes:
        stem: The stem.
        max_bytes: The most bytes of a member, and of all members that wait for sidecars.
        samples: Whether some members describe others.
        sidecars: The sidecars and their bytes.
        has_record: Whether one of the members is neither a sidecar nor a companion.
    """

    stem: str
    max_bytes: int
    samples: bool
    sidecars: list[tuple[Member, bytes]] = field(default_factory=list)
    has_record: bool = False
    _companions: list[tuple[Member, bytes]] = field(default_factory=list)
    _records: list[tuple[Member, bytes]] = field(default_factory=list)
    _bytes: int = 0

    def add(self, member: Member, stream: BinaryIO) -> None:
        """Adds a member, given a stream of its bytes."""
        if self.samples and is_sidecar(member.name):
            if not member.error and member.size > MAX_SIDECAR_BYTES:
                error = f"it has {member.size} bytes, more than {MAX_SIDECAR_BYTES}"
                member = member._replace(error=error)
            self.sidecars.append(self._read(member, stream))
        elif not (self.samples and is_companion(member.name)):
            self.has_record = True
            self._records.append(self._read(member, stream))
        elif not self.has_record:
            self._companions.append(self._read(member, stream))

    def _read(self, member: Member, stream: BinaryIO) -> tuple[Member, bytes]:
        if member.error:
            return member, b""
        size, claim = member.size, "it has"
        if size <= self.max_bytes < self._bytes + size:
            size, claim = self._bytes + size, "with those of its name before it, it has"
        if size > self.max_bytes:
            return member._replace(error=exceeds(size, self.max_bytes, claim)), b""
        try:
            data = stream.read(member.size)
        except RejectError as error:
            raise RejectError(
                f"the archive is damaged or cut off in {member.name!r}: {error}"
            ) from None
        self._bytes += len(data)
        return member, data

    def take(self, ended: bool) -> list[tuple[Member, bytes]]:
        """The records since the last call, with their bytes; finally companions, if no other member is a record."""
        if ended and not self.has_record and self._companions:
            self.has_record, self._records = True, self._companions
        taken, self._records = self._records, []
        self._bytes -= sum(len(data) for _, data in taken)
        return taken


def lone_sidecar(archive: Source, sidecar: Member) -> Source:
    """The error of a sidecar without a member."""
    key = f"{archive.key}/{sidecar.name}"
    return Source(key, archive=archive.key, error=sidecar.error or NO_MATCH)


def read_sidecar(file: BinaryIO, member: Member) -> tuple[Member, bytes]:
    """A sidecar with its bytes; with an error and no bytes if it cannot be read."""
    if member.location is None:
        return member, b""
    try:
        return member, read_member(file, member.location, member.name, MAX_SIDECAR_BYTES)
    except RejectError as error:
        return member._replace(error=str(error)), b""
