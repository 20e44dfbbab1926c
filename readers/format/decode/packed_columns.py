"""Unpacks the compressed values of many records on all processors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from readers.files.processors import on_all_processors
from readers.format.decode.column import Allocator, FeatureColumn, object_array
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.compressed import ZlibEncoding, unpacked
from readers.format.schema import Feature

# If values are smaller, threads spend more time on the interpreter's lock than they gain.
_MEAN_BYTES = 2 << 10


def packed_column(
    feature: Feature, values: Sequence[Any], shapes: np.ndarray | None, empty: Allocator
) -> tuple[FeatureColumn | None, np.ndarray]:
    """The column of compressed values; None if some do not fit, and bool [B], which fit.

    Args:
        values: The stored bytes of each record.
        shapes: int64 [B, n], the lists `<name>/shape`; None if the shape is fixed.
    """
    codec, rows = feature.codec, range(len(values))
    assert isinstance(codec, ZlibEncoding)
    sizes = [feature.known_sizes] * len(values) if shapes is None else shapes.tolist()
    nbytes, good = [0] * len(values), np.ones(len(values), bool)
    for row in rows:
        try:
            nbytes[row] = codec.unpacked_bytes(feature, sizes[row], len(values[row]))
        except ValueError:
            good[row] = False
    if not good.all():
        return None, good
    ends = list(accumulate(nbytes, initial=0))
    is_text = feature.is_text
    texts: list[Any] = [None] * len(values)
    flat = empty((0 if is_text else ends[-1],), np.dtype(np.uint8))

    def unpack(row: int) -> None:
        try:
            if is_text:
                texts[row] = unpacked(values[row], nbytes[row])
            else:
                codec.unpack_into(feature, values[row], flat[ends[row] : ends[row + 1]])
        except ValueError:
            good[row] = False

    if ends[-1] < _MEAN_BYTES * len(values):
        for row in rows:
            unpack(row)
    else:
        on_all_processors(unpack, len(values))
    if not good.all():
        return None, good
    if is_text:
        return FeatureColumn(object_array(texts)), good
    numbers = flat.view(numpy_dtype(feature.dtype))
    if shapes is None:
        numbers = numbers.reshape(len(values), *feature.known_sizes)
    return FeatureColumn(numbers, shapes), good
