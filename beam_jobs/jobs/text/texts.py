"""Texts as they are read, and the kinds of their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.arrow_rows import ARROW_KINDS
from beam_jobs.sources.source import Label
from beam_jobs.sources.tables import EXPECTED, table_kind

# Tables whose columns are known before their rows.
TABLES = ("csv", "tsv", *ARROW_KINDS)


class Text(NamedTuple):
    """A text with its key, label and columns.

    Attributes:
        key: The key of its record.
        texts: Those of `TextSpec.text_fields`; empty if it cannot become a record.
        label: Its label, or labels, as text; the label of its file if it cannot become a record; None without.
        error: Why it cannot become a record.
        row: The values of `TextSpec.columns`; None without columns.
    """

    key: str
    texts: tuple[str, ...]
    label: Label | None
    error: str = ""
    row: Mapping[str, Any] | None = None

    @property
    def size(self) -> int:
        """Its length in characters, or that of its error."""
        return sum(map(len, self.texts)) + len(self.error)

    @classmethod
    def of_error(cls, key: str, error: object, label: Label | None = None) -> Text:
        """A text that cannot become a record, in a file with a label."""
        return cls(key, (), label, str(error))


class Texts(NamedTuple):
    """The columns of many texts, and the rejected texts.

    Attributes:
        keys: In UTF-8.
        texts: Those of each field in `TextSpec.text_fields`, in UTF-8.
        labels: Labels as text; None without labels.
        rejects: Texts that cannot become records; the columns do not have them.
        classes: The labels of their files.
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

    def add(self, text: Text) -> None:
        """Adds a text."""
        if not text.texts:
            self.rejects.append(Reject.of(text.key, "read", text.error))
            if text.label is not None:
                self.classes.add(text.label)
            return
        self.keys.append(text.key.encode())
        for texts, own in zip(self.texts, text.texts, strict=True):
            texts.append(own.encode())
        self.labels.append(text.label)
        if text.row is not None:
            self.rows.append(text.row)

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
