"""The records of a text job, and their texts: lines, rows of tables, or whole files, which are cut into chunks."""

from __future__ import annotations

import codecs
import io
import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Literal

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.encodings import Encodings
from beam_jobs.jobs.text.texts import TABLES, Texts, file_kind
from beam_jobs.sources.arrow_rows import read_row_groups, row_groups
from beam_jobs.sources.chunks import CHUNK_BYTES, Chunk, RangeCount, byte_ranges, row_group_sources
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels, column_text, field_label, label_of
from beam_jobs.sources.rows import MAX_LINE_BYTES, Row, json_row, numbered_lines, opened_text
from beam_jobs.sources.source import NOT_UTF8, Source, names_in, values_at
from beam_jobs.sources.tables import column_names, read_rows
from beam_jobs.storage.encodings import HEAD_BYTES, UTF8, check_head, is_utf8, not_decodable
from beam_jobs.storage.limits import check_bytes
from readers.files.stores.ahead import Read
from readers.files.stores.reading import EAGER_BYTES

TextUnit = Literal["line", "file"]

Tokens = Literal["none", "words", "bytes", "bpe", "file"]

# Files that can be cut by bytes.
_CUTTABLE = (".txt", ".jsonl")

# The number of files of a pattern, and of texts of a file, that are searched for a label.
_MAX_TRIED = 100

# Bytes of a range whose lines are counted at a time.
_BLOCK_BYTES = 1 << 20

_TOO_LONG = f"longer than {MAX_LINE_BYTES >> 20} MiB"

# A file with its label, and the other arguments of `TextSpec._add`.
_Line = tuple[Source, int, Any, str]


