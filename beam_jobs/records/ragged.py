"""Many byte strings in one, with their lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

# Byte strings that are copied at once: each is an object of its own meanwhile, of 33 bytes and its spans.
_AT_ONCE = 1 << 16


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
        copied = []
        for first in range(0, len(rows), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            starts, stops = ends[some] - lengths[some], ends[some]
            spans = zip(starts.tolist(), stops.tolist(), strict=True)
            copied.append(b"".join([data[start:stop] for start, stop in spans]))
        return Ragged(lengths, copied[0] if len(copied) == 1 else b"".join(copied))

    def slice(self, start: int, stop: int) -> Ragged:
        """The byte strings of consecutive rows."""
        lengths = self.lengths[start:stop]
        end = int(self.ends[stop - 1]) if stop > start else 0
        return Ragged(lengths, self.data[end - int(lengths.sum(dtype=np.int64)) : end])
