"""How full rows are into which records are packed."""

from __future__ import annotations

import math

import numpy as np

from readers.batches.grouping import Packing


def packed_share(lengths: np.ndarray, row_length: int, rows: int) -> tuple[float, float]:
    """The share of cells that hold values in packed batches, and the mean number of records in a row.

    Args:
        lengths: The lengths of records in a random order, int64 [n]; longer ones than a row are cut.
        row_length: The length of a row, `max_length` of `readers.load`.
        rows: Rows in a batch.
    """
    packing, cut = Packing(rows, [row_length]), np.minimum(lengths, row_length)
    used, cells = 0, 0
    for place, length in enumerate(cut.tolist()):
        group = packing.add(place, [length])
        if group is not None:
            cells += rows * row_length
            used = place
    if not cells:
        # All of them are in one batch, whose last rows are left out.
        rest = packing.rest(False)
        taken = max(rest.rows) + 1 if rest else 0
        used, cells = len(cut), taken * row_length
    if not cells:
        return math.nan, math.nan
    return float(cut[:used].sum()) / cells, used / (cells / row_length)
