"""Class names and the integers they become."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.sources.labels import LABEL
from beam_jobs.sources.source import Label

# With more distinct labels than this, the field is not a class.
MAX_LABELS = 100_000

# Also 3.0, as programs write a column of whole numbers that has gaps.
_WHOLE_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,18})(?:\.0)?")

# Features whose class names become integers.
CLASSES = (LABEL, "box_labels")

# Class names by id, for each feature; no names if all classes are integers.
Names = Mapping[str, tuple[str, ...]]


def label_names(labels: Iterable[str]) -> tuple[str, ...]:
    """The names of all labels by id; no names if every label is a whole number.

    Whole numbers are kept (a folder called 10 is label 10); other names are numbered in sorted order.
    """
    names = sorted(set(labels))
    return tuple(names) if None in map(whole_number, names) else ()


def whole_number(label: str) -> int | None:
    """The int64 that a label is the text of, such as `3` or `3.0`; None for any other label."""
    digits = _WHOLE_NUMBER.fullmatch(label)
    number = int(digits[1]) if digits else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


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
        id_ = self._ids.get(text) if self._ids else whole_number(text)
        if id_ is None:
            raise RejectError(f"label {text!r:.80} was not seen when the inputs were listed")
        return id_


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
