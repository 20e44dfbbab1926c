"""Rows of .csv, .tsv and .jsonl files, one at a time in constant memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import orjson

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.source import is_utf8

_DELIMITERS = {"csv": ",", "tsv": "\t"}

TEXT_KINDS = (*_DELIMITERS, "jsonl")

# Longer rows are rejected, because a row is held in memory as a whole.
MAX_LINE_BYTES = 64 << 20

# By default Python limits a field to 128 KiB, less than a long document.
csv.field_size_limit(MAX_LINE_BYTES)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        number: Its number from 1; 0 for an error of the whole file. Counts lines of .jsonl, rows of
            .parquet, and of .csv and .tsv the rows after the header that are not blank.
        values: Values by column name; None if the row cannot be read.
        error: Why the row cannot be read.
    """

    number: int
    values: dict[str, Any] | None
    error: str = ""


def json_row(number: int, line: bytes | None) -> Row:
    """Parses a line of .jsonl.

    Args:
        number: The line's number, from 1.
        line: The line; None if it is longer than `MAX_LINE_BYTES`.
    """
    if line is None:
        return Row(number, None, f"longer than {MAX_LINE_BYTES >> 20} MiB")
    try:
        values = parse_json(line)
    except UnicodeError as error:
        return Row(number, None, f"not UTF-8: {error}")
    except (ValueError, RecursionError) as error:
        return Row(number, None, f"not JSON: {error}")
    if not isinstance(values, dict):
        return Row(number, None, f"expected a JSON object, got {type(values).__name__}")
    return Row(number, values)


def parse_json(text: bytes) -> Any:
    """Parses JSON as `json.loads` does, but accepts valid Unicode only.

    Raises:
        ValueError, RecursionError: the text is not JSON.
        UnicodeError: a string is not valid Unicode.
    """
    try:
        return orjson.loads(text)  # In a third of the time.
    except orjson.JSONDecodeError:
        # Accepts NaN, and has the usual error messages.
        value = json.loads(text.decode())
        # JSON may contain half a surrogate pair, which UTF-8 cannot.
        json.dumps(value, ensure_ascii=False).encode()
        return value


def text_rows(file: BinaryIO, kind: str, gzipped: bool) -> Iterator[Row]:
    """Yields every row of a table of text, including those that cannot be read.

    Args:
        file: The table, at its beginning.
        kind: "csv", "tsv" or "jsonl".
        gzipped: Whether the file is compressed.

    Raises:
        RejectError: the file cannot be read to its end.
        UsageError: two columns have the same name.
    """
    with _as_rejects():
        text = _decompressed(file, gzipped)
        if kind == "jsonl":
            yield from itertools.starmap(json_row, numbered_lines(text))
        else:
            yield from _delimited_rows(text, _DELIMITERS[kind])


def text_header(file: BinaryIO, kind: str, gzipped: bool) -> tuple[str, ...]:
    """The column names of a .csv or .tsv; arguments and errors as for `text_rows`."""
    with _as_rejects():
        return tuple(_header(_split_rows(_decompressed(file, gzipped), _DELIMITERS[kind])))


def _decompressed(file: BinaryIO, gzipped: bool) -> Any:
    return gzip.GzipFile(fileobj=file) if gzipped else file


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
        if text is None or text.strip():
            yield number, text
        number += 1


def _delimited_rows(file: Any, delimiter: str) -> Iterator[Row]:
    rows = _split_rows(file, delimiter)
    header = _header(rows)
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            error = f"{len(row)} columns, the first line has {len(header)}"
            yield Row(number, None, error)
        elif not is_utf8("".join(row)):
            yield Row(number, None, "not UTF-8")
        else:
            yield Row(number, dict(zip(header, row, strict=True)))


def _split_rows(file: Any, delimiter: str) -> Iterator[list[str]]:
    """Yields the fields of each row that is not blank; bytes that are not UTF-8 become surrogates.

    Raises:
        csv.Error: a row is too long, or the file ends within quotes.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    room, ended = MAX_LINE_BYTES, False  # `room` is what is left for the current row.

    def lines() -> Iterator[str]:
        nonlocal room, ended
        while line := text.readline(MAX_LINE_BYTES):
            room -= len(line)
            if room <= 0:
                raise csv.Error(f"a row is longer than {MAX_LINE_BYTES >> 20} MiB")
            yield line
        ended = True

    try:
        for row in csv.reader(lines(), delimiter=delimiter):
            # The reader yields a complete row before it requests the next line.
            if ended:
                raise csv.Error("it ends within quotes")
            room = MAX_LINE_BYTES
            if row:
                yield row
    finally:
        # Otherwise the wrapper would close the caller's file, which may already be closed.
        with contextlib.suppress(ValueError):
            text.detach()


def _header(rows: Iterator[list[str]]) -> list[str]:
    header = next(rows, [])
    if not is_utf8("".join(header)):
        raise csv.Error("its first line is not UTF-8")
    check_names(header)
    return header


def check_names(names: Iterable[str]) -> None:
    """Checks that no column name is repeated; several columns may have no name.

    Raises:
        UsageError: two columns have the same name.
    """
    counts = Counter(filter(None, names))
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"two columns are called {repeated!r}: give each a name of its own")
