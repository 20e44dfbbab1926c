"""The text job: a record is a line of a text file, a row of a table, or a whole file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.files import NOT_UTF8, Inputs, is_utf8, open_file
from beam_jobs.labels import Labels, label_text
from beam_jobs.rejects import Reject
from readers.format.schema import Feature, Schema

TOKENS = ("none", "words", "bytes")
FORMATS = ("txt", "jsonl", "csv")
PLAIN = (".txt", ".jsonl")

# A piece of a file that one worker reads: small enough to spread over cores, large enough that
# a piece's 50 us and its seek are nothing.
CHUNK_BYTES = 2 << 20

# A line longer than this is no text; it would be held in memory whole.
MAX_LINE_BYTES = 64 << 20

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Python's own limit of 128 KiB for a field of a table is less than a long document.
csv.field_size_limit(MAX_LINE_BYTES)


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines of a file, or the whole of it.

    Attributes:
        key: Of the file.
        start, end: Bytes; `end` is 0 for a file that is read to its end.
        first: Number of the first line, from 1.
        size: Bytes, before a packed file is unpacked.
    """

    key: str
    start: int
    end: int
    first: int
    size: int


class Text(NamedTuple):
    """One text as it stands in a file.

    Attributes:
        key: Of the record.
        text: Or None where it cannot become a record.
        label: As text; None without labels.
        error: Why it cannot become a record.
    """

    key: str
    text: str | None
    label: str | None
    error: str = ""


class Texts(NamedTuple):
    """Many texts, side by side.

    Attributes:
        keys, texts: In UTF-8.
        labels: As text; None without labels.
        rejects: Those that cannot become records, which are in no column.
    """

    keys: list[bytes]
    texts: list[bytes]
    labels: list[str | None]
    rejects: list[Reject]

    def add(self, text: Text) -> None:
        """Adds one more."""
        if text.text is None:
            self.rejects.append(Reject.of(text.key, "read", text.error))
            return
        self.keys.append(text.key.encode())
        self.texts.append(text.text.encode())
        self.labels.append(text.label)


