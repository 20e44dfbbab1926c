"""The objects of a .json file: one array of them, or one object after another."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import BinaryIO

from beam_jobs.errors import RejectError

_BLOCK_BYTES = 1 << 20

_GAP = re.compile("[ \t\r\n,]*")

_decode = json.JSONDecoder().raw_decode


def object_texts(file: BinaryIO, limit: int) -> Iterator[bytes]:
    """Yields the text of each value in UTF-8, in constant memory; damaged bytes stay as they are.

    Args:
        file: Text in UTF-8, at its beginning.
        limit: The largest size of a value, in characters.

    Raises:
        RejectError: the file is not JSON up to its end, or a value is longer than `limit`.
    """
    text = codecs.getreader("utf-8-sig")(file, "surrogateescape")
    buffer = text.read(_BLOCK_BYTES)
    at = _gap_end(buffer, 0)
    is_array = buffer.startswith("[", at)
    at += is_array
    error: Exception | None = None
    while True:
        at = _gap_end(buffer, at)
        if is_array and buffer.startswith("]", at):
            if not _is_gap(buffer[at + 1 :], text):
                raise RejectError("not JSON that can be read to its end: more follows its array")
            return
        try:
            end = _decode(buffer, at)[1]
            error = None
        except (ValueError, RecursionError) as found:
            end, error = len(buffer), found
        if end < len(buffer):  # A number at the end of the buffer may have more digits.
            yield buffer[at:end].encode("utf-8", "surrogateescape")
            at = end
            continue
        if len(buffer) - at > limit:
            raise RejectError(f"not JSON, or an object is longer than {limit >> 20} MiB")
        more = text.read(max(_BLOCK_BYTES, len(buffer) - at))
        if not more:
            break
        buffer, at = buffer[at:] + more, 0
    rest = buffer[at:].encode("utf-8", "surrogateescape")
    if error is None and rest:
        yield rest
    if is_array or (error and rest):
        raise RejectError(
            f"not JSON that can be read to its end: {error or 'its array has no end'}"
        )


def _is_gap(buffer: str, text: codecs.StreamReader) -> bool:
    """Whether nothing but spaces and commas follows in a buffer, and in the text after it."""
    while _gap_end(buffer, 0) == len(buffer):
        if not (buffer := text.read(_BLOCK_BYTES)):
            return True
    return False


def _gap_end(text: str, at: int) -> int:
    found = _GAP.match(text, at)
    return found.end() if found else at
