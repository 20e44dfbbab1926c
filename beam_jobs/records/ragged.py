"""Byte strings of different lengths, one after another in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np


class Ragged:
    """A column of byte strings: their lengths, and all of them joined.

    Args:
        lengths: uint32 [n].
        data: The n byte strings, one after another.
    """

    def __init__(self, lengths: np.ndarray, data: bytes) -> None:
        self.lengths, self.data = lengths, data

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Ragged:
        """The column of these values."""
        return cls(np.fromiter(map(len, values), np.uint32, len(values)), b"".join(values))

    @cached_property
    def ends(self) -> np.ndarray:
        """Where each value ends, int64 [n]."""
        return np.cumsum(self.lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> bytes:
        end = int(self.ends[row])
        return self.data[end - int(self.lengths[row]) : end]

    def __iter__(self) -> Iterator[bytes]:
        start, data = 0, self.data
        for end in self.ends.tolist():
            yield data[start:end]
            start = end

    def take(self, rows: np.ndarray) -> Ragged:
        """The column of these rows, int [m]."""
        lengths, data = self.lengths[rows], self.data
        ends = self.ends[rows]
        spans = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return Ragged(lengths, b"".join([data[start:end] for start, end in spans]))
