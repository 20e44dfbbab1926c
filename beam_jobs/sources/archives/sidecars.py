"""Sidecars: members of archives that describe the member of the same name, as in WebDataset."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, BinaryIO, Literal

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.sources.archives.member import Member, read_member
from beam_jobs.sources.source import Source
from beam_jobs.storage.limits import exceeds
from beam_jobs.storage.paths import comparable

_KINDS = ("cls", "txt", "json")

# Extensions such as `seg.png`. Not any two: `cat.1.jpg` next to `cat.jpg` is another photograph.
_COMPANION = re.compile(
    r"(.*)\.(?:seg|segmentation|semantic|instance|panoptic|mask|matte|alpha|label|depth|disparity|normal|edge|"
    r"flow)s?[_-]?\d*\.(?:png|jpe?g|webp|tiff?|bmp|gif)",
    re.IGNORECASE | re.DOTALL,
)

MAX_SIDECAR_BYTES = 1 << 20

NO_MATCH = "no matching member in the archive"

# A sidecar, and its bytes if they were read.
Held = tuple[Member, bytes]


def group_of(name: str) -> str:
    """The part of its name, up to the first dot after its folder, that a member shares with all its sidecars."""
    return stems_of(name)[-1]


def stems_of(name: str) -> list[str]:
    """The beginnings of a member's name that end before a dot after its folder, the longest first."""
    folder, slash, base = comparable(name).rpartition("/")
    parts = base.split(".")
    stems = [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    return [folder + slash + stem for stem in stems or parts]


def _kind(name: str) -> str:
    """`cls`, `txt` or `json`; empty for a member that describes no other one."""
    _, dot, ending = name.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot and ending.lower() in _KINDS else ""


class Samples:
    """The members of an archive that describe others, as in WebDataset.

    A `.cls`, `.txt` or `.json` is a sidecar of the members whose names begin with its own name and a dot: `1.cls` of
    `1.jpg` and `1.left.jpg`, `Track 2.0.cls` of `Track 2.0.png`. The longest such name counts. An image `1.seg.png`
    is a companion of `1.jpg`.

    Args:
        active: Whether any member may describe others.
    """

    def __init__(self, active: bool) -> None:
        self._active = active
        self._sidecars: dict[str, list[Held]] = {}
        self._begins, self._described = set[str](), set[str]()

    def add(self, member: Member, data: bytes = b"") -> None:
        """Adds a member, with its bytes if it may be a sidecar and they were read."""
        if not self._active:
            return
        own, *shorter = stems = stems_of(member.name)
        if _kind(member.name):
            self._sidecars.setdefault(own, []).append((member, data))
            self._begins.update(shorter)
            return
        self._begins.update(stems)
        if not _COMPANION.fullmatch(member.name):
            self._described.update(stems)

    def may_describe(self, name: str) -> bool:
        """Whether a member of this name describes another one, if that exists."""
        return self._active and bool(_kind(name) or _COMPANION.fullmatch(name))

    def role(self, name: str) -> Literal["record", "sidecar", "lone", "companion"]:
        """The role of a member among all members: `lone` if it is the sidecar of none.

        A `run.acc.txt` is a record unless there is another member `run.acc.*`.
        """
        if not self.may_describe(name):
            return "record"
        if _kind(name):
            own, *shorter = stems_of(name)
            return "sidecar" if own in self._begins else "record" if shorter else "lone"
        match = _COMPANION.fullmatch(name)
        return "companion" if match and comparable(match[1]) in self._described else "record"

    def sidecars_of(self, name: str) -> list[Held]:
        """The sidecars of a member."""
        stems = stems_of(name)[bool(_kind(name)) :]
        return next(filter(None, map(self._sidecars.get, stems)), [])


def row_of(sidecars: Iterable[Held]) -> dict[str, Any]:
    """The columns in a member's sidecars: `cls`, `txt`, and the fields of `json`; RejectError for an unreadable sidecar."""
    row: dict[str, Any] = {}
    for member, data in sidecars:
        if member.error:
            raise RejectError(f"{member.name}: {member.error}")
        if len(data) > MAX_SIDECAR_BYTES:
            raise RejectError(
                f"{member.name}: it has {len(data)} bytes, more than {MAX_SIDECAR_BYTES}"
            )
        kind = _kind(member.name)
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


def held_member(member: Member, stream: BinaryIO, limit: int, before: int) -> Held:
    """A member of a `.tar.gz`, with its bytes; with an error if they are more than a limit with those `before` it."""
    if member.error:
        return member, b""
    size, claim = member.size, "it has"
    if size <= limit < before + size:
        size, claim = before + size, "with those of its name before it, it has"
    if size > limit:
        return member._replace(error=exceeds(size, limit, claim)), b""
    try:
        return member, stream.read(member.size)
    except RejectError as error:
        raise RejectError(
            f"the archive is damaged or cut off in {member.name!r}: {error}"
        ) from None


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
