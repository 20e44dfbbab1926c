"""A line or a row -> its text, with the label, the key and the columns that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_jobs.errors import RejectError
from beam_jobs.jobs.text.texts import Text
from beam_jobs.sources.labels import field_label, key_text
from beam_jobs.sources.rows import MAX_LINE_BYTES, Row
from beam_jobs.sources.source import Label, names_in, values_at
from beam_jobs.storage.encodings import not_decodable
from beam_jobs.storage.limits import DEFAULT_RECORD_BYTES, exceeds


@dataclass(frozen=True, kw_only=True)
class TextFields:
    """What a line or a row holds.

    Attributes:
        text_field, label_field: The fields or columns that hold them; an empty `label_field` if
            none holds labels.
        several_labels: Whether `label_field` holds lists.
        label_names: The names of classes by id if the files with `label_field` state them.
        columns: Further fields or columns to read.
        more_fields: Fields or columns with further texts, which are features of their own.
        key_column: The field or column that names the texts; empty for the file and its line or row.
    """

    text_field: str = "text"
    label_field: str = ""
    several_labels: bool = False
    label_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    more_fields: tuple[str, ...] = ()
    key_column: str = ""

    @property
    def needed(self) -> list[str]:
        """The fields or columns to read."""
        fields = (self.text_field, *self.more_fields, self.label_field, self.key_column)
        return list(filter(None, (*fields, *self.columns)))

    @property
    def max_bytes(self) -> int:
        """The most bytes of a text, or of the texts of a row together."""
        return DEFAULT_RECORD_BYTES

    def plain_text(
        self,
        key: str,
        data: bytes | None,
        encoding: str,
        label: Label | None,
        file_row: Mapping[str, Any],
    ) -> Text:
        """The text of a line or of a whole file.

        Args:
            key: The key of its record.
            data: Its bytes in UTF-8; None if they are more than `MAX_LINE_BYTES`.
            encoding: The encoding of its file, which an error names.
            label: The label of its file.
            file_row: The columns of its file.
        """
        if data is None or len(data) > MAX_LINE_BYTES:
            return Text.of_error(key, f"longer than {MAX_LINE_BYTES >> 20} MiB", label)
        if self.more_fields:
            return Text.of_error(
                key, f"plain text has no fields, such as {self.text_field!r}", label
            )
        try:
            return self._text(key, (data.decode(),), {}, label, file_row)
        except UnicodeDecodeError as error:
            return Text.of_error(key, not_decodable(encoding, error), label)

    def row_text(
        self, key: str, row: Row, label: Label | None, file_row: Mapping[str, Any]
    ) -> Text:
        """The text of a row of a table, or of an object of JSON.

        Args:
            key: The key of its record, unless `key_column` holds it.
            row: The row.
            label: The label of its file.
            file_row: The columns of its file.
        """
        if row.values is None:
            return Text.of_error(key, row.error, label)
        if self.key_column:
            try:
                key = key_text(row.values, self.key_column)
            except RejectError as reason:
                return Text.of_error(key, reason, label)
        fields = (self.text_field, *self.more_fields)
        found = values_at(row.values, fields)
        texts = tuple(text for text in found.values() if isinstance(text, str))
        if len(texts) == len(fields):
            return self._text(key, texts, row.values, label, file_row)
        known = ", ".join(names_in(row.values)) or "no fields"
        name = next(name for name in fields if not isinstance(found.get(name), str))
        if name in found:
            error = f"field {name!r} is {found[name]!r:.80}, expected text; the record has {known}"
        else:
            error = f"no field {name!r}, it has {known}; name the one with the text: --text_field"
        return Text.of_error(key, error, label)

    def _text(
        self,
        key: str,
        texts: tuple[str, ...],
        fields: Mapping[str, Any],
        label: Label | None,
        file_row: Mapping[str, Any],
    ) -> Text:
        """A text with its label and columns.

        Args:
            texts: The texts of `text_field` and of `more_fields`.
            fields: The fields that were read with the text.
            label: The label of its file.
            file_row: The columns of its file.
        """
        if self.label_field:
            try:
                label = field_label(fields, self.label_field, self.several_labels, self.label_names)
            except RejectError as error:
                return Text.of_error(key, error, label)
        # No character has more than four bytes: most texts need not be encoded here.
        if 4 * sum(map(len, texts)) > self.max_bytes:
            size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
            if size > self.max_bytes:
                return Text.of_error(key, exceeds(size, self.max_bytes), label)
        text, *more = texts
        if not self.columns:
            return Text(key, text, label, more=tuple(more))
        found = values_at(file_row, self.columns) | values_at(fields, self.columns)
        return Text(key, text, label, row=found, more=tuple(more))
