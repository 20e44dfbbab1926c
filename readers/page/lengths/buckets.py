"""Boundaries of buckets with which batches have the least padding."""

from __future__ import annotations

import numpy as np

from readers.page.lengths.padding import Lengths, padded_cells, waste

_MOST_BUCKETS = 8

# Lengths at which a bucket may begin.
_CANDIDATES = 48

# A further bucket has to save this share of all cells: each makes one more batch of an epoch short.
_WORTH = 0.01


def suggested_boundaries(lengths: Lengths, batch_size: int) -> list[int]:
    """The best `bucket_boundaries` for at most eight buckets; empty if buckets save little.

    Of all choices among 48 quantiles, it is the one with the fewest cells; each bucket holds two batches or more.

    Args:
        lengths: The lengths of the records.
        batch_size: Records in a batch.
    """
    if not len(lengths.seen):
        return []
    starts = _candidates(lengths.seen)
    found = [(list[int](), waste(lengths, batch_size))]
    for boundaries in _best(lengths, starts, batch_size):
        found.append((boundaries, waste(lengths, batch_size, boundaries)))
    chosen = found[0]
    for each in found[1:]:
        # More buckets may be worth what a single one more is not.
        extra = len(each[0]) - len(chosen[0])
        if each[1] < chosen[1] - _WORTH * extra:
            chosen = each
    return chosen[0]


def _candidates(seen: np.ndarray) -> list[int]:
    """Lengths, ascending, at which a bucket may begin: not the shortest one."""
    shares = np.linspace(0, 1, _CANDIDATES + 1)
    ends = np.unique(np.quantile(seen, shares, method="inverted_cdf")).astype(np.int64)
    return [int(end) + 1 for end in ends[:-1]]


def _best(lengths: Lengths, starts: list[int], batch_size: int) -> list[list[int]]:
    """The best boundaries for two buckets, three, and so on, as far as there are any."""
    edges = [0, *starts, int(lengths.seen.max()) + 1]
    count = len(edges) - 1
    cost = np.full((count + 1, count + 1), np.inf)
    for low in range(count):
        for high in range(low + 1, count + 1):
            bucket = lengths.between(edges[low], edges[high])
            if bucket.records >= 2 * batch_size:
                cost[low, high] = padded_cells(bucket, batch_size)
    # cells[k]: the fewest cells of the lengths before an edge, in k buckets.
    cells, came = np.full(count + 1, np.inf), list[np.ndarray]()
    cells[0] = 0.0
    found = list[list[int]]()
    for buckets in range(1, min(_MOST_BUCKETS, count) + 1):
        several = cells[:, None] + cost
        came.append(several.argmin(axis=0))
        cells = several.min(axis=0)
        if buckets > 1 and np.isfinite(cells[count]):
            place, boundaries = count, list[int]()
            for back in reversed(came[1:]):
                place = int(back[place])
                boundaries.append(edges[place])
            found.append(boundaries[::-1])
    return found
