"""How many cells of padded batches are padding, as an expectation over all orders of the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Lengths(NamedTuple):
    """The lengths of the records of a split, or of a sample of them.

    Attributes:
        seen: int64 [seen], ascending.
        records: How many records the split has, of which these are a sample if there are more.
    """

    seen: np.ndarray
    records: int

    def between(self, low: int, high: int | None) -> Lengths:
        """Those from `low` to before `high`, and about how many records of the split have such lengths."""
        first = np.searchsorted(self.seen, low)
        end = len(self.seen) if high is None else np.searchsorted(self.seen, high)
        chosen = self.seen[first:end]
        return Lengths(chosen, round(self.records * len(chosen) / max(1, len(self.seen))))

    @property
    def cells(self) -> float:
        """About how many cells of the records of the split are values."""
        return float(self.seen.mean() * self.records) if len(self.seen) else 0.0


def padded_cells(lengths: Lengths, batch_size: int) -> float:
    """How many cells the batches of an epoch have that shuffles records and pads to the longest of a batch.

    The last batch is short.

    Args:
        lengths: The lengths of the records.
        batch_size: Records in a batch.
    """
    if not len(lengths.seen) or not lengths.records:
        return 0.0
    full, rest = divmod(lengths.records, batch_size)
    found = full * batch_size * _longest(lengths, batch_size) if full else 0.0
    return found + (rest * _longest(lengths, rest) if rest else 0.0)


def waste(lengths: Lengths, batch_size: int, boundaries: Sequence[int] = ()) -> float:
    """The share of cells that are padding in batches of shuffled records; NaN if there are no cells.

    Args:
        lengths: The lengths of the records.
        batch_size: Records in a batch.
        boundaries: The lengths at which a bucket begins, as `bucket_boundaries` of `readers.load`.
    """
    ends: list[int | None] = [*boundaries, None]
    buckets = [lengths.between(low, high) for low, high in zip([0, *boundaries], ends, strict=True)]
    cells = sum(padded_cells(bucket, batch_size) for bucket in buckets)
    return 1 - sum(bucket.cells for bucket in buckets) / cells if cells else float("nan")


def _longest(lengths: Lengths, drawn: int) -> float:
    """The expected longest of some records drawn at random."""
    count = len(lengths.seen)
    ends = np.flatnonzero(np.diff(lengths.seen, append=-1)) + 1.0
    if lengths.records == count:
        # Drawn without replacement: the chance that no record of a batch is longer than this length.
        left = np.arange(min(drawn, count))
        below = (np.maximum(ends[:, None] - left, 0) / (count - left)).prod(axis=1)
    else:
        below = (ends / count) ** drawn
    return float((lengths.seen[ends.astype(np.int64) - 1] * np.diff(below, prepend=0.0)).sum())
