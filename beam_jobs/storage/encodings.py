"""Files of text in any encoding, read as UTF-8."""

from __future__ import annotations

import codecs
import io
import itertools
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from beam_jobs.errors import RejectError

UTF8 = "utf-8"

# The beginning of a file, which shows whether its characters have several bytes each.
HEAD_BYTES = 4096

_BLOCK_BYTES = 1 << 16

# Longer marks first: the mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# The bytes out of four consecutive ones that are mostly NUL in text without a mark.
_NULS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "utf-16-le",
    (True, False, True, False): "utf-16-be",
    (False, True, True, True): "utf-32-le",
    (True, True, True, False): "utf-32-be",
}

# Spellings of characters by other characters, such as \\n or +AGE-, in programs and mail.
_ESCAPES = ("raw-unicode-escape", "unicode-escape", "utf-7")


def is_utf8(text: str) -> bool:
    """Whether a decoded name or text was UTF-8; Python keeps other bytes as lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _mark(error: UnicodeError) -> tuple[str, int]:
    # UTF-8 cannot encode this character, so only its line is rejected.
    return "\udcff", cast(UnicodeDecodeError, error).end


_ERRORS = "beam_jobs.mark"
codecs.register_error(_ERRORS, _mark)


def encoding_name(name: str) -> str:
    """The canonical name of an encoding of text, such as "utf-8" for "UTF8".

    Raises:
        LookupError: Python has no such encoding, or it is not one of text.
    """
    try:
        data = "a".encode(name)
        canonical = codecs.lookup(name).name
        decoder = codecs.getincrementaldecoder(name)(_ERRORS)
        if canonical not in _ESCAPES and decoder.decode(data, True) == "a":
            return canonical
    except ValueError:  # Also a UnicodeError, from encodings of host names.
        pass
    raise LookupError(f"{name} is not an encoding of text")


def check_head(head: bytes, encoding: str) -> None:
    """Rejects a pointer of Git LFS, and UTF-8, UTF-16 or UTF-32 that is read in another encoding.

    Args:
        head: Up to `HEAD_BYTES` from the beginning of the file.
        encoding: The encoding in which it is read.
    """
    if head.startswith(codecs.BOM_UTF8) and not encoding.startswith(UTF8):
        raise RejectError("it has the byte order mark of UTF-8: drop --text_encoding")
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise RejectError("a pointer of Git LFS: fetch the file itself with git lfs pull")
    wide = _wide_encoding(head)
    if wide and len("\n".encode(encoding)) == 1:
        raise RejectError(
            f"{wide[:6].upper()} text: convert it to UTF-8, or add --text_encoding {wide}"
        )


def _wide_encoding(head: bytes) -> str:
    """The encoding of text in UTF-16 or UTF-32; empty for any other."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    if b"\0" not in head:
        return ""
    parts = (head[place::4] for place in range(4))
    return _NULS.get(tuple(2 * part.count(0) > len(part) for part in parts), "")


def not_decodable(encoding: str, error: UnicodeError | None = None) -> str:
    """Why a line that was read with `as_utf8` is not text.

    Args:
        encoding: The encoding of its file.
        error: The error of decoding it as UTF-8, if that is known.
    """
    if encoding != UTF8:
        return f"not {encoding.upper()}"
    if isinstance(error, UnicodeEncodeError):  # JSON with half a surrogate pair.
        return f"not UTF-8: {error}"
    detail = f": {error}" if error else ""
    return f"not UTF-8{detail}; name its --text_encoding, such as cp1252"


def as_utf8(file: BinaryIO, encoding: str) -> BinaryIO:
    """The text of a file in UTF-8, decoded block by block while it is read.

    Bytes that the encoding does not have become bytes that are not UTF-8. Reading raises a
    RejectError if the whole file has another encoding.

    Args:
        file: The file, at its beginning; it stays open.
        encoding: A name from `encoding_name`.
    """
    return io.BufferedReader(BlockStream(_utf8_blocks(file, encoding), encoding), _BLOCK_BYTES)


def _utf8_blocks(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    # `read1` reads a damaged file up to the damage; raw streams have only `read`.
    read = getattr(file, "read1", file.read)
    head = read(_BLOCK_BYTES)
    check_head(head[:HEAD_BYTES], encoding)
    blocks = itertools.chain([head], iter(lambda: read(_BLOCK_BYTES), b""))
    if encoding == UTF8:
        yield from blocks
        return
    try:
        for text in codecs.iterdecode(blocks, encoding, _ERRORS):
            yield text.encode(UTF8, "surrogatepass")
    except UnicodeError as error:
        raise RejectError(f"not {encoding.upper()}: {error}") from None


class BlockStream(io.RawIOBase):
    """A stream of blocks of bytes."""

    def __init__(self, blocks: Iterator[bytes], name: str) -> None:
        self._blocks, self._rest, self.name = blocks, memoryview(b""), name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._rest = memoryview(block)
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
