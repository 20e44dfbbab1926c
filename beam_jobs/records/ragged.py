"""Many byte strings in one, with their lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np


class Ragged:
    """Byte strings of different lengths.

    Args:
        lengths: Their lengths, uint32 [n].
        data: The n byte strings, joined.
    """

    def __init__(self, lengths: np.ndarray, data: bytes) -> None:
        self.lengths, self.data = lengths, data

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Ragged:
        """Joins byte strings."""
        return cls(np.fromiter(map(len, values), np.uint32, len(values)), b"".join(values))

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
        start, data = 0, self.data
        for end in self.ends.tolist():
            yield data[start:end]
            start = end

    def take(self, rows: np.ndarray) -> Ragged:
        """The byte strings of some rows, int [m]."""
        lengths, data = self.lengths[rows], self.data
        ends = self.ends[rows]
        spans = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
        return Ragged(lengths, b"".join([data[start:end] for start, end in spans]))
