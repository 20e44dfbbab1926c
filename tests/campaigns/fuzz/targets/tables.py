"""Tables of text: as recordings of the sensors job, and as rows of any job."""

from __future__ import annotations

import contextlib
import csv
import functools
import gzip
import io
import json

import numpy as np

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.sensors.read_options import ReadOptions
from beam_jobs.jobs.sensors.recording import Recording
from beam_jobs.sources.rows import Dialect
from beam_jobs.sources.tables import column_names, read_rows
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.mutations import json_values
from tests.campaigns.fuzz.target import Target, after_choice
from tests.campaigns.fuzz.targets.recordings import MOST_BYTES, chosen, examining

_TABLE = b"time,x,y,label\n0.5,1,2,walk\n1.0,3,,walk\n1.5,-1e3,nan,run\n"

_VARIANTS = (
    ReadOptions(max_bytes=MOST_BYTES),
    ReadOptions(max_bytes=MOST_BYTES, columns=("x", "y")),
    ReadOptions(max_bytes=MOST_BYTES, time_column="time", times="sort"),
    ReadOptions(
        max_bytes=MOST_BYTES, columns=("y",), own_columns=("label",), recording_column="label"
    ),
    ReadOptions(max_bytes=MOST_BYTES, encoding="utf-16"),
    ReadOptions(max_bytes=MOST_BYTES, encoding="cp1252", delimiter=";"),
    ReadOptions(max_bytes=MOST_BYTES, time_column="time", time_unit="ms", drop_columns=("label",)),
)


def _csvs() -> list[bytes]:
    return chosen(
        _TABLE,
        b"1,2\n3,4\n",
        b"a;b\r\n1,5;2,25\r\n;\r\n",
        b"time,x\ns,m\n2021-02-03T04:05:06Z,1\n2021-02-03 04:05:07.25,2\n",
        b'\xef\xbb\xbf"a ""b""","c\nd"\n1,2\n',
        variants=len(_VARIANTS),
    )


def _txts() -> list[bytes]:
    return chosen(b"# made by hand\n1 2 3\n4  5 6\n", b"x\ty\n1\t2\n", _TABLE, b"%a\r1\r2\r")


def _jsonls() -> list[bytes]:
    rows = [{"time": n / 2, "x": n, "y": None, "label": "walk"} for n in range(3)]
    return chosen(
        "\n".join(map(json.dumps, rows)).encode(),
        b"[1, 2]\n[3, NaN]\n",
        b"1\n2.5\ntrue\n",
        variants=len(_VARIANTS),
    )


def _is_table(data: bytes, found: Recording) -> None:
    signal = found.arrays["signal"]
    assert signal.dtype == np.float64 and signal.ndim == 2
    assert signal.size <= len(data) + 1, "more values than bytes"


def _examine_rows(kind: str, data: bytes) -> None:
    if not data:
        return
    dialect = (Dialect(), Dialect(delimiter=";"), Dialect("utf-16"))[data[0] % 3]
    packed, text = bool(data[0] & 64), data[1:]
    try:
        found = list(read_rows(io.BytesIO(text), kind, packed, dialect=dialect))
    except UsageError as error:
        assert "two columns are called" in error.message
        return
    rows = [row for row in found if row.number]
    assert [row.number for row in rows] == sorted({row.number for row in rows}), (
        "numbers do not rise"
    )
    for row in found:
        assert (row.values is None) == bool(row.error), row
        if row.values is not None and kind != "csv":
            json.dumps(row.values)
            for text_value in row.values:
                text_value.encode()
    assert len(found) - len(rows) <= 1 and (len(found) == len(rows) or found[-1].number == 0)
    with contextlib.suppress(RejectError, UsageError):
        column_names(io.BytesIO(text), kind, packed, dialect)
    if kind == "csv" and not packed and data[0] % 3 == 0 and len(rows) == len(found):
        _like_csv(text, [row.values for row in rows])


def _like_csv(text: bytes, rows: list[dict[str, str] | None]) -> None:
    """Compares with Python's `csv` where all is UTF-8."""
    try:
        expected = list(filter(None, csv.reader(io.StringIO(text.decode("utf-8-sig"), newline=""))))
    except (UnicodeDecodeError, csv.Error):
        return
    header, *lines = expected or [[]]
    its = [
        dict(zip(header, line, strict=True)) if len(line) == len(header) else None for line in lines
    ]
    assert rows == its, f"{rows!r:.200}, with csv {its!r:.200}"


def _rows_of(*texts: bytes) -> list[bytes]:
    return [*(b"\0" + text for text in texts), b"\x40" + gzip.compress(texts[0], mtime=0)]


def _csv_rows() -> list[bytes]:
    return [
        *_rows_of(_TABLE, b'a,"b\nc"\n"1 ""x""",2\n3\n'),
        b"\1a;b\n1;2\n",
        b"\2" + "a,b\n1,2\n".encode("utf-16"),
    ]


def _jsonl_rows() -> list[bytes]:
    return _rows_of(
        b'{"text": "a \\u00e4", "meta": {"n": [1, 2.5, null]}}\n\n{"text": ""}\r\n[1]\nNaN\n'
    )


def _json_rows() -> list[bytes]:
    return _rows_of(
        b'[{"text": "a"}, {"text": "b", "x": {"y": [1]}}]', b'{"a": 1}\n{"a": 2}', b"[]"
    )


_mutate_rows = after_choice(json_values.mutate_lines)

_WORDS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b'"', b"\r\n", b"nan", b"-inf", b"1e400", b"0x10", b"1_0", b"2021-02-03T04:05:06",
    b"time", b"label", b",,", b";", b"\t", b"\0", b"\xc3\xa4", b"# ", b"true", b"null", b"\x1f\x8b\x08",
)  # fmt: skip
_LIMITS = Limits(memory=48 << 20)

TARGETS = (
    Target("csv", _csvs, examining(".csv", _VARIANTS, _is_table), None, _WORDS, 1024, _LIMITS),
    Target("txt", _txts, examining(".txt", _VARIANTS[:1], _is_table), None, _WORDS, 1024, _LIMITS),
    Target("jsonl", _jsonls, examining(".jsonl", _VARIANTS), _mutate_rows, _WORDS, 1024, _LIMITS),
    Target("csv_rows", _csv_rows, functools.partial(_examine_rows, "csv"), None, _WORDS, 1024, _LIMITS),
    Target("jsonl_rows", _jsonl_rows, functools.partial(_examine_rows, "jsonl"), _mutate_rows, _WORDS, 1024, _LIMITS),
    Target("json_rows", _json_rows, functools.partial(_examine_rows, "json"), _mutate_rows, _WORDS, 1024, _LIMITS),
)  # fmt: skip
