"""What the steps of a job are called: a thing of the dataset, and what is done to it."""

from __future__ import annotations

import re
from typing import NamedTuple

# What differs from run to run, or from job to job: the names of folders, and of files that have no name yet.
_RUN = re.compile(r"(?<=^\.staging/)[0-9a-f]{8}(?=/|$)")
_FOLDER = re.compile(r"^[0-9a-f]{8}(?=/|$)")
_STAGED = re.compile(r"\.staging/(?:run/)?(.+)\.[0-9a-f]{32}")

_OF_A_SHARD = re.compile(
    r"(?P<split>[^.]+)-(?P<number>\d{5})-of-\d{5}(?P<second>\.[0-9a-f]{8})?(?P<kind>\..*)"
)

_KINDS = {
    ".tfrecord": "shard",
    ".tfrecord.index": "index of shard",
    ".tfrecord.done": "note of shard",
    ".jsonl": "rejects of shard",
}

_GENERATION = re.compile(r"\d+\.json")

# By the last part of a path.
_THINGS = {
    "": "output folder",
    ".staging": "staging folder",
    "run": "staging folder of the run",
    "rejects": "rejects folder",
    "generations": "generations folder",
    "lease": "lease",
    "job": "remote note",
    "manifest.json": "manifest",
    "vocabulary.txt": "vocabulary",
    "tokenizer.json": "tokenizer",
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
    thing = thing.removeprefix("staged ")
    return re.sub(r"shard \S+ \d+", "shard", thing)


def thing_at(name: str) -> str:
    """What a file or folder is.

    Args:
        name: Its path relative to the output directory; names that differ from run to run are left out.
    """
    name = _FOLDER.sub("folder", _RUN.sub("run", name))
    if name.startswith(".staging/run/records."):
        return "run of records"
    staged = _STAGED.fullmatch(name)
    last = staged[1] if staged else name.rpartition("/")[2]
    if found := _OF_A_SHARD.fullmatch(last):
        kind = _KINDS.get(found["kind"], f"{found['kind']} of shard")
        kind = kind.replace("shard", "second shard") if found["second"] else kind
        thing = f"{kind} {found['split']} {int(found['number'])}"
    else:
        thing = "generation" if _GENERATION.fullmatch(last) else _THINGS.get(last, last)
    return f"staged {thing}" if staged else thing
