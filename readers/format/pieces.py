"""Where one feature stands in the bytes of many records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# A source of memory: an array of undefined values of a shape and dtype.
Empty = Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]


@dataclass(frozen=True)
class Pieces:
    """Where one feature stands in each of B records.

    Attributes:
        data: uint8 [n], the records and some bytes more.
        starts, stops: int64 [B]; of the one bytes value, or of the packed numbers.
    """

    data: np.ndarray
    starts: np.ndarray
    stops: np.ndarray

    def after(self, starts: np.ndarray) -> Pieces:
        """What is left of them from later positions on."""
        return Pieces(self.data, starts, self.stops)

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each, int64 [B]."""
        return self.stops - self.starts

    def part(self, start: int, stop: int) -> Pieces:
        """Those of the records from start to stop."""
        return Pieces(self.data, self.starts[start:stop], self.stops[start:stop])

    def each(self) -> list[bytes]:
        """The bytes of each."""
        view = self.data.data
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return [bytes(view[start:stop]) for start, stop in rows]

    def joined(self, empty: Empty) -> np.ndarray:
        """The bytes of all, uint8 [n]."""
        lengths = self.lengths
        if len(lengths) and (lengths == lengths[0]).all():
            return self.stacked(int(lengths[0]), empty).reshape(-1)
        out = empty((int(lengths.sum()),), np.dtype(np.uint8))
        rows = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        if len(lengths):
            np.concatenate([self.data[start:stop] for start, stop in rows], out=out)
        return out

    def stacked(self, length: int, empty: Empty = np.empty) -> np.ndarray:
        """So many bytes of each, from its start on: uint8 [B, length]."""
        starts = self.starts
        stride = int(starts[1] - starts[0]) if len(starts) > 1 else length
        if (np.diff(starts) != stride).any() or stride < 0:
            windows = (len(self.data) - length + 1, length)
            return np.ndarray(windows, np.uint8, self.data, strides=(1, 1))[starts]
        out = empty((len(starts), length), np.dtype(np.uint8))
        first = int(starts[0]) if len(starts) else 0
        out[:] = np.ndarray(out.shape, np.uint8, self.data, first, (stride, 1))
        return out
