"""Texts as they are read, and the kinds of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.arrow_rows import ARROW_KINDS
from beam_jobs.sources.source import Label
from beam_jobs.sources.tables import EXPECTED, table_kind

# Tables whose columns are known before their rows.
TABLES = ("csv", "tsv", *ARROW_KINDS)


class Texts(NamedTuple):
    """The columns of many texts, and the rejected texts.

    Attributes:
        keys: In UTF-8.
        texts: Those of each field in `TextSpec.text_fields`, in UTF-8.
        labels: Labels as text; None without labels.
        rejects: Texts that cannot become records; the columns do not have them.
        classes: Their labels, or those of their files.
        rows: The values of `TextSpec.columns`; empty without columns.
    """

    keys: list[bytes]
    texts: list[list[bytes]]
    labels: list[Label | None]
    rejects: list[Reject]
    classes: set[Label]
    rows: list[Mapping[str, Any]]

    @classmethod
    def empty(cls, fields: int) -> Texts:
        return cls([], [[] for _ in range(fields)], [], [], set(), [])

    def add(
        self, key: str, texts: Sequence[str], label: Label | None, row: Mapping[str, Any] | None
    ) -> None:
        """Adds the texts of a record; `row` is None without columns."""
        self.keys.append(key.encode())
        for column, text in zip(self.texts, texts, strict=True):
            column.append(text.encode())
        self.labels.append(label)
        if row is not None:
            self.rows.append(row)

    def reject(self, key: str, error: str, label: Label | None) -> int:
        """Adds a text that cannot become a record; returns the length of the error."""
        self.rejects.append(Reject.of(key, "read", error))
        if label is not None:
            self.classes.add(label)
        return len(error)

    def take(self, rows: np.ndarray) -> Texts:
        """The texts of some rows, int [m], and all rejects."""
        chosen = rows.tolist()
        return Texts(
            [self.keys[row] for row in chosen],
            [[texts[row] for row in chosen] for texts in self.texts],
            [self.labels[row] for row in chosen],
            self.rejects,
            self.classes,
            [self.rows[row] for row in chosen] if self.rows else [],
        )


def file_kind(path: str, whole: bool = False) -> tuple[str, bool]:
    """A file's kind by its name, "txt" or a `table_kind`, and whether it is gzipped.

    Args:
        whole: Whether the file is one text, which may have any ending but those of tables that are not text.

    Raises:
        RejectError: The name has another ending.
    """
    name = path.lower()
    ending = name.rpartition(".")[2]
    if whole and ending in ARROW_KINDS:
        raise RejectError(f"--record file is for text files, which .{ending} is not")
    if whole or name.endswith((".txt", ".txt.gz")):
        return "txt", name.endswith(".gz")
    if kind := table_kind(path):
        return kind
    raise RejectError(
        f"{EXPECTED.replace('expected ', 'expected .txt, ')}, or take any text file as one record with "
        "--record file"
    )
