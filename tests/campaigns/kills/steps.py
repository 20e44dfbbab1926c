"""What the steps of a job are called: a thing of the dataset, and what is done to it."""

from __future__ import annotations

import re
from typing import NamedTuple

_HEX = re.compile(r"\.[0-9a-f]{32}\b")

_SHARD = re.compile(r"(?P<split>[^/.]+)-(?P<number>\d{5})-of-\d{5}\.tfrecord(?P<more>(\.[a-z]+)*)")

_SHARD_THINGS = {
    "": "shard",
    ".index": "index of shard",
    ".done": "note of shard",
    ".intake": "intake of shard",
    ".intake.index": "index of intake of shard",
}

_THINGS = {
    "": "output folder",
    ".staging": "staging folder",
    ".staging/UNFINISHED": "marker",
    ".staging/REPLACING": "journal",
    ".staging/RUNNING": "lock",
    ".staging/next": "next folder",
    "rejects": "rejects folder",
    "manifest.json": "manifest",
    "vocabulary.txt": "vocabulary",
}


class Step(NamedTuple):
    """A moment of a job.

    Attributes:
        role: Whose moment it is: "driver" or "worker".
        name: What happens, such as `shard train 2: renamed`.
        edge: "before", "half" or "after" it happens.
        nth: Which one of those with the same name in the same process, from 1.
    """

    role: str
    name: str
    edge: str
    nth: int

    @property
    def family(self) -> str:
        """What it happens to, without numbers, such as `shard`."""
        return family_of(self.name)

    def __str__(self) -> str:
        return f"{self.role}, {self.edge} {self.name}" + (f" ({self.nth})" if self.nth > 1 else "")


def family_of(name: str) -> str:
    """The kind of thing that a step's name begins with."""
    thing = name.split(":")[0]
    thing = re.sub(r"\b(new|staged) ", "", thing)
    thing = re.sub(r"shard \S+ \d+", "shard", thing)
    return thing


def thing_at(name: str) -> str:
    """What a file or folder is.

    Args:
        name: Its path relative to the output directory; names that differ from run to run are left out.
    """
    if name.startswith(".staging/next/"):
        return f"new {thing_at(name.removeprefix('.staging/next/'))}"
    if name.startswith(".staging/records."):
        return "run of records"
    if name.startswith(".staging/RUNNING."):
        return "other lock"  # One that is about to be linked, or that follows a killed job's.
    staged = bool(_HEX.search(name)) and not name.endswith((".intake", ".intake.index"))
    name = _HEX.sub("", name)
    if staged:
        # A file is staged under its name, in which slashes became dashes.
        name = name.removeprefix(".staging/").replace(".staging-", ".staging/", 1)
        name = re.sub(r"^rejects-", "rejects/", name)
    inside = name.removeprefix(".staging/")
    if match := _SHARD.fullmatch(inside):
        kind = _SHARD_THINGS.get(match["more"], f"{match['more']} of shard")
        thing = f"{kind} {match['split']} {int(match['number'])}"
    elif inside.startswith("rejects/"):
        split, number = inside.removeprefix("rejects/").split("-of-")[0].rsplit("-", 1)
        thing = f"rejects of shard {split} {int(number)}"
    else:
        thing = _THINGS.get(name, name)
    return f"staged {thing}" if staged else thing
