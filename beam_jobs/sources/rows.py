"""Rows of .csv, .tsv, .jsonl and .json files, one at a time in constant memory."""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.delimited import (
    BROKEN_QUOTES,
    DELIMITERS,
    HEAD_BYTES,
    find_table,
    split_rows,
)
from beam_jobs.storage.encodings import UTF8, as_utf8, encoding_name, is_utf8, not_decodable

OBJECT_KINDS = ("jsonl", "json")

TEXT_KINDS = (*DELIMITERS, *OBJECT_KINDS)

# Longer rows are rejected, because a whole row is kept in memory.
MAX_LINE_BYTES = 64 << 20

# By default Python limits a field to 128 KiB, less than a long document.
csv.field_size_limit(MAX_LINE_BYTES)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# Bytes of a .json file to decode at a time.
_BLOCK_BYTES = 1 << 20

# The text between two values of a .json file.
_GAP = re.compile("[ \t\r\n,]*")

_decode = json.JSONDecoder().raw_decode


class Dialect(NamedTuple):
    """The format of a table of text.

    Attributes:
        encoding: A name from `encoding_name`.
        delimiter: The character between columns of .csv and .tsv; empty for the one that the file seems to have.
    """

    encoding: str = UTF8
    delimiter: str = ""

    @classmethod
    def parse(cls, encoding: str, delimiter: str) -> Dialect:
        """Parses the flags `--text_encoding` and `--delimiter`; UsageError for an unknown encoding, or several characters."""
        try:
            name = encoding_name(encoding)
        except LookupError:
            raise UsageError(
                f"--text_encoding {encoding}: expected the name of a text encoding in Python, such "
                "as utf-16, cp1252 or shift_jis"
            ) from None
        character = delimiter.replace("\\t", "\t")
        if len(character) > 1 or character in ('"', "\r", "\n"):
            raise UsageError(
                f"--delimiter {delimiter}: expected one character other than a quote, such as ';' "
                "or '\\t' for a tab"
            )
        return cls(name, character)


DEFAULT = Dialect()


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        number: Its number from 1; 0 for an error of the whole file. It counts lines of .jsonl, rows of
            .parquet, objects of .json, and rows of .csv and .tsv that are not blank, after the header.
        values: Values by column name; None if the row cannot be read.
        error: Why the row cannot be read.
    """

    number: int
    values: dict[str, Any] | None
    error: str = ""


def json_row(number: int, line: bytes | None, encoding: str = UTF8, types: Any = dict) -> Row:
    """Parses a line of .jsonl, or an object of .json.

    Args:
        number: The line's number, from 1.
        line: The line in UTF-8; None if it is longer than `MAX_LINE_BYTES`.
        encoding: The encoding of its file.
        types: The types of values that are accepted.
    """
    if line is None:
        return Row(number, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        values = parse_json(line)
    except UnicodeError as error:
        return Row(number, None, not_decodable(encoding, error))
    except (ValueError, RecursionError) as error:
        return Row(number, None, f"not JSON: {error}")
    if not isinstance(values, types):
        return Row(number, None, f"expected a JSON object, got {type(values).__name__}")
    return Row(number, values)


def parse_json(text: bytes) -> Any:
    """Parses JSON as `json.loads` does, with its errors; a string that is not valid Unicode is a UnicodeError."""
    try:
        return orjson.loads(text)  # Three times as fast as `json`.
    except orjson.JSONDecodeError:
        # `json` accepts NaN, and has the usual error messages.
        value = json.loads(text.decode())
        # JSON may contain half a surrogate pair, which UTF-8 cannot.
        json.dumps(value, ensure_ascii=False).encode()
        return value


def object_texts(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Yields the text of each value of a .json file in UTF-8, in constant memory; damaged bytes stay as they are.

    Args:
        file: Text in UTF-8, at its beginning: one array of objects, or one object after another.
        limit: The largest size of a value, in characters.

    Raises:
        RejectError: the file is not JSON up to its end, or a value is longer than `limit`.
    """
    text = codecs.getreader("utf-8-sig")(file, "surrogateescape")
    buffer = text.read(_BLOCK_BYTES)
    at = _gap_end(buffer, 0)
    is_open = buffer.startswith("[", at)
    at += is_open
    is_closed = is_whole = False
    while True:
        at = _gap_end(buffer, at)
        if is_open and buffer.startswith("]", at):
            is_open, is_closed, at = False, True, _gap_end(buffer, at + 1)
        if is_closed and at < len(buffer):
            raise RejectError("not JSON that can be read to its end: data follows its array")
        error: Exception | str = ""
        try:
            end = _decode(buffer, at)[1]
        except (ValueError, RecursionError) as damage:
            end, error = len(buffer), damage
        # A number at the end of the buffer may have more digits.
        if end < len(buffer) or (is_whole and not error):
            yield buffer[at:end].encode("utf-8", "surrogateescape")
            at = end
        elif is_whole:
            break
        elif len(buffer) - at > limit:
            raise RejectError(f"not JSON, or an object is longer than {limit >> 20} MiB")
        else:
            more = text.read(max(_BLOCK_BYTES, len(buffer) - at))
            is_whole = not more
            if more:
                buffer, at = buffer[at:] + more, 0
    if is_open or at < len(buffer):
        reason = error if at < len(buffer) else "its array has no end"
        raise RejectError(f"not JSON that can be read to its end: {reason}")


