"""Columns -> packed rows: several records in each, told apart by segment ids and positions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from readers.form import POSITIONS, SEGMENT_IDS, Form
from readers.format.column import Column
from readers.format.pieces import Empty
from readers.format.schema import Feature, numpy_dtype


def pack(
    columns: Mapping[str, Column],
    schema: Mapping[str, Feature],
    form: Form,
    rows: np.ndarray,
    empty: Empty = np.empty,
) -> dict[str, np.ndarray]:
    """The arrays [B, max_length, ...] by feature name, and beside each two of int32 [B, max_length].

    `<name>_segment_ids` counts the records of a row from 1 and is 0 where there is none;
    `<name>_positions` counts the values of a record from 0. The form is that of packed sequences in
    T5 and Grain.

    Args:
        columns: Of at least one record, cut to their limits.
        schema: Features of one unknown dimension, the first.
        form: Has their limits.
        rows: int64 [records], the row of each.
    """
    count = int(rows.max()) + 1
    batch = {}
    for name, feature in schema.items():
        length = form.limit(name) or 0
        inner = [size for size in feature.shape[1:] if size is not None]
        out = empty((count, length, *inner), numpy_dtype(feature.dtype))
        out[...] = form.filler(name, feature)
        segments = np.zeros((count, length), np.int32)
        positions = np.zeros((count, length), np.int32)
        numbers = np.arange(length, dtype=np.int32)
        ends, seen = [0] * count, [0] * count
        for row, array in zip(rows.tolist(), columns[name].arrays(), strict=True):
            start, ends[row] = ends[row], ends[row] + len(array)
            seen[row] += 1
            out[row, start : ends[row]] = array
            segments[row, start : ends[row]] = seen[row]
            positions[row, start : ends[row]] = numbers[: len(array)]
        batch[name] = out
        batch[name + SEGMENT_IDS] = segments
        batch[name + POSITIONS] = positions
    return batch
