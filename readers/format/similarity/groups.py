"""Groups of records that pairs connect."""

from __future__ import annotations

import numpy as np


def groups_of(records: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The group of each record, int64 [records]: the number of its first record.

    Records are in one group if a chain of pairs connects them, so the ends of a long chain can be less alike than
    the two records of any pair. A record without pairs is a group of its own.

    Args:
        records: How many records there are.
        first, second: The records of each pair, int64 [pairs].
    """
    groups = np.arange(records)
    while (apart := groups[first] != groups[second]).any():
        first, second = first[apart], second[apart]
        one, other = groups[first], groups[second]
        np.minimum.at(groups, np.maximum(one, other), np.minimum(one, other))
        # Until each record names the first of its group, not a record on the way there.
        while not np.array_equal(groups, above := groups[groups]):
            groups = above
    return groups
