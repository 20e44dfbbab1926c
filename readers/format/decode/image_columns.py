"""The images of many records, decoded by all processors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from readers.files.processors import on_all_processors
from readers.format.decode.column import Allocator, FeatureColumn, column_of
from readers.format.decode.images import EncodedImage, pixels_of
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature


def image_column(
    name: str,
    feature: Feature,
    encoded: Sequence[Any],
    located: Callable[[int], AbstractContextManager[None]],
    empty: Allocator = np.empty,
) -> FeatureColumn:
    """The pixels of a feature of images, or of feature lists of images.

    Args:
        name: The feature's name, for error messages.
        feature: The feature.
        encoded: The images of each record as `Decoder` returns them: bytes, or a list of them.
        located: Adds to the message of an error where the record of a row is.
        empty: Allocates large arrays.

    Raises:
        ValueError: An image cannot be decoded, or its size does not fit the feature.
        ImportError: Pillow is not installed.
    """
    if feature.step:
        values: list[Any] = [None] * len(encoded)

        def decode_steps(row: int) -> None:
            with located(row):
                values[row] = pixels_of(name, feature, encoded[row])

        on_all_processors(decode_steps, len(encoded))
        return column_of(feature, values)

    images = []
    for row, data in enumerate(encoded):
        with located(row):
            images.append(EncodedImage(name, feature, data))
    counts = [math.prod(image.shape) for image in images]
    ends = np.cumsum([0, *counts]).tolist()
    flat = empty((ends[-1],), numpy_dtype(feature.dtype))

    def decode(row: int) -> None:
        with located(row):
            images[row].decode_into(flat[ends[row] : ends[row + 1]].reshape(images[row].shape))

    on_all_processors(decode, len(images))
    if feature.is_fixed:
        return FeatureColumn(flat.reshape(len(images), *feature.known_sizes))
    shapes = np.array([image.shape for image in images], np.int64)
    return FeatureColumn(flat, shapes.reshape(-1, len(feature.shape)))
