"""The text of a table."""

from __future__ import annotations

import gzip
import io
from typing import BinaryIO, cast

from beam_jobs.jobs.sensors.recording import ReadOptions
from beam_jobs.storage.encodings import HEAD_BYTES, UTF8, as_utf8, check_head
from beam_jobs.storage.limits import check_bytes

_GZIP = b"\x1f\x8b"

# Bytes that are unpacked at a time.
_PART_BYTES = 1 << 20


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
    source, text = as_utf8(unpacked, options.encoding), io.BytesIO()
    while part := source.read(_PART_BYTES):
        text.write(part)
        check_bytes(text.tell(), options.max_bytes)
    return text.getvalue()
