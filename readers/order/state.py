"""How far a run has read: a cursor, and the saved state from which another run resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """A position in a run that determines everything that follows.

    Attributes:
        epoch: The number of completed epochs.
        place: How many records of the current epoch were read.
        held: The places of records that were read but are not in a batch yet, such as those in
            buckets.
    """

    epoch: int = 0
    place: int = 0
    held: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    """How far all hosts together have read: enough to resume, on any number of hosts.

    Attributes:
        epoch: The number of completed epochs.
        place: How many records of the current epoch were read.
        seed: The seed of the order.
        order: The kind of order, in words.
        dataset: A fingerprint of the records and their order. A state fits no other dataset.
        held: The places of records that were read but are not in a batch yet, such as those in
            buckets.
    """

    epoch: int
    place: int
    seed: int
    order: str
    dataset: str
    held: tuple[int, ...] = ()

    @property
    def cursor(self) -> Cursor:
        """The position in the run."""
        return Cursor(self.epoch, self.place, self.held)

    def to_json(self) -> str:
        """The state as one line of JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def of(cls, value: Any) -> State | None:
        """The state in a reader's argument, which may be a State, its JSON, or None.

        Raises:
            ValueError: The value is none of these.
        """
        if value is None or isinstance(value, State):
            return value
        if isinstance(value, (str, bytes)):
            return cls.from_json(value)
        raise ValueError(f"state={value!r}: expected a readers.State, or its JSON")

    @classmethod
    def from_json(cls, text: str | bytes) -> State:
        """The state that `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of a state.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not a reader's state: {error}") from None
        if not isinstance(value, Mapping) or value.get("version") != _VERSION:
            raise ValueError(f"not a state of version {_VERSION}: {str(value)[:80]}")
        held = value.get("held", [])
        numbers = [value.get(name) for name in ("epoch", "place", "seed")]
        texts = [value.get(name) for name in ("order", "dataset")]
        if (
            not isinstance(held, list)
            or not all(type(number) is int and number >= 0 for number in numbers + held)
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ValueError(f"not a reader's state: {str(value)[:200]}")
        fields: list[Any] = [*numbers, *texts, tuple(held)]
        return cls(*fields)
