"""Class names and the integers they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.sources.labels import LABEL, Label

# With more distinct labels than this, the field is not a class.
MAX_LABELS = 100_000

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")

# Features whose class names become integers.
CLASSES = (LABEL, "box_labels")

# Class names by id, for each feature; no names if all classes are integers.
Names = Mapping[str, tuple[str, ...]]


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """The names of all labels by id; no names if every label is an integer.

    Integer labels are kept (a folder called 10 is label 10); other names are numbered in sorted order.
    """
    found = sorted(set(labels))
    return () if all(map(_is_integer, found)) else tuple(found)


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63


class LabelIds:
    """The integer of each label, given the names of all.

    Args:
        names: Names from `label_names`; None if they are not known yet, which makes every label 0.
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
                f"label {text!r:.80} was not seen when the inputs were listed"
            ) from None


class ClassIds:
    """The integers of all classes in a record.

    Args:
        names: Class names by feature; None if they are not known yet.
    """

    def __init__(self, names: Names | None) -> None:
        self._ids = {f: LabelIds(None if names is None else names.get(f, ())) for f in CLASSES}

    def put(self, record: dict[str, Any]) -> dict[str, Any]:
        """Replaces class names in a record by their integers; returns the record."""
        for feature, ids in self._ids.items():
            if feature in record:
                record[feature] = ids[record[feature]]
        return record
