"""The labels of windows, from the labels of their samples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.sensors.inside.columns import Column, is_missing
from beam_jobs.sources.classes import whole_number
from beam_jobs.sources.labels import label_text

_ANY = "any:"


@dataclass(frozen=True)
class WindowLabel:
    """How the labels of samples become the label of their window.

    Attributes:
        rule: "majority", of several equally frequent labels the smallest; "last", the label of the
            last sample that has one; or `any:VALUE`, VALUE if any sample has it, else the majority.
    """

    rule: str = "majority"

    @classmethod
    def parse(cls, text: str) -> WindowLabel:
        """Parses the value of `--window_label`: majority, last or any:VALUE.

        Raises:
            UsageError: it is not such a rule.
        """
        if text not in ("majority", "last") and (not text.startswith(_ANY) or text == _ANY):
            raise UsageError(
                f"--window_label {text}: expected majority, last, or any:VALUE such as any:fall"
            )
        return cls(text)

    def of(self, column: Column, windows: Iterable[np.ndarray | slice]) -> list[str | None]:
        """The label of each window; None if none of its samples has one.

        Args:
            column: The labels of the samples.
            windows: The samples of each window.

        Raises:
            RejectError: a label is neither text nor a whole number.
        """
        texts = [None if is_missing(value) else label_text(value) for value in column.values]
        labels = _sorted({text for text in texts if text is not None})
        ranks = {text: rank for rank, text in enumerate(labels)}
        codes = np.array([-1 if text is None else ranks[text] for text in texts])[column.codes]
        alarm = ranks.get(self.rule.removeprefix(_ANY)) if self.rule.startswith(_ANY) else None
        return [self._label(labels, codes[window], alarm) for window in windows]

    def _label(self, labels: list[str], codes: np.ndarray, alarm: int | None) -> str | None:
        known = codes[codes >= 0]
        if not len(known):
            return None
        if self.rule == "last":
            return labels[known[-1]]
        if alarm is not None and (known == alarm).any():
            return labels[alarm]
        found, counts = np.unique(known, return_counts=True)
        return labels[found[counts.argmax()]]


def _sorted(labels: set[str]) -> list[str]:
    """Labels in ascending order: of their numbers if all are whole numbers."""
    numbers = {label: whole_number(label) for label in labels}
    if None in numbers.values():
        return sorted(labels)
    return sorted(labels, key=lambda label: (numbers[label], label))
