"""Texts and where they come from: lines, rows or whole files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk
from beam_jobs.sources.labels import Label
from beam_jobs.sources.rows import MAX_LINE_BYTES

TABLES = ("csv", "tsv", "parquet")

FORMATS = ("txt", "jsonl", *TABLES)

PLAIN = (".txt", ".jsonl")

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_NO_ROW: Mapping[str, Any] = {}


class Text(NamedTuple):
    """One text as it stands in a file.

    Attributes:
        key: Of the record.
        text: Or None where it cannot become a record.
        label: As text; None without labels.
        error: Why it cannot become a record.
        row: The columns of `TextJob.columns`.
    """

    key: str
    text: str | None
    label: Label | None
    error: str = ""
    row: Mapping[str, Any] = _NO_ROW


class Texts(NamedTuple):
    """Many texts, side by side.

    Attributes:
        keys, texts: In UTF-8.
        labels: As text; None without labels.
        rejects: Those that cannot become records, which are in no column.
        rows: The columns of `TextJob.columns`; no row at all where there are none.
    """

    keys: list[bytes]
    texts: list[bytes]
    labels: list[Label | None]
    rejects: list[Reject]
    rows: list[Mapping[str, Any]]

    @classmethod
    def empty(cls) -> Texts:
        return cls([], [], [], [], [])

    def add(self, text: Text) -> None:
        """Adds one more."""
        if text.text is None:
            self.rejects.append(Reject.of(text.key, "read", text.error))
            return
        self.keys.append(text.key.encode())
        self.texts.append(text.text.encode())
        self.labels.append(text.label)
        if text.row is not _NO_ROW:
            self.rows.append(text.row)

    def take(self, rows: np.ndarray) -> Texts:
        """The texts of these rows, int [m], and all rejects."""
        chosen = rows.tolist()
        return Texts(
            [self.keys[row] for row in chosen],
            [self.texts[row] for row in chosen],
            [self.labels[row] for row in chosen],
            self.rejects,
            [self.rows[row] for row in chosen] if self.rows else [],
        )


def file_kind(key: str) -> tuple[str, bool]:
    """A file's kind, one of `FORMATS`, by its name, and whether it is gzipped.

    Raises:
        RejectError: It is none of them.
    """
    packed = key.lower().endswith(".gz")
    kind = (key[:-3] if packed else key).rsplit(".", 1)[-1].lower()
    if kind not in FORMATS or (packed and kind == "parquet"):
        raise RejectError(
            "expected a .txt, .jsonl, .csv or .tsv file, each also with .gz, or .parquet"
        )
    return kind, packed


def _lines(file: BinaryIO, chunk: Chunk) -> Iterator[tuple[int, bytes | None]]:
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
