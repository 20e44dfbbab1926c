"""How far a run has read: a cursor, and a state that another run resumes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_VERSION = 1


@dataclass(frozen=True)
class Cursor:
    """A place from which all that follows is known.

    Attributes:
        epoch: Epochs that are done.
        place: Records that are done in the one after them.
        held: Places of those that were read and are in no batch yet, as those in buckets.
    """

    epoch: int = 0
    place: int = 0
    held: tuple[int, ...] = ()


@dataclass(frozen=True)
class State:
    """How far all hosts together have read: enough to go on from there, on any number of hosts.

    Attributes:
        epoch: Epochs that are done.
        place: Records that are done in the one after them.
        seed: What the order follows from.
        order: The kind of order.
        dataset: A fingerprint of the records and their order; a state fits no other dataset.
        held: Places of records that were read and are in no batch yet, as those in buckets.
    """

    epoch: int
    place: int
    seed: int
    order: str
    dataset: str
    held: tuple[int, ...] = ()

    @property
    def cursor(self) -> Cursor:
        """The place that it says."""
        return Cursor(self.epoch, self.place, self.held)

    def to_json(self) -> str:
        """The state as a line of JSON."""
        return json.dumps({"version": _VERSION, **asdict(self)})

    @classmethod
    def of(cls, value: Any) -> State | None:
        """The state that an argument gives: one, its JSON, or None.

        Raises:
            ValueError: It is something else.
        """
        if value is None or isinstance(value, State):
            return value
        if isinstance(value, (str, bytes)):
            return cls.from_json(value)
        raise ValueError(f"state={value!r}: expected a readers.State, or its JSON")

    @classmethod
    def from_json(cls, text: str | bytes) -> State:
        """The state that `to_json` gave.

        Raises:
            ValueError: It is none; the message says what is wrong.
        """
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not the state of a reader: {error}") from None
        if not isinstance(value, Mapping) or value.get("version") != _VERSION:
            raise ValueError(f"not a state of version {_VERSION}: {str(value)[:80]}")
        fields: dict[str, Any] = {
            name: value.get(name) for name in ("epoch", "place", "seed", "order", "dataset")
        }
        held = value.get("held", [])
        fields["held"] = tuple(held) if isinstance(held, list) else (held,)
        numbers = [fields[name] for name in ("epoch", "place", "seed")]
        numbers += fields["held"]
        texts = [fields["order"], fields["dataset"]]
        if not all(type(n) is int and n >= 0 for n in numbers) or not all(
            isinstance(t, str) for t in texts
        ):
            raise ValueError(f"not the state of a reader: {str(value)[:200]}")
        return cls(**fields)