@dataclass(frozen=True)
class TextSpec:
    """The records of a text job: cuts files into chunks, and reads the texts in them.

    Attributes:
        inputs: `.txt` files and tables of all formats; any text files if each is a record.
        labels: The source of the labels of files, if no field has them.
        text_fields: The fields or columns with texts; each of several becomes a separate feature.
        label_field: The field or column with the label; empty without labels.
        several_labels: Whether `label_field` has lists.
        label_names: The names of classes by id if the files with `label_field` state them.
        columns: Other fields or columns to read.
        key_column: The field or column with the keys; empty for the file and its line or row.
        record: "line", or "file" if each file is one text.
        tokens: "words", "bytes", "bpe", "file" for a given tokenizer, or "none".
        vocabulary_size: The number of ids for "words" and "bpe", including the two reserved ones.
        max_length: The most tokens of a text that are kept; 0 keeps all.
        extras: The columns that become features.
        tokenizer: The contents of a given tokenizer's file; empty unless `tokens` is "file".
        vocabulary: All words of a given vocabulary by id; empty if it is learned, or not needed.
        window, stride: The length of windows, and the distance from one start to the next, both in
            tokens; 0 leaves texts whole.
        encodings: The encodings of features that are chosen by name.
    """

    inputs: Inputs
    labels: Labels
    text_fields: tuple[str, ...] = ("text",)
    label_field: str = ""
    several_labels: bool = False
    label_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    key_column: str = ""
    record: TextUnit = "line"
    tokens: Tokens = "none"
    vocabulary_size: int = 20_000
    max_length: int = 0
    extras: tuple[ExtraFeature, ...] = ()
    tokenizer: str = ""
    window: int = 0
    stride: int = 0
    encodings: Encodings = field(default_factory=dict)
    vocabulary: tuple[bytes, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether records have labels."""
        return bool(self.label_field) or self.labels.mode != "none"

    @property
    def text_features(self) -> tuple[str, ...]:
        """The names of the features with the texts: `text`, or those of several fields."""
        return self.text_fields if len(self.text_fields) > 1 else ("text",)

    @property
    def token_features(self) -> tuple[str, ...]:
        """The names of the features with the tokens of each text; empty without tokens."""
        if self.tokens == "none":
            return ()
        if len(self.text_fields) == 1:
            return ("tokens",)
        return tuple(f"{name}_tokens" for name in self.text_features)

    def chunks(self, source: Source) -> Iterator[Chunk]:
        """Yields the pieces of a source: row groups of a table, or byte ranges of a large file."""
        if self._is_cut(source, (".parquet",)):
            for part in row_group_sources(source, self.inputs.open):
                start, end, first = part.groups or (0, 0, 1)
                yield Chunk(part if part.error else source, start, end, first, part.size)
        elif source.size > CHUNK_BYTES and self._has_lines_to_cut(source):
            yield from byte_ranges(source)
        else:
            yield Chunk.whole(source)

    def _is_cut(self, source: Source, endings: tuple[str, ...]) -> bool:
        """Whether a source is a whole file with several records, and one of some endings."""
        whole_file = source.location is None and not source.error
        return whole_file and self.record == "line" and source.file.lower().endswith(endings)

    def _has_lines_to_cut(self, source: Source) -> bool:
        # In other encodings the byte of a newline may be a part of another character.
        return self.inputs.dialect.encoding == UTF8 and self._is_cut(source, _CUTTABLE)

    def reads(self, chunk: Chunk) -> Iterator[Read]:
        """Yields the first reads of `batches` in a store."""
        source = chunk.source
        if self._has_lines_to_cut(source) and chunk.end and not chunk.is_empty:
            yield from self.inputs.range_reads(chunk)
        elif not chunk.end:
            yield from self.inputs.reads(source, EAGER_BYTES)

    def batches(self, chunk: Chunk) -> Iterator[Texts]:
        """Yields all texts of a chunk and those that cannot become records, a few megabytes at a time.

        Raises:
            UsageError: A table lacks a column that is needed.
        """
        if chunk.is_empty:
            return
        if (data := self._whole_lines(chunk)) is not None:
            yield self._parse_lines(chunk, data)
            return
        texts, size = Texts.empty(len(self.text_fields)), 0
        for line in self._read(chunk):
            size += self._add(texts, *line)
            if size >= CHUNK_BYTES:
                yield texts
                texts, size = Texts.empty(len(self.text_fields)), 0
        yield texts

    def each(self, chunk: Chunk) -> Iterator[Texts]:
        """Yields each text or reject of a chunk by itself, as soon as it is read; errors as for `batches`."""
        for line in self._read(chunk):
            texts = Texts.empty(len(self.text_fields))
            self._add(texts, *line)
            yield texts

    def _whole_lines(self, chunk: Chunk) -> bytes | None:
        """The bytes of a chunk of lines; None if `_parse_lines` cannot parse them."""
        limit = 2 * CHUNK_BYTES
        end = chunk.end or chunk.start + limit
        source = chunk.source
        if not self._has_lines_to_cut(source) or not is_utf8(source.key):
            return None
        if self.columns or self.labels.columns or self.key_column or len(self.text_fields) > 1:
            return None
        if "." in self.text_fields[0] + self.label_field:
            return None
        # It may have a line that is too long.
        if end - chunk.start > limit or self.inputs.max_bytes < limit:
            return None
        try:
            self.labels.of(source)
            with self.inputs.stream(source) as file:
                file.seek(chunk.start)
                data = file.read(end - chunk.start)
            check_head(data[:HEAD_BYTES] if not chunk.start else b"", UTF8)
        except (OSError, RejectError):
            return None
        if b"\n" not in data and b"\r" in data:  # `numbered_lines` finds out what is wrong with it.
            return None
        # It reached the limit before its end: the file has grown since it was listed.
        return None if not chunk.end and len(data) == limit else data

    def _parse_lines(self, chunk: Chunk, data: bytes) -> Texts:
        """The texts of whole lines, as `_add` adds them, in half the time."""
        texts = Texts.empty(1)
        source = chunk.source._replace(label=self.labels.of(chunk.source))
        kind, _ = file_kind(source.file)
        prefix = f"{source.key}#".encode()
        is_json, (text_field,), label_field = kind == "jsonl", self.text_fields, self.label_field
        add_key, add_text, add_label = texts.keys.append, texts.texts[0].append, texts.labels.append
        if chunk.first == 1:
            data = data.removeprefix(codecs.BOM_UTF8)
        for number, line in enumerate(data.split(b"\n"), chunk.first):
            if not line or line.isspace():
                continue
            label = source.label
            try:
                if is_json:
                    fields = orjson.loads(line)
                    text = fields[text_field].encode()
                    if label_field:
                        label = fields[label_field]
                        special = (
                            type(label) is not str or label[:1] in ("", "[") or label[-2:] == ".0"
                        )
                        if special or self.several_labels:
                            label = label_of(label, self.several_labels)
                else:
                    text = line.rstrip(b"\r")
                    if label_field:
                        raise LookupError(label_field)
                    if not text.isascii():
                        text.decode()
            except (ValueError, LookupError, TypeError, AttributeError, RejectError):
                # This finds out what is wrong with it, if anything.
                self._add(texts, source, *self._line(number, kind, line.rstrip(b"\r")))
                continue
            add_key(b"%s%d" % (prefix, number))
            add_text(text)
            add_label(label)
        return texts

    def _read(self, chunk: Chunk) -> Iterator[_Line]:
        """Yields all lines, rows or whole files of a chunk; UsageError if a table lacks a column."""
        source = chunk.source
        if source.packed and not source.error:
            for member, data in self.inputs.unpacked(source):
                whole = Chunk(member, 0, 0, 1, len(data))
                yield from self._read_file(whole, io.BytesIO(data))
        else:
            yield from self._read_file(chunk)

    def _read_file(self, chunk: Chunk, unpacked: io.BytesIO | None = None) -> Iterator[_Line]:
        """Yields what is in a chunk of one file, which may come out of an archive."""
        source = chunk.source
        try:
            if not is_utf8(source.key):
                raise RejectError(NOT_UTF8)
            if source.error:
                raise RejectError(source.error)
            source = source._replace(label=self.labels.of(source))
        except RejectError as error:
            if not chunk.start:  # Once for a file that is read in several chunks.
                yield source, 0, None, str(error)
            return
        try:
            kind, packed = file_kind(source.file, self.record == "file")
            open_source = self.inputs.open if kind in TABLES else self.inputs.stream
            with unpacked or open_source(source) as raw:
                if kind in TABLES or kind == "json":
                    for row in self._rows(chunk, raw, kind, packed):
                        yield source, *row
                    return
                # A file is cut by bytes only if it is in UTF-8.
                file = raw if chunk.end else opened_text(raw, packed, self.inputs.dialect.encoding)
                if self.record == "file":
                    data = file.read(MAX_LINE_BYTES + 1).removeprefix(codecs.BOM_UTF8)
                    yield source, 0, data if len(data) <= MAX_LINE_BYTES else None, _TOO_LONG
                    return
                for number, line in numbered_lines(file, chunk.start, chunk.end, chunk.first):
                    yield source, *self._line(number, kind, line)
        except RejectError as error:
            yield source, 0, None, str(error)
        except (OSError, EOFError, zlib.error) as error:
            yield source, 0, None, f"cannot be read to its end: {error}"

    def _rows(self, chunk: Chunk, file: BinaryIO, kind: str, packed: bool) -> Iterator[Row]:
        """Yields the rows of a chunk of a table; UsageError if it lacks a column."""
        source, dialect = chunk.source, self.inputs.dialect
        fields = (*self.text_fields, self.label_field, self.key_column, *self.columns)
        needed = list(filter(None, fields))
        if kind in TABLES:
            try:
                header = column_names(file, kind, packed, dialect)
            except UsageError as error:
                raise UsageError(f"{source.key}: {error.message}") from None
            file.seek(0)
            if not header:
                return
            for name in needed:
                if name not in header and name not in source.row:
                    listed = ", ".join(header)
                    raise UsageError(f"{source.key}: no column {name!r}, it has {listed}")
        if kind == "parquet":
            groups = range(chunk.start, chunk.end or len(row_groups(file)))
            yield from read_row_groups(file, groups, needed, chunk.first, self.inputs.max_bytes)
        else:
            yield from read_rows(file, kind, packed, needed, dialect, self.inputs.max_bytes)

    def _line(self, number: int, kind: str, line: bytes | None) -> tuple[int, Any, str]:
        """The arguments of `_add` for a line; None is a line that is too long."""
        if kind == "jsonl":
            return json_row(number, line, self.inputs.dialect.encoding)
        return number, line, _TOO_LONG

    def _add(self, texts: Texts, source: Source, number: int, values: Any, error: str) -> int:
        """Adds the text of a line, a row or a whole file, or a reject; returns its length in characters.

        Args:
            source: Its file, with its label.
            number: The number of the line or row; 0 for a whole file.
            values: The fields of a row, or plain text in UTF-8; None if it cannot be read.
            error: Why it cannot be read.
        """
        key, label = f"{source.key}#{number}" if number else source.key, source.label
        fields: Mapping[str, Any] = {}
        try:
            if values is None:
                raise RejectError(error)
            if not isinstance(values, bytes):
                fields = values
                if self.key_column:
                    key = column_text(fields, self.key_column)
                own = self._texts_in(fields)
            elif len(self.text_fields) > 1:
                raise RejectError(f"plain text has no fields, such as {self.text_fields[0]!r}")
            else:
                own = (values.decode(),)
            if self.label_field:
                label = field_label(fields, self.label_field, self.several_labels, self.label_names)
            size, limit = sum(map(len, own)), self.inputs.max_bytes
            # No character has more than four bytes: most texts need not be encoded here.
            if 4 * size > limit:
                octets = sum(len(text.encode("utf-8", "surrogatepass")) for text in own)
                check_bytes(octets, limit, "it has")
        except RejectError as reason:
            return texts.reject(key, str(reason), label)
        except UnicodeDecodeError as reason:
            return texts.reject(key, not_decodable(self.inputs.dialect.encoding, reason), label)
        row = None
        if self.columns:
            row = values_at(source.row, self.columns) | values_at(fields, self.columns)
        texts.add(key, own, label, row)
        return size

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


def count_lines(inputs: Inputs, chunk: Chunk) -> RangeCount:
    """The lines that begin in a range of a file: at its first byte, or after a line end.

    Lines are numbered from the beginning of their file, which is cut before it is read. So
    `numbered_chunks` needs the counts of all its ranges.
    """
    lines, begin = int(not chunk.start), 0
    # A line begins at the range's first byte if the byte before it ends one.
    at, last = max(chunk.start - 1, 0), chunk.end - 1
    try:
        with inputs.stream(chunk.source) as file:
            file.seek(at)
            while at < last and (block := file.read(min(_BLOCK_BYTES, last - at))):
                if not at:
                    check_head(block[:HEAD_BYTES], UTF8)
                if not lines:
                    begin = at + block.find(b"\n") + 1
                lines += block.count(b"\n")
                at += len(block)
    except (OSError, RejectError) as error:
        return RangeCount(chunk, error=str(error))
    return RangeCount(chunk, lines, begin)


def first_label(spec: TextSpec) -> Any:
    """The first value of the label field; None without one."""
    name = spec.label_field
    if not name:
        return None
    spec = replace(spec, label_field="", columns=(name,))
    for pattern in spec.inputs.patterns:
        for source in spec.inputs.sources(pattern, limit=_MAX_TRIED):
            for texts in itertools.islice(spec.each(Chunk.whole(source)), _MAX_TRIED):
                if texts.rows and texts.rows[0].get(name) is not None:
                    return texts.rows[0][name]
    return None
