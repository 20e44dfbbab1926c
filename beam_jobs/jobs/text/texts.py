"""Texts as they were read, one or many, and the kinds of files that hold them."""

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
    """A text and what belongs to it.

    Attributes:
        key: The key of its record.
        text: The text; None if it cannot become a record.
        label: Its label, or labels, as text; of its file, if it cannot become a record; None without.
        error: Why it cannot become a record.
        row: The values of `TextFields.columns`; None without columns.
        more: The texts of `TextFields.more_fields`.
    """

    key: str
    text: str | None
    label: Label | None
    error: str = ""
    row: Mapping[str, Any] | None = None
    more: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Its length in characters, with those of its other fields; of its error without a text."""
        return len(self.error if self.text is None else self.text) + sum(map(len, self.more))

    @classmethod
    def of_error(cls, key: str, error: object, label: Label | None = None) -> Text:
        """A text that cannot become a record, in a file with a label."""
        return cls(key, None, label, str(error))


class Texts(NamedTuple):
    """The columns of many texts, and what could not become a record.

    Attributes:
        keys, texts: In UTF-8.
        labels: Labels as text; None without labels.
        rejects: Texts that cannot become records; they are in no column.
        classes: The labels of their files.
        rows: The values of `TextFields.columns`; empty without columns.
        more: The texts of `TextFields.more_fields` in UTF-8; empty without such fields.
    """

    keys: list[bytes]
    texts: list[bytes]
    labels: list[Label | None]
    rejects: list[Reject]
    classes: set[Label]
    rows: list[Mapping[str, Any]]
    more: list[tuple[bytes, ...]]

    @classmethod
    def empty(cls) -> Texts:
        return cls([], [], [], [], set(), [], [])

    def of_field(self, number: int) -> list[bytes]:
        """The texts of one of the fields: 0 for `texts`, from 1 those in `more`."""
        return [texts[number - 1] for texts in self.more] if number else self.texts

    def add(self, text: Text) -> None:
        """Adds a text."""
        if text.text is None:
            self.rejects.append(Reject.of(text.key, "read", text.error))
            if text.label is not None:
                self.classes.add(text.label)
            return
        self.keys.append(text.key.encode())
        self.texts.append(text.text.encode())
        self.labels.append(text.label)
        if text.row is not None:
            self.rows.append(text.row)
        if text.more:
            self.more.append(tuple(more.encode() for more in text.more))

    def take(self, rows: np.ndarray) -> Texts:
        """The texts of some rows, int [m], and all rejects."""
        chosen = rows.tolist()
        return Texts(
            [self.keys[row] for row in chosen],
            [self.texts[row] for row in chosen],
            [self.labels[row] for row in chosen],
            self.rejects,
            self.classes,
            [self.rows[row] for row in chosen] if self.rows else [],
            [self.more[row] for row in chosen] if self.more else [],
        )


def file_kind(path: str, whole: bool = False) -> tuple[str, bool]:
    """A file's kind by its name, "txt" or a `table_kind`, and whether it is gzipped.

    Args:
        path: The file's path.
        whole: Whether the file is one text, which may have any ending but those of tables that are not text.

    Raises:
        RejectError: The name has another ending.
    """
    name = path.lower()
    ending = name.rpartition(".")[2]
    if whole and ending in ARROW_KINDS:
        raise RejectError(f"--record file is for text, which .{ending} is not")
    if whole or name.endswith((".txt", ".txt.gz")):
        return "txt", name.endswith(".gz")
    if kind := table_kind(path):
        return kind
    raise RejectError(
        f"{EXPECTED.replace('expected ', 'expected .txt, ')}, or take any text file as one record with "
        "--record file"
    )
