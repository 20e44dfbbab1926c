"""The text job: a record is a line of a text file, a row of a table, or a whole file."""

from __future__ import annotations

import gzip
import io
import itertools
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, BinaryIO, cast

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.passes import EncodingPlan, FirstPass, SecondPass, SplitRules
from beam_jobs.jobs.protocols import (
    Learns,
    LearnSubwords,
    LearnWords,
    RecordJob,
    complete_schema,
)
from beam_jobs.jobs.text.passes import TextDigests, TextFirstPass, TextSample, TextSecondPass
from beam_jobs.jobs.text.sample import sample_below
from beam_jobs.jobs.text.texts import (
    _BYTE_ORDER_MARK,
    _NO_ROW,
    PLAIN,
    TABLES,
    Text,
    Texts,
    _lines,
    file_kind,
)
from beam_jobs.records.rejects import OnReject
from beam_jobs.sources.chunks import CHUNK_BYTES, Chunk
from beam_jobs.sources.classes import Names
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Label, Labels, field_label, label_of
from beam_jobs.sources.parquet import read_row_groups, row_groups
from beam_jobs.sources.rows import MAX_LINE_BYTES, Row, parse_json
from beam_jobs.sources.source import NOT_UTF8, Source, is_utf8
from beam_jobs.sources.tables import column_names, read_rows
from readers.format.schema import Feature, Schema

TOKENS = ("none", "words", "bytes", "bpe")

# Files of a pattern, and texts of each, looked at for one that has a label.
_TRIED = 100


