"""The text of a table, and its times in seconds."""

from __future__ import annotations

import gzip
import io
from typing import BinaryIO, cast

import numpy as np

from beam_jobs.jobs.sensors.recording import ReadOptions, check_size
from beam_jobs.storage.encodings import HEAD_BYTES, UTF8, as_utf8, check_head
from readers.format.tfrecord import MAX_RECORD_BYTES

_GZIP = b"\x1f\x8b"

# Where columns that are metadata are looked for first; an error says so.
METADATA = " in its metadata"

# Ticks in a second.
_PER_SECOND: dict[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def seconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Returns times in float64 seconds, rounded only once if they are integers."""
    per_second = _PER_SECOND[unit]
    if not np.can_cast(ticks.dtype, np.int64):
        return ticks.astype(np.float64) / per_second
    whole, rest = np.divmod(ticks.astype(np.int64), per_second)
    return whole + rest / per_second


def as_text(data: bytes, options: ReadOptions) -> bytes:
    """Returns the text of a table in UTF-8, unpacked if it is gzipped.

    Raises:
        RejectError: it unpacks to more than a record can hold, or is text in UTF-16.
    """
    packed = data.startswith(_GZIP)
    if not packed and options.encoding == UTF8:
        check_head(data[:HEAD_BYTES], UTF8)
        return data
    file = io.BytesIO(data)
    unpacked = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
    text = as_utf8(unpacked, options.encoding).read(MAX_RECORD_BYTES + 1)
    check_size(len(text))
    return text
