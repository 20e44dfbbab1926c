"""Columns of numbers and of byte strings, and the format in which Beam elements carry them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

# Byte strings that are copied at once: meanwhile each is a separate object of 33 bytes, with its spans.
_AT_ONCE = 1 << 16


class Ragged:
    """Byte strings of different lengths.

    Args:
        lengths: Their lengths, uint32 [n].
        data: The n byte strings, joined, unless the ends are given.
        ends: The offset of the end of each in `data`, int64 [n]; other bytes may lie between them.
    """

    def __init__(self, lengths: np.ndarray, data: bytes, ends: np.ndarray | None = None) -> None:
        self.lengths, self.data = lengths, data
        if ends is not None:
            self.ends = ends

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Ragged:
        """Joins byte strings."""
        return cls(np.fromiter(map(len, values), np.uint32, len(values)), b"".join(values))

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> Ragged:
        """Joins texts, which may have lone surrogates."""
        return cls.of(list(map(text_bytes, texts)))

    def texts(self) -> list[str]:
        """The texts that `of_texts` joined."""
        return [data.decode("utf-8", "surrogatepass") for data in self]

    @cached_property
    def ends(self) -> np.ndarray:
        """Offset of the end of each byte string in `data`, int64 [n]."""
        return np.cumsum(self.lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> bytes:
        end = int(self.ends[row])
        return self.data[end - int(self.lengths[row]) : end]

    def __iter__(self) -> Iterator[bytes]:
        for start, end in zip((self.ends - self.lengths).tolist(), self.ends.tolist(), strict=True):
            yield self.data[start:end]

    def take(self, rows: np.ndarray) -> Ragged:
        """The byte strings of some rows, int [m]."""
        lengths, data = self.lengths[rows], self.data
        ends = self.ends[rows]
        copied = []
        for first in range(0, len(rows), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            starts, stops = ends[some] - lengths[some], ends[some]
            spans = zip(starts.tolist(), stops.tolist(), strict=True)
            copied.append(b"".join([data[start:stop] for start, stop in spans]))
        return Ragged(lengths, copied[0] if len(copied) == 1 else b"".join(copied))


# Fewer bytes than this are sent as they are.
_WORTH_COMPRESSING = 512

# Stands for the type of a column of byte strings.
_RAGGED = "ragged"


def text_bytes(text: str) -> bytes:
    """A text that may have lone surrogates, as bytes."""
    return text.encode("utf-8", "surrogatepass")


def pack(*columns: np.ndarray | Ragged, compress: bool = False) -> bytes:
    """Columns as bytes: a line of text that describes them, then their values.

    Args:
        columns: Arrays of numbers, or byte strings.
        compress: Whether to compress everything but columns of uint64, which hold hashes.
    """
    described, hashes, rest = list[str](), list[bytes](), list[bytes]()
    for column in columns:
        if isinstance(column, Ragged):
            described.append(f"{_RAGGED} {len(column)}")
            rest += [column.lengths.astype("<u4", copy=False).tobytes(), column.data]
            continue
        kind = column.dtype.newbyteorder("<").str
        described.append(" ".join([kind, *map(str, column.shape)]))
        data = column.astype(kind, copy=False).tobytes()
        (hashes if kind == "<u8" else rest).append(data)
    compressed = compress and sum(map(len, rest)) >= _WORTH_COMPRESSING
    if compressed:
        rest = [zlib.compress(b"".join(rest), 1)]
    head = f"{int(compressed)};{';'.join(described)}\n".encode()
    return b"".join([head, *hashes, *rest])


def unpack(packed: bytes) -> list[Any]:
    """The columns that `pack` turned into bytes."""
    start = packed.index(b"\n") + 1
    compressed, *described = packed[: start - 1].decode().split(";")
    kinds = [(kind, list(map(int, shape))) for kind, *shape in map(str.split, described)]
    at = {True: start, False: start + sum(8 * prod(s) for kind, s in kinds if kind == "<u8")}
    data = {True: packed, False: packed}
    if compressed == "1":
        data[False], at[False] = zlib.decompress(packed[at[False] :]), 0
    columns: list[Any] = []
    for kind, shape in kinds:
        plain, count = kind == "<u8", prod(shape)
        number = "<u4" if kind == _RAGGED else kind
        array = np.frombuffer(data[plain], number, count, at[plain])
        at[plain] += array.nbytes
        if kind != _RAGGED:
            columns.append(array.reshape(shape))
            continue
        end = at[plain] + int(array.sum(dtype=np.int64))
        columns.append(Ragged(array, data[plain][at[plain] : end]))
        at[plain] = end
    return columns
