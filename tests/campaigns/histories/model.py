"""What readers of a dataset must see after some commands, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from tests.support.datasets import order_hash

# The split and the key of a record.
Place = tuple[str, str]

# The features of a record but its key.
Values = dict[str, Any]

SPLITS = {"train": 0.7, "val": 0.3}

SEED = 5


class Refused(Exception):
    """The command must fail, and change nothing."""


def values(number: int, salt: int, features: Collection[str] = ()) -> Values:
    """A record that follows from two numbers; its floats, and their squares, are exact."""
    x = [number + salt / 8 + i for i in range((number * 7 + salt) % 5)]
    return {"label": (number + salt) % 4, "x": x, **dict.fromkeys(features, number - salt)}


def place(key: str) -> Place:
    """The split to which the hash of a key assigns it."""
    seed = SEED.to_bytes(8, "little", signed=True)
    found = blake2b(key.encode(), digest_size=8, key=seed, person=b"split").digest()
    is_train = int.from_bytes(found, "little") < SPLITS["train"] * 2**64
    return ("train" if is_train else "val"), key


def in_order(records: Mapping[str, Values]) -> dict[Place, Values]:
    """Records as a job writes them: by split, then in the order of their hashes."""
    keys = sorted(records, key=lambda key: (place(key)[0], order_hash(SEED, key)))
    return {place(key): records[key] for key in keys}


@dataclass(frozen=True)
class Seen:
    """A generation.

    Attributes:
        records: In the order of reading, but those of several splits.
        features: Further ones, in the shards.
        families: Further ones, in files next to the shards; the name of each is that of its family.
        stored: The keys in its files.
        exact: Whether extremes in the statistics are exact.
        last: The command that made it, if that may not or need not be repeated.
        whole: Whether it has statistics of all features.
        only: Its only split; empty if it has all.
    """

    records: dict[Place, Values]
    features: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    stored: frozenset[str] = frozenset()
    exact: bool = True
    last: object = None
    whole: bool = True
    only: str = ""

    @classmethod
    def of(cls, records: dict[Place, Values], **other: Any) -> Seen:
        return cls(records, stored=frozenset(key for _, key in records), **other)

    def split(self, name: str) -> dict[str, Values]:
        """Key -> record, in the order of reading."""
        return {key: found for (split, key), found in self.records.items() if split == name}

    def kept(self, keeps: Callable[[Place], bool], last: object = None) -> Seen:
        """Without some records; itself if it has all of them."""
        left = {where: found for where, found in self.records.items() if keeps(where)}
        if len(left) == len(self.records):
            return self
        return replace(self, records=left, exact=False, last=last)


@dataclass(frozen=True)
class State:
    """All datasets of a history.

    Attributes:
        newest: The number of the newest generation of the dataset `photos`.
        generations: Its generations that are kept.
        tags: Name -> number.
        others: Further datasets; their files are in generations with some numbers.
    """

    newest: int = 0
    generations: Mapping[int, Seen] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, tuple[Seen, int]] = field(default_factory=dict)

    @property
    def seen(self) -> Seen:
        return self.generations[self.newest]

    def next(self, seen: Seen, begun: State) -> State:
        """After a command, which began in some state, has committed a generation; it need not change anything."""
        if seen is begun.seen:
            return self
        if self.newest != begun.newest:
            raise Refused
        number = self.newest + 1
        return replace(self, newest=number, generations={**self.generations, number: seen})

    def without(self, numbers: Collection[int]) -> State:
        """Without some generations, and the datasets whose files are in them."""
        left = {number: seen for number, seen in self.generations.items() if number not in numbers}
        others = {name: other for name, other in self.others.items() if other[1] in left}
        return replace(self, generations=left, others=others)
