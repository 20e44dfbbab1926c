"""Sidecars: members of archives that describe the member of the same name, as in WebDataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from beam_jobs.errors import RejectError
from beam_jobs.members import Member

_KINDS = ("cls", "txt", "json")

MAX_SIDECAR_BYTES = 1 << 20

ALONE = "no matching member in the archive"


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


def row_of(sidecars: Iterable[tuple[Member, bytes]]) -> dict[str, Any]:
    """The columns that a member's sidecars hold: `cls`, `txt`, and the fields of `json`.

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
