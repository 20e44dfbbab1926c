"""Members of archives that say something of the member of their name, as WebDataset has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.members import Member

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