@dataclass(frozen=True)
class TextJob(RecordJob):
    """What a text record is.

    Attributes:
        inputs: `.txt`, `.jsonl`, `.csv` and `.parquet` files, the first three also `.gz`.
        labels: Where the labels of files come from, unless a field holds them.
        record: "line", or "file" for a whole `.txt` file.
        text_field, label_field: Names in `.jsonl`, `.csv` and `.parquet`; no label if empty.
        tokens: One of `TOKENS`, or "file".
        vocabulary_size: Ids of "words" and "bpe", the two reserved ones included.
        max_length: How many tokens of a text are kept; 0 for all.
        several_labels: Whether `label_field` holds lists.
        extras: Columns that are kept as features.
        columns: All columns that somebody asks for beside text and label.
        tokenizer: With "file", the text of the tokenizer's file.
        window, stride: In tokens: long texts are cut; 0 for texts as they are.
        drop_duplicates: Whether of equal texts one is kept.
    """

    inputs: Inputs
    labels: Labels
    record: str = "line"
    text_field: str = "text"
    label_field: str = ""
    tokens: str = "none"
    vocabulary_size: int = 20_000
    max_length: int = 0
    several_labels: bool = False
    extras: tuple[ExtraFeature, ...] = ()
    columns: tuple[str, ...] = ()
    tokenizer: str = ""
    window: int = 0
    stride: int = 0
    drop_duplicates: bool = False

    def __post_init__(self) -> None:
        if self.label_field and self.labels.mode != "none":
            raise UsageError("--label_field and --label both say where labels come from: drop one")
        if self.tokens == "none" and self.max_length:
            raise UsageError(
                "--max_length counts tokens: add --tokens words, bytes, bpe or FILE.json"
            )
        if self.tokens == "none" and self.window:
            raise UsageError("--window counts tokens: add --tokens words, bytes, bpe or FILE.json")
        if self.window and self.max_length:
            raise UsageError(
                "--window keeps all tokens of a text, --max_length cuts them: drop one"
            )

    @property
    def has_windows(self) -> bool:
        return self.window > 0

    @property
    def class_names(self) -> Names:
        return {}

    @property
    def vocabulary(self) -> tuple[bytes, ...]:
        return ()

    @property
    def learns(self) -> Learns:
        if self.tokens == "words":
            return LearnWords(self.vocabulary_size)
        if self.tokens == "bpe":
            return LearnSubwords(self.vocabulary_size, self._sample_pass)
        return None

    def first_pass(self, rules: SplitRules, on_reject: OnReject, tokenizer: str = "") -> FirstPass:
        return TextFirstPass(rules=rules, on_reject=on_reject, job=self, tokenizer=tokenizer)

    def second_pass(self, known: EncodingPlan) -> SecondPass:
        return TextSecondPass(known, self)

    def digest_pass(self, rules: SplitRules) -> TextDigests | None:
        return TextDigests(self, rules) if self.drop_duplicates else None

    def _sample_pass(self, rules: SplitRules, size: int) -> TextSample:
        return TextSample(self, rules, sample_below(size))

    def without_tokenizer(self) -> TextJob:
        return replace(self, tokenizer="")

    @property
    def labelled(self) -> bool:
        return bool(self.label_field) or self.labels.mode != "none"

    @cached_property
    def _label(self) -> Labels:
        """Labels of a field are those of a column."""
        if self.label_field:
            return Labels("column", self.label_field, self.several_labels)
        return self.labels

    @property
    def schema(self) -> Schema:
        """Of the records: text, tokens if asked for, and what every job's have."""
        own = {"text": Feature("string")}
        if self.tokens != "none":
            own["tokens"] = Feature("int64", (None,), "list")
        return complete_schema(own, self._label, self.extras)

    def sources(self, pattern: str) -> Iterator[Source]:
        """Yields the sources that one of the inputs' patterns matches."""
        return self.inputs.sources(pattern)

    def chunks(self, source: Source) -> Iterator[Chunk]:
        """Yields the pieces of a source; every piece begins and ends with a line, or a row group."""
        key, size = source.file, source.size
        lower = key.lower()
        if lower.endswith(".parquet") and source.place is None and not source.error:
            yield from self._row_groups(source)
            return
        splittable = lower.endswith(PLAIN) and self.record == "line" and source.place is None
        if size <= CHUNK_BYTES or not splittable or source.error:
            yield Chunk(source, 0, 0, 1, size)
            return
        start, first = 0, 1
        try:
            with self.inputs.stream(source) as file:
                while block := file.read(CHUNK_BYTES):
                    end, ended = start + len(block), block.endswith(b"\n")
                    while not ended and (rest := file.readline(CHUNK_BYTES)):
                        end, ended = end + len(rest), rest.endswith(b"\n")
                        block += b"\n" * ended
                    yield Chunk(source, start, end, first, end - start)
                    first += block.count(b"\n")
                    start = end
        except OSError as error:
            broken = source._replace(error=f"cannot be read to its end: {error}")
            yield Chunk(broken, start, 0, first, size - start)

    def _row_groups(self, source: Source) -> Iterator[Chunk]:
        try:
            with self.inputs.open(source) as file:
                groups = row_groups(file)
        except (OSError, RejectError) as error:
            yield Chunk(source._replace(error=str(error)), 0, 0, 1, source.size)
            return
        start, first, rows = 0, 1, 0
        total = max(sum(groups), 1)
        for end, count in enumerate(groups, 1):
            rows += count
            size = source.size * rows // total
            # Small ones together: what it takes to open a file grows with their number.
            if size >= CHUNK_BYTES or end == len(groups):
                yield Chunk(source, start, end, first, size)
                start, first, rows = end, first + rows, 0

    def batches(self, chunk: Chunk) -> Iterator[Texts]:
        """Yields the records that `read` has, a few megabytes at a time.

        Raises:
            UsageError: As `read`.
        """
        if (data := self._whole_lines(chunk)) is not None:
            yield self._parse_lines(chunk, data)
            return
        texts, size = Texts.empty(), 0
        for text in self.read(chunk):
            texts.add(text)
            size += len(text.text or text.error)
            if size >= CHUNK_BYTES:
                yield texts
                texts, size = Texts.empty(), 0
        yield texts

    def _whole_lines(self, chunk: Chunk) -> bytes | None:
        """The bytes of a chunk of plain lines; None where `read` has to look at it."""
        limit = 2 * CHUNK_BYTES
        end = chunk.end or chunk.start + limit
        source = chunk.source
        plain = source.file.lower().endswith(PLAIN) and source.place is None and not source.error
        if self.record != "line" or not plain or not is_utf8(source.key):
            return None
        if self.columns or self.labels.columns:
            return None
        if end - chunk.start > limit:  # There is a long line in it.
            return None
        try:
            with self.inputs.stream(source) as file:
                file.seek(chunk.start)
                data = file.read(end - chunk.start)
        except OSError:
            return None
        # Full without a known end: it has grown since it was listed.
        return None if not chunk.end and len(data) == limit else data

    def _parse_lines(self, chunk: Chunk, data: bytes) -> Texts:
        """The records of whole lines: what `_lines` and `_line` make of them, in half the time."""
        texts = Texts.empty()
        source = chunk.source
        kind, _ = file_kind(source.file)
        prefix, file_label = f"{source.key}#".encode(), self.labels.of(source)
        is_json, text_field, label_field = kind == "jsonl", self.text_field, self.label_field
        add_key, add_text, add_label = texts.keys.append, texts.texts.append, texts.labels.append
        if chunk.first == 1:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        for number, line in enumerate(data.split(b"\n"), chunk.first):
            if not line or line.isspace():
                continue
            label = file_label
            try:
                if is_json:
                    fields = orjson.loads(line)
                    text = fields[text_field].encode()
                    if label_field:
                        label = fields[label_field]
                        if type(label) is not str or not label or self.several_labels:
                            label = label_of(label, self.several_labels)
                else:
                    text = line.rstrip(b"\r")
                    if label_field:
                        raise LookupError(label_field)
                    if not text.isascii():
                        text.decode()
            except (ValueError, LookupError, TypeError, AttributeError, RejectError):
                # Whatever is odd about it, `_line` has the words.
                key = f"{source.key}#{number}"
                texts.add(self._line(key, kind, line.rstrip(b"\r"), file_label))
                continue
            add_key(b"%s%d" % (prefix, number))
            add_text(text)
            add_label(label)
        return texts

    def read(self, chunk: Chunk) -> Iterator[Text]:
        """Yields every record of a chunk, those that cannot become one included.

        Raises:
            UsageError: A table lacks a column that is asked for.
        """
        source = chunk.source
        if source.packed and not source.error:
            for member, data in self.inputs.unpacked(source):
                whole = Chunk(member, 0, 0, 1, len(data))
                yield from self._read(whole, io.BytesIO(data))
            return
        yield from self._read(chunk)

    def _read(self, chunk: Chunk, unpacked: io.BytesIO | None = None) -> Iterator[Text]:
        """Yields the records of a chunk of one file.

        Args:
            unpacked: The file, where it came out of an archive.
        """
        source = chunk.source
        key = source.key
        if not is_utf8(key):
            yield Text(key, None, None, NOT_UTF8)
            return
        try:
            if source.error:
                raise RejectError(source.error)
            label = self.labels.of(source)
            kind, packed = file_kind(source.file)
            if self.record == "file" and kind != "txt":
                raise RejectError("--record file is for .txt files")
            open_source = self.inputs.open if kind in TABLES else self.inputs.stream
            with unpacked or open_source(source) as raw:
                file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if packed else raw
                if self.record == "file":
                    data = file.read(MAX_LINE_BYTES + 1)
                    yield self._whole(key, data, label, source.row)
                elif kind in TABLES:
                    yield from self._table_rows(chunk, raw, label)
                else:
                    for number, line in _lines(file, chunk):
                        yield self._line(f"{key}#{number}", kind, line, label, source.row)
        except RejectError as error:
            yield Text(key, None, None, str(error))
        except (OSError, EOFError, zlib.error) as error:
            yield Text(key, None, None, f"cannot be read to its end: {error}")

    @property
    def _fields_asked_for(self) -> list[str]:
        return [name for name in (self.text_field, self.label_field, *self.columns) if name]

    def _table_rows(self, chunk: Chunk, file: BinaryIO, label: Label | None) -> Iterator[Text]:
        source = chunk.source
        kind, packed = file_kind(source.file)
        try:
            header = column_names(file, kind, packed)
        except UsageError as error:
            raise UsageError(f"{source.key}: {error.message}") from None
        file.seek(0)
        if not header:
            return
        for column in self._fields_asked_for:
            if column not in header and column not in source.row:
                raise UsageError(f"{source.key}: no column {column!r}, it has {', '.join(header)}")
        for row in self._rows(chunk, file, kind, packed):
            key = f"{source.key}#{row.number}" if row.number else source.key
            yield self._text_of(key, row.values, row.error, label, source.row)

    def _rows(self, chunk: Chunk, file: BinaryIO, kind: str, packed: bool) -> Iterator[Row]:
        if kind != "parquet":
            yield from read_rows(file, kind, packed)
            return
        groups = range(chunk.start, chunk.end or len(row_groups(file)))
        yield from read_row_groups(file, groups, self._fields_asked_for, chunk.first)

    def _text_of(
        self,
        key: str,
        fields: Mapping[str, Any] | None,
        error: str,
        label: Label | None,
        row: Mapping[str, Any],
    ) -> Text:
        if fields is None:
            return Text(key, None, None, error)
        try:
            return self._fields(key, fields, label, row)
        except UnicodeEncodeError:
            return Text(key, None, None, "not UTF-8")
        except RejectError as rejected:
            return Text(key, None, None, str(rejected))

    def _row_of(self, fields: Mapping[str, Any], row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The columns that are asked for, of those of a text and those of its file."""
        if not self.columns:
            return _NO_ROW
        both = {**row, **fields}
        return {name: both[name] for name in self.columns if name in both}

    def _label_of(self, fields: Mapping[str, Any], label: Label | None) -> Label | None:
        """The label of a text: that of a field where one is asked for, else that of its file."""
        if self.label_field:
            return field_label(fields, self.label_field, self.several_labels)
        return label

    def _whole(self, key: str, data: bytes, label: Label | None, row: Mapping[str, Any]) -> Text:
        try:
            if len(data) > MAX_LINE_BYTES:
                return Text(key, None, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
            text = data.decode("utf-8-sig")
            return Text(key, text, self._label_of({}, label), row=self._row_of({}, row))
        except UnicodeDecodeError as error:
            return Text(key, None, None, f"not UTF-8: {error}")
        except RejectError as error:
            return Text(key, None, None, str(error))

    def _line(
        self,
        key: str,
        kind: str,
        line: bytes | None,
        label: Label | None,
        row: Mapping[str, Any] = _NO_ROW,
    ) -> Text:
        if line is None:
            return Text(key, None, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
        try:
            if kind == "txt":
                label = self._label_of({}, label)
                return Text(key, line.decode(), label, row=self._row_of({}, row))
            fields = parse_json(line)
            if not isinstance(fields, dict):
                raise RejectError(f"expected a JSON object, got {type(fields).__name__}")
            return self._fields(key, fields, label, row)
        except UnicodeDecodeError as error:
            return Text(key, None, None, f"not UTF-8: {error}")
        except RejectError as error:
            return Text(key, None, None, str(error))
        except (ValueError, RecursionError) as error:
            return Text(key, None, None, f"not JSON: {error}")

    def _fields(
        self,
        key: str,
        fields: Mapping[str, Any],
        label: Label | None,
        row: Mapping[str, Any] = _NO_ROW,
    ) -> Text:
        text = fields.get(self.text_field)
        if not isinstance(text, str):
            raise RejectError(
                f"field {self.text_field!r} is {text!r:.80}, expected text; "
                f"the record has {', '.join(map(str, fields))}"
            )
        label = self._label_of(fields, label)
        # JSON may hold half a surrogate pair, which no UTF-8 can.
        if not text.isascii():
            text.encode()
        for name in label if isinstance(label, tuple) else (label or "",):
            if not name.isascii():
                name.encode()
        return Text(key, text, label, row=self._row_of(fields, row))


def has_several_labels(job: TextJob) -> bool:
    """Whether the label field of the first text that has one holds a list."""
    if not job.label_field:
        return False
    peek = replace(job, label_field="", columns=(job.label_field,), extras=())
    for pattern in job.inputs.patterns:
        for source in job.inputs.sources(pattern, limit=_TRIED):
            texts = itertools.chain.from_iterable(map(peek.read, peek.chunks(source)))
            for text in itertools.islice(texts, _TRIED):
                if text.row.get(job.label_field) is not None:
                    return isinstance(text.row[job.label_field], list)
    return False
