"""How far a run has read: a cursor, and a saved state that another run can resume from."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """A position in a run, which determines everything that follows; its attributes are those of `State`."""

    epoch: int = 0
    place: int = 0
    held: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    """How far all hosts together have read; any number of hosts can resume from it.

    Attributes:
        epoch: The number of completed epochs.
        place: The number of records of the current epoch that were read.
        seed: The seed of the order.
        order: The kind of order, as text.
        dataset: A fingerprint of the records and their order. A state does not fit other datasets.
        held: The places of records that were read but are not in a batch yet, for example in buckets.
        generations: The SHA-256 of the manifests of the datasets, with which they are found again after they have changed.

    Raises:
        ValueError: A value has the wrong type, a number is negative, or a held place was not read.

    Example:
        >>> batches = readers.as_numpy("shards/images", 32, split="train", shuffle=True)
        >>> batch = next(batches)
        >>> saved = batches.state().to_json()
        >>> resumed = readers.as_numpy("shards/images", 16, split="train", shuffle=True, state=saved)
        >>> resumed.state().place
        32
    """

    epoch: int
    place: int
    seed: int
    order: str
    dataset: str
    held: tuple[int, ...] = ()
    generations: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epoch", "place", "seed"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        if isinstance(self.held, (str, bytes)) or not isinstance(self.held, Iterable):
            raise ValueError(f"not a reader's state: held={self.held!r}, expected places")
        held = tuple(_number("held", place) for place in self.held)
        if len(set(held)) < len(held) or max(held, default=-1) >= self.place:
            raise ValueError(
                f"not a reader's state: held={str(held)[:80]}, expected different places before place={self.place}"
            )
        object.__setattr__(self, "held", held)
        for name in ("order", "dataset"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"not a reader's state: {name}={getattr(self, name)!r}, not text")
        found = self.generations
        if not isinstance(found, (list, tuple)) or not all(isinstance(sha, str) for sha in found):
            raise ValueError(f"not a reader's state: generations={found!r:.80}, not a list of text")
        object.__setattr__(self, "generations", tuple(found))

    def to_json(self) -> str:
        """The state as one line of JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str | bytes) -> State:
        """Parses the text that `to_json` returned.

        Raises:
            ValueError: The text is not the JSON of a state.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a reader's state: {error}") from None
        version = value.get("version") if isinstance(value, Mapping) else None
        if type(version) is int and version > _VERSION:
            raise ValueError(
                f"the state has version {version}, from a newer beam-shards: this one reads version "
                f"{_VERSION}; update it"
            )
        if version != _VERSION:
            raise ValueError(f"not a state of version {_VERSION}: {str(value)[:80]}")
        names = [field.name for field in fields(cls)]
        if missing := [name for name in names[:-2] if name not in value]:
            raise ValueError(f"not a reader's state: {str(value)[:80]} lacks {', '.join(missing)}")
        return cls(**{name: value[name] for name in names if name in value})


def _number(name: str, value: Any) -> int:
    """A number of at least 0, which may be a NumPy number; ValueError for anything else."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise ValueError(f"not a reader's state: {name}={value!r}, expected a number of at least 0")
    return number
