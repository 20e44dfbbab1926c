"""Texts as they are read, the kinds of their files, and the fields of a line or a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.arrow_rows import ARROW_KINDS
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import column_text, field_label
from beam_jobs.sources.rows import MAX_LINE_BYTES, Row
from beam_jobs.sources.source import Label, Source, names_in, values_at
from beam_jobs.sources.tables import EXPECTED, table_kind
from beam_jobs.storage.encodings import not_decodable
from beam_jobs.storage.limits import exceeds

# Tables whose columns are known before their rows.
TABLES = ("csv", "tsv", *ARROW_KINDS)


class Text(NamedTuple):
    """A text with its key, label and columns.

    Attributes:
        key: The key of its record.
        texts: Those of `TextFields.text_fields`; empty if it cannot become a record.
        label: Its label, or labels, as text; the label of its file if it cannot become a record; None without.
        error: Why it cannot become a record.
        row: The values of `TextFields.columns`; None without columns.
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
        texts: Those of each field in `TextFields.text_fields`, in UTF-8.
        labels: Labels as text; None without labels.
        rejects: Texts that cannot become records; the columns do not have them.
        classes: The labels of their files.
        rows: The values of `TextFields.columns`; empty without columns.
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


@dataclass(frozen=True, kw_only=True)
class TextFields:
    """The fields or columns of a line or a row.

    Attributes:
        inputs: `.txt` files and tables of all formats; any text files if each is a record.
        text_fields: The fields or columns with texts; each of several becomes a separate feature.
        label_field: The field or column with the label; empty without labels.
        several_labels: Whether `label_field` has lists.
        label_names: The names of classes by id if the files with `label_field` state them.
        columns: Other fields or columns to read.
        key_column: The field or column with the keys; empty for the file and its line or row.
    """

    inputs: Inputs = field(kw_only=False)
    text_fields: tuple[str, ...] = ("text",)
    label_field: str = ""
    several_labels: bool = False
    label_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    key_column: str = ""

    @property
    def needed(self) -> list[str]:
        """The fields or columns to read."""
        fields = (*self.text_fields, self.label_field, self.key_column, *self.columns)
        return list(filter(None, fields))

    def plain_text(self, key: str, data: bytes | None, file: Source) -> Text:
        """The text of a line or of a whole file.

        Args:
            key: The key of its record.
            data: Its bytes in UTF-8; None if they are more than `MAX_LINE_BYTES`.
            file: Its file, with its label.
        """
        try:
            if data is None or len(data) > MAX_LINE_BYTES:
                raise RejectError(f"longer than {MAX_LINE_BYTES >> 20} MiB")
            if len(self.text_fields) > 1:
                raise RejectError(f"plain text has no fields, such as {self.text_fields[0]!r}")
            return self._text(key, (data.decode(),), {}, file)
        except UnicodeDecodeError as error:
            reason = not_decodable(self.inputs.dialect.encoding, error)
            return Text.of_error(key, reason, file.label)
        except RejectError as error:
            return Text.of_error(key, error, file.label)

    def row_text(self, row: Row, file: Source) -> Text:
        """The text of a row of a table, or of an object of JSON, in a file with its label."""
        key = f"{file.key}#{row.number}" if row.number else file.key
        try:
            if row.values is None:
                raise RejectError(row.error)
            if self.key_column:
                key = column_text(row.values, self.key_column)
            return self._text(key, self._texts_in(row.values), row.values, file)
        except RejectError as error:
            return Text.of_error(key, error, file.label)

    def _texts_in(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """The texts of `text_fields`."""
        found = values_at(row, self.text_fields)
        texts = tuple(text for text in found.values() if isinstance(text, str))
        if len(texts) == len(self.text_fields):
            return texts
        known = ", ".join(names_in(row)) or "no fields"
        name = next(name for name in self.text_fields if not isinstance(found.get(name), str))
        if name in found:
            raise RejectError(
                f"field {name!r} is {found[name]!r:.80}, expected text; the record has {known}"
            )
        raise RejectError(
            f"no field {name!r}, it has {known}; name the field with the text: --text_field"
        )

    def _text(
        self, key: str, texts: tuple[str, ...], fields: Mapping[str, Any], file: Source
    ) -> Text:
        """A text with its label and columns.

        Args:
            texts: The texts of `text_fields`.
            fields: The fields that were read with the text.
            file: Its file, with its label.
        """
        label = file.label
        if self.label_field:
            label = field_label(fields, self.label_field, self.several_labels, self.label_names)
        # No character has more than four bytes: most texts need not be encoded here.
        if 4 * sum(map(len, texts)) > self.inputs.max_bytes:
            size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
            if size > self.inputs.max_bytes:
                return Text.of_error(key, exceeds(size, self.inputs.max_bytes), label)
        if not self.columns:
            return Text(key, texts, label)
        found = values_at(file.row, self.columns) | values_at(fields, self.columns)
        return Text(key, texts, label, row=found)
