"""Class names and the integers they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.sources.labels import LABEL, Label

# More distinct labels than this are a wrong field, not classes.
MAX_LABELS = 100_000

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")

# The features that are classes: what a job gives by name becomes integers.
CLASSES = (LABEL, "box_labels")

# The names of classes by id, for every feature that has some; none where all are integers.
Names = Mapping[str, tuple[str, ...]]


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """The names of all labels by id; none where every label is itself an integer.

    Integers stay what they are (a folder called 10 is label 10), anything else is numbered in
    the order of the names.
    """
    found = sorted(set(labels))
    return () if all(map(_is_integer, found)) else tuple(found)


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63


class LabelIds:
    """The integer of each label, given the names of all.

    Args:
        names: As `label_names` gives them; None where they are not known yet: all are 0 then.
    """

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self._ids = None if names is None else {name: id_ for id_, name in enumerate(names)}

    def __getitem__(self, label: Label) -> int | list[int]:
        if isinstance(label, tuple):
            return [self._id(text) for text in label]
        return self._id(label)

    def _id(self, text: str) -> int:
        if self._ids is None:
            return 0
        try:
            return self._ids[text] if self._ids else int(text)
        except (KeyError, ValueError):
            raise RejectError(
                f"label {text!r:.80} was not there when the inputs were listed"
            ) from None


class ClassIds:
    """The integers of all classes in a record.

    Args:
        names: By feature; None where they are not known yet.
    """

    def __init__(self, names: Names | None) -> None:
        self._ids = {f: LabelIds(None if names is None else names.get(f, ())) for f in CLASSES}

    def put(self, record: dict[str, Any]) -> dict[str, Any]:
        """Puts them in the place of their names; returns the record."""
        for feature, ids in self._ids.items():
            if feature in record:
                record[feature] = ids[record[feature]]
        return record