@dataclass(frozen=True)
class TextJob:
    """What a text record is.

    Attributes:
        inputs: `.txt`, `.jsonl` and `.csv` files, each also `.gz`.
        labels: Where the labels of files come from, unless a field holds them.
        record: "line", or "file" for a whole `.txt` file.
        text_field, label_field: Names in `.jsonl` and `.csv`; no label if empty.
        tokens: "none", "words" or "bytes".
        vocabulary_size: Ids of "words", the two reserved ones included.
        max_length: How many tokens of a text are kept; 0 for all.
    """

    inputs: Inputs
    labels: Labels
    record: str = "line"
    text_field: str = "text"
    label_field: str = ""
    tokens: str = "none"
    vocabulary_size: int = 20_000
    max_length: int = 0

    def __post_init__(self) -> None:
        if self.label_field and self.labels.mode != "none":
            raise UsageError("--label_field and --label both say where labels come from: drop one")
        if self.tokens == "none" and self.max_length:
            raise UsageError("--max_length counts tokens: add --tokens words or bytes")

    @property
    def labelled(self) -> bool:
        return bool(self.label_field) or self.labels.mode != "none"

    @property
    def schema(self) -> Schema:
        """Of the records: text, tokens if asked for, label if there are any, key."""
        features = {"text": Feature("string"), "key": Feature("string")}
        if self.tokens != "none":
            features["tokens"] = Feature("int64", (None,), "list")
        if self.labelled:
            features["label"] = Feature("int64")
        return Schema(features)

    def chunks(self, key: str, size: int) -> Iterator[Chunk]:
        """Yields the pieces of a file; every piece begins and ends with a line."""
        splittable = key.lower().endswith(PLAIN) and self.record == "line"
        if size <= CHUNK_BYTES or not splittable:
            yield Chunk(key, 0, 0, 1, size)
            return
        with open_file(self.inputs.path(key)) as file:
            start, first = 0, 1
            while block := file.read(CHUNK_BYTES):
                end, ended = start + len(block), block.endswith(b"\n")
                while not ended and (rest := file.readline(CHUNK_BYTES)):
                    end, ended = end + len(rest), rest.endswith(b"\n")
                    block += b"\n" * ended
                yield Chunk(key, start, end, first, end - start)
                first += block.count(b"\n")
                start = end

    def batches(self, chunk: Chunk) -> Iterator[Texts]:
        """Yields the records that `read` has, a few megabytes at a time.

        Raises:
            UsageError: As `read`.
        """
        if (data := self._whole_lines(chunk)) is not None:
            yield self._parse_lines(chunk, data)
            return
        texts, size = Texts([], [], [], []), 0
        for text in self.read(chunk):
            texts.add(text)
            size += len(text.text or text.error)
            if size >= CHUNK_BYTES:
                yield texts
                texts, size = Texts([], [], [], []), 0
        yield texts

    def _whole_lines(self, chunk: Chunk) -> bytes | None:
        """The bytes of a chunk of plain lines; None where `read` has to look at it."""
        limit = 2 * CHUNK_BYTES
        end = chunk.end or chunk.start + limit
        if self.record != "line" or not chunk.key.lower().endswith(PLAIN) or not is_utf8(chunk.key):
            return None
        if end - chunk.start > limit:  # There is a long line in it.
            return None
        try:
            with open_file(self.inputs.path(chunk.key)) as file:
                file.seek(chunk.start)
                data = file.read(end - chunk.start)
        except OSError:
            return None
        # Full without a known end: it has grown since it was listed.
        return None if not chunk.end and len(data) == limit else data

    def _parse_lines(self, chunk: Chunk, data: bytes) -> Texts:
        """The records of whole lines: what `_lines` and `_line` make of them, in half the time."""
        texts = Texts([], [], [], [])
        kind, _ = file_kind(chunk.key)
        prefix, file_label = f"{chunk.key}#".encode(), self.labels.of(chunk.key)
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
                        if type(label) is not str or not label:
                            label = label_text(label)
                else:
                    text = line.rstrip(b"\r")
                    if not text.isascii():
                        text.decode()
            except (ValueError, LookupError, TypeError, AttributeError, RejectError):
                # Whatever is odd about it, `_line` has the words.
                key = f"{chunk.key}#{number}"
                texts.add(self._line(key, kind, line.rstrip(b"\r"), file_label))
                continue
            add_key(b"%s%d" % (prefix, number))
            add_text(text)
            add_label(label)
        return texts

    def read(self, chunk: Chunk) -> Iterator[Text]:
        """Yields every record of a chunk, those that cannot become one included.

        Raises:
            UsageError: A table lacks the text or label column.
        """
        if not is_utf8(chunk.key):
            yield Text(chunk.key, None, None, NOT_UTF8)
            return
        file_label = self.labels.of(chunk.key)
        try:
            kind, packed = file_kind(chunk.key)
            if self.record == "file" and kind != "txt":
                raise RejectError("--record file is for .txt files")
            with open_file(self.inputs.path(chunk.key)) as raw:
                file = gzip.GzipFile(fileobj=raw) if packed else raw
                if self.record == "file":
                    yield self._whole(chunk.key, file.read(MAX_LINE_BYTES + 1), file_label)
                elif kind == "csv":
                    yield from self._rows(chunk.key, file, file_label)
                else:
                    for number, line in _lines(file, chunk):
                        key = f"{chunk.key}#{number}"
                        yield self._line(key, kind, line, file_label)
        except RejectError as error:
            yield Text(chunk.key, None, None, str(error))
        except (OSError, EOFError, zlib.error) as error:
            yield Text(chunk.key, None, None, f"cannot be read to its end: {error}")
        except csv.Error as error:
            yield Text(chunk.key, None, None, f"not a table that can be read to its end: {error}")

    def _whole(self, key: str, data: bytes, label: str | None) -> Text:
        try:
            if len(data) > MAX_LINE_BYTES:
                return Text(key, None, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
            return Text(key, data.decode("utf-8-sig"), label)
        except UnicodeDecodeError as error:
            return Text(key, None, None, f"not UTF-8: {error}")

    def _line(self, key: str, kind: str, line: bytes | None, label: str | None) -> Text:
        if line is None:
            return Text(key, None, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
        try:
            if kind == "txt":
                return Text(key, line.decode(), label)
            fields = _parse_json(line)
            if not isinstance(fields, dict):
                raise RejectError(f"expected a JSON object, got {type(fields).__name__}")
            return self._fields(key, fields, label)
        except UnicodeDecodeError as error:
            return Text(key, None, None, f"not UTF-8: {error}")
        except RejectError as error:
            return Text(key, None, None, str(error))
        except (ValueError, RecursionError) as error:
            return Text(key, None, None, f"not JSON: {error}")

    def _fields(self, key: str, fields: dict[str, Any], label: str | None) -> Text:
        text = fields.get(self.text_field)
        if not isinstance(text, str):
            raise RejectError(
                f"field {self.text_field!r} is {text!r:.80}, expected text; "
                f"the record has {', '.join(map(str, fields))}"
            )
        if self.label_field:
            if self.label_field not in fields:
                raise RejectError(f"no field {self.label_field!r}; it has {', '.join(fields)}")
            label = label_text(fields[self.label_field])
        # JSON may hold half a surrogate pair, which no UTF-8 can.
        if not text.isascii():
            text.encode()
        if label and not label.isascii():
            label.encode()
        return Text(key, text, label)

    def _rows(self, file_key: str, file: Any, label: str | None) -> Iterator[Text]:
        rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""))
        header = next(rows, None)
        if header is None:
            return
        for column in filter(None, (self.text_field, self.label_field)):
            if column not in header:
                raise UsageError(f"{file_key}: no column {column!r}, it has {', '.join(header)}")
        for number, row in enumerate(filter(None, rows), 1):
            key = f"{file_key}#{number}"
            if len(row) != len(header):
                error = f"{len(row)} columns, the first line has {len(header)}"
                yield Text(key, None, None, error)
                continue
            try:
                yield self._fields(key, dict(zip(header, row, strict=True)), label)
            except UnicodeEncodeError:
                yield Text(key, None, None, "not UTF-8")
            except RejectError as error:
                yield Text(key, None, None, str(error))


