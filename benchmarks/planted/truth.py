"""The faults of the planted data, and the score of a contender that looks for them.

A fault is a group of names: a record, a record and its copies, or a column. A contender must give one of them.
A name outside of these groups is a false alarm, unless it has a fault that implies this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

# Kind of fault -> kinds whose names are not false alarms of it: copies in another split are copies, a dark
# picture has little information, and a copy has the faults of its original.
_COPIES = (
    "exact duplicates",
    "near duplicates",
    "leaks",
    "near leaks",
    "contradictions",
    "repeated text",
)
IMPLIED_BY: dict[str, tuple[str, ...]] = {
    "exact duplicates": ("leaks", "contradictions", "repeated text", "empty"),
    "near duplicates": _COPIES,
    "leaks": ("repeated text",),
    "near leaks": _COPIES,
    "contradictions": ("repeated text",),
    "repeated text": ("exact duplicates", "leaks", "contradictions"),
    "low information": ("dark", "light"),
    "blurry": ("dark", "light", "low information", "tiny", "huge", "odd aspect"),
    "tiny": ("odd aspect", "near duplicates", "near leaks"),
    "huge": ("odd aspect",),
    "gray": ("low information", "dark", "light"),
    "constant channel": ("dead channel",),
    "dead channel": ("constant channel",),
    "outlier lengths": ("empty", "few letters"),
    "outlier levels": ("dead channel", "constant channel"),
}


@dataclass
class Truth:
    """The faults of a dataset.

    Attributes:
        records: The number of records.
        faults: Kind -> groups of names.
        splits: Name of a record -> its split.
    """

    records: int
    faults: dict[str, list[list[str]]] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)

    def plant(self, kind: str, *names: str) -> None:
        """Adds a fault."""
        self.faults.setdefault(kind, []).append(list(names))

    def write(self, folder: Path) -> None:
        """Writes `truth.json`."""
        (folder / "truth.json").write_text(json.dumps(asdict(self)) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Truth:
        """Reads `truth.json`."""
        return cls(**json.loads((folder / "truth.json").read_text()))


@dataclass(frozen=True)
class Score:
    """The faults of a kind that a contender found.

    Attributes:
        found: The number of faults of which it named a record or a column.
        planted: The number of faults.
        false_alarms: The number of names without this fault.
        examples: Some of them.
    """

    found: int
    planted: int
    false_alarms: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        alarms = f", {self.false_alarms:,} false" if self.false_alarms else ""
        return f"{self.found:,} of {self.planted:,}{alarms}"


def score(truth: Truth, kind: str, named: Iterable[str]) -> Score:
    """Compares the names that a contender gives for a kind of fault with the truth."""
    names = set(named)
    groups = truth.faults.get(kind, [])
    found = sum(not names.isdisjoint(group) for group in groups)
    right = {
        name
        for each in (kind, *IMPLIED_BY.get(kind, ()))
        for group in truth.faults.get(each, [])
        for name in group
    }
    wrong = sorted(names - right)
    return Score(found, len(groups), len(wrong), tuple(wrong[:5]))


def copies(
    truth: Truth, exact: Sequence[Sequence[str]], near: Sequence[Sequence[str]]
) -> Mapping[str, list[str]]:
    """The names for each kind of copy, given groups of equal and of similar records of all splits.

    Rivals do not know of splits: a user sees from the names in which a copy is.
    """
    named: dict[str, list[str]] = {}
    for within, across, groups in (
        ("exact duplicates", "leaks", exact),
        ("near duplicates", "near leaks", near),
    ):
        named[within], named[across] = [], []
        for group in groups:
            splits = [truth.splits[name] for name in group]
            named[within] += [
                name for name, split in zip(group, splits, strict=True) if splits.count(split) > 1
            ]
            named[across] += group if len(set(splits)) > 1 else []
    return named
