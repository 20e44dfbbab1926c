"""Rows of .csv, .tsv and .jsonl files, one at a time in constant memory."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import orjson

from beam_jobs.errors import RejectError, UsageError

_DELIMITERS = {"csv": ",", "tsv": "\t"}

# A row longer than this is none; it would be held in memory whole.
MAX_LINE_BYTES = 64 << 20

# Python's own limit of 128 KiB for a field of a table is less than a long document.
csv.field_size_limit(MAX_LINE_BYTES)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        number: From 1: of the rows of .csv and .tsv that are not blank, the header not counted;
            of the lines of .jsonl; of the rows of .parquet. 0 for the file itself.
        values: By the names of the columns; None where it cannot be read.
        error: Why it cannot be read.
    """

    number: int
    values: dict[str, Any] | None
    error: str = ""


def json_row(number: int, line: bytes | None) -> Row:
    """The row that a line of .jsonl is.

    Args:
        line: None for one that is longer than `MAX_LINE_BYTES`.
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
    """The value of a JSON text, as `json.loads` reads it, all of whose texts are UTF-8.

    Raises:
        ValueError, RecursionError: As `json.loads`; UnicodeError where something is not UTF-8.
    """
    try:
        return orjson.loads(text)  # in a third of the time
    except orjson.JSONDecodeError:
        # Takes NaN, and says in the usual words what is wrong.
        value = json.loads(text.decode())
        # JSON may hold half a surrogate pair, which no UTF-8 can.
        json.dumps(value, ensure_ascii=False).encode()
        return value


def _unpacked(file: BinaryIO, gzipped: bool) -> Any:
    return gzip.GzipFile(fileobj=file) if gzipped else file


@contextlib.contextmanager
def _read_to_its_end() -> Iterator[None]:
    """Makes a RejectError of what ends the reading of a table of text."""
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
        elif not _is_utf8(row):
            yield Row(number, None, "not UTF-8")
        else:
            yield Row(number, dict(zip(header, row, strict=True)))


def _split_rows(file: Any, delimiter: str) -> Iterator[list[str]]:
    """Yields the fields of every row that is not blank, bytes that are no UTF-8 as surrogates.

    Raises:
        csv.Error: A row is longer than any, or the file ends within quotes.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="")
    room, ended = MAX_LINE_BYTES, False

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
            # A whole row comes before the next line is asked for.
            if ended:
                raise csv.Error("it ends within quotes")
            room = MAX_LINE_BYTES
            if row:
                yield row
    finally:
        # The file is not ours to close, as the wrapper would. It may be closed by now.
        with contextlib.suppress(ValueError):
            text.detach()


def _header(rows: Iterator[list[str]]) -> list[str]:
    header = next(rows, [])
    if not _is_utf8(header):
        raise csv.Error("its first line is not UTF-8")
    _check_names(header)
    return header


def _is_utf8(row: list[str]) -> bool:
    text = "".join(row)
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _check_names(names: Iterable[str]) -> None:
    # Programs write several columns without a name, of which nobody asks for one.
    counts = Counter(filter(None, names))
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise UsageError(f"two columns are called {repeated!r}: give each a name of its own")