def file_kind(key: str) -> tuple[str, bool]:
    """A file's kind ("txt", "jsonl" or "csv") by its name, and whether it is gzipped.

    Raises:
        RejectError: It is none of them.
    """
    packed = key.lower().endswith(".gz")
    kind = (key[:-3] if packed else key).rsplit(".", 1)[-1].lower()
    if kind not in FORMATS:
        raise RejectError("expected a .txt, .jsonl or .csv file, or one of them with .gz")
    return kind, packed


def _parse_json(line: bytes) -> Any:
    """The value of a line of JSON, as `json.loads` reads it.

    Raises:
        ValueError, RecursionError: As `json.loads`; UnicodeDecodeError where it is not UTF-8.
    """
    try:
        return orjson.loads(line)  # in a third of the time
    except orjson.JSONDecodeError:
        return json.loads(line.decode())  # takes NaN, and says in the usual words what is wrong


def _lines(file: Any, chunk: Chunk) -> Iterator[tuple[int, bytes | None]]:
    """Yields (number from 1, line without its end) of the lines that are not blank.

    The line is None where it is longer than any text.
    """
    if chunk.start:
        file.seek(chunk.start)
    at, number = chunk.start, chunk.first
    while (not chunk.end or at < chunk.end) and (line := file.readline(MAX_LINE_BYTES)):
        at += len(line)
        text: bytes | None = line.rstrip(b"\r\n")
        while not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
            at += len(line)
            text = None
        if text and number == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)
        if text is None or text.strip():
            yield number, text
        number += 1