def _gap_end(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap else at


def text_rows(
    file: BinaryIO, kind: str, gzipped: bool, dialect: Dialect = DEFAULT
) -> Iterator[Row]:
    """Yields every row of a table of text, including those that cannot be read.

    Args:
        file: The table, at its beginning.
        kind: One of `TEXT_KINDS`.
        gzipped: Whether the file is compressed.
        dialect: How it is written.

    Raises:
        RejectError: the file cannot be read to its end.
        UsageError: two columns have the same name.
    """
    with _as_rejects():
        text = opened_text(file, gzipped, dialect.encoding)
        if kind == "jsonl":
            for number, line in numbered_lines(text):
                yield json_row(number, line, dialect.encoding)
        elif kind == "json":
            for number, value in enumerate(object_texts(text, MAX_LINE_BYTES), 1):
                yield json_row(number, value, dialect.encoding)
        else:
            yield from _delimited_rows(text, kind, dialect)


def text_header(
    file: BinaryIO, kind: str, gzipped: bool, dialect: Dialect = DEFAULT
) -> tuple[str, ...]:
    """The column names of a .csv or .tsv; arguments and errors as for `text_rows`."""
    with _as_rejects():
        text = opened_text(file, gzipped, dialect.encoding)
        return tuple(_open_table(text, kind, dialect)[0])


def opened_text(file: BinaryIO, gzipped: bool, encoding: str) -> BinaryIO:
    """The text of a file in UTF-8; arguments as for `text_rows` and `as_utf8`."""
    return as_utf8(cast(BinaryIO, gzip.GzipFile(fileobj=file)) if gzipped else file, encoding)


@contextlib.contextmanager
def _as_rejects() -> Iterator[None]:
    """Raises a RejectError if a table of text cannot be read to its end."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise RejectError(f"cannot be read to its end: {error}") from None
    except csv.Error as error:
        raise RejectError(f"not a table that can be read to its end: {error}") from None


def numbered_lines(
    file: BinaryIO, start: int = 0, end: int = 0, number: int = 1
) -> Iterator[tuple[int, bytes | None]]:
    """Yields (number, line without its end) of the lines that are not blank.

    The line is None if it is longer than `MAX_LINE_BYTES`.

    Args:
        file: A file at its beginning.
        start, end: The byte at which the first line begins, and the one after the last line; 0 for
            the beginning and the end of the file.
        number: The number of the first line.

    Raises:
        RejectError: the file has carriage returns and no line feed.
    """
    if start:
        file.seek(start)
    at = start
    while (not end or at < end) and (line := file.readline(MAX_LINE_BYTES)):
        at += len(line)
        text: bytes | None = line.rstrip(b"\r\n")
        while not line.endswith(b"\n") and (line := file.readline(MAX_LINE_BYTES)):
            at += len(line)
            text = None
        if text and number == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)
            if b"\r" in text and not line.endswith(b"\n"):
                raise RejectError(
                    "its lines end in carriage returns alone: convert them, as tr '\\r' '\\n' does"
                )
        if text is None or text.strip():
            yield number, text
        number += 1


def _delimited_rows(file: BinaryIO, kind: str, dialect: Dialect) -> Iterator[Row]:
    header, rows = _open_table(file, kind, dialect)
    for number, row in enumerate(rows, 1):
        if row is None:
            yield Row(number, None, BROKEN_QUOTES)
        elif row == header and len(row) > 1:
            yield Row(number, None, "it repeats the header")
        elif len(row) != len(header):
            error = f"{len(row)} columns, the first line has {len(header)}"
            yield Row(number, None, error)
        elif not is_utf8("".join(row)):
            yield Row(number, None, not_decodable(dialect.encoding))
        else:
            yield Row(number, dict(zip(header, row, strict=True)))


def _open_table(
    file: BinaryIO, kind: str, dialect: Dialect
) -> tuple[list[str], Iterator[list[str] | None]]:
    """The header, and the rows below it as `split_rows` yields them; bytes that are not UTF-8 become surrogates."""
    above, stated, line = find_table(cast(io.BufferedReader, file).peek(HEAD_BYTES))
    file.read(above)
    usual = next((mark for mark in DELIMITERS[kind] if mark in line), DELIMITERS[kind][0])
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    rows = split_rows(text, dialect.delimiter or stated or usual, MAX_LINE_BYTES)
    header = next(rows, [])
    if header is None:
        raise csv.Error(BROKEN_QUOTES)
    header[:1] = [name.lstrip("#% ") or name for name in header[:1]]
    if not is_utf8("".join(header)):
        raise csv.Error(f"its first line is {not_decodable(dialect.encoding)}")
    check_names(header)
    return header, rows


def check_names(names: Iterable[str]) -> None:
    """Raises UsageError if a column name is repeated; several columns may have no name."""
    counts = Counter(filter(None, names))
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"two columns are called {repeated!r}: give each a unique name")
