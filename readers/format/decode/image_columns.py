"""Decodes the images of many records on all processors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from readers.files.processors import on_all_processors
from readers.format.decode.column import Allocator, FeatureColumn, Rows, column_of
from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature

# (row) -> a context that adds the position of the row's record to error messages.
Located = Callable[[int], AbstractContextManager[None]]


def image_column(
    name: str,
    feature: Feature,
    encoded: Sequence[Any],
    located: Located,
    empty: Allocator = np.empty,
    rows: Rows | None = None,
) -> FeatureColumn:
    """The pixels of images, or of feature lists of images, from the values that `Decoder` returns.

    `rows` allocates the pixels of each image separately; None if they may be in one array.

    Raises:
        ValueError: An image cannot be decoded, or its size does not fit the feature.
        ImportError: Pillow is not installed.
    """
    count, dtype = len(encoded), numpy_dtype(feature.dtype)
    if feature.step:
        several = of_each_row(lambda row: pixels_of(name, feature, encoded[row]), count, located)
        return column_of(feature, several)
    if feature.is_fixed:
        size = feature.known_sizes
        pixels = rows([size] * count, dtype) if rows else empty((count, *size), dtype)
        of_each_row(
            lambda row: EncodedImage(name, feature, encoded[row]).decode_into(pixels[row]),
            count,
            located,
        )
        return FeatureColumn(pixels)
    images = []
    for row, data in enumerate(encoded):
        with located(row):
            images.append(EncodedImage(name, feature, data))
    if rows:
        own = rows([image.shape for image in images], dtype)
        of_each_row(lambda row: images[row].decode_into(own[row]), count, located)
        return FeatureColumn(own)
    ends = np.cumsum([0, *(math.prod(image.shape) for image in images)]).tolist()
    flat = empty((ends[-1],), dtype)

    def decode(row: int) -> None:
        images[row].decode_into(flat[ends[row] : ends[row + 1]].reshape(images[row].shape))

    of_each_row(decode, count, located)
    shapes = np.array([image.shape for image in images], np.int64)
    return FeatureColumn(flat, shapes.reshape(-1, len(feature.shape)))


def of_each_row(make: Callable[[int], Any], count: int, located: Located) -> list[Any]:
    """The results of a function for each row, called on all processors; errors name the position of the record."""
    made: list[Any] = [None] * count

    def work(row: int) -> None:
        with located(row):
            made[row] = make(row)

    on_all_processors(work, count)
    return made
