"""`readers.Rows`: some records of a dataset, as a path for all readers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Rows:
    """Some records of a dataset, chosen when it is opened: a path for all readers.

    They read these records as a dataset of its own, with its length, shuffle, states and slices. Nothing is copied, and no
    record is read to choose them.

    Attributes:
        path: The dataset.
        rows: int [n], the numbers of the records in the split or slice that is read, as in `RecordSource`, each once, in
            any order: they are read in ascending order, unless they are shuffled.
        where: A condition instead, on the values of scalar number features, and on `len(NAME)`, the first unknown
            dimension of others: `label in ["cat", "dog"] and len(boxes) > 0`.

    Raises:
        ValueError: There are neither `rows` nor `where`, or both; or, when a reader opens it, a row does not exist or
            occurs twice, or `where` is wrong.

    Example:
        >>> rings = readers.Rows("shards/images", where="label == 'rings'")
        >>> batches = readers.as_numpy(rings, 16, split="train", shuffle=True)
        >>> len(batches)
        3
    """

    path: str | os.PathLike[str]
    rows: Sequence[int] | NDArray[np.integer] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        if (self.rows is None) == (self.where is None):
            raise ValueError(f"Rows({self.path!r}): expected either rows or where=")
