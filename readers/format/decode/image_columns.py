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

# (row) -> a context that adds to the message of an error where the record of the row is.
Located = Callable[[int], AbstractContextManager[None]]


def image_column(
    name: str,
    feature: Feature,
    encoded: Sequence[Any],
    located: Located,
    empty: Allocator = np.empty,
) -> FeatureColumn:
    """The pixels of a feature of images, or of feature lists of images.

    Args:
        name: The feature's name, for error messages.
        feature: The feature.
        encoded: The images of each record as `Decoder` returns them: bytes, or a list of them.
        located: Locates errors.
        empty: Allocates large arrays.

    Raises:
        ValueError: An image cannot be decoded, or its size does not fit the feature.
        ImportError: Pillow is not installed.
    """
    if feature.step:
        return _steps(name, feature, encoded, located)
    return (_fixed if feature.is_fixed else _varying)(name, feature, encoded, located, empty)


def _steps(
    name: str, feature: Feature, encoded: Sequence[list[bytes]], located: Located
) -> FeatureColumn:
    values: list[Any] = [None] * len(encoded)

    def decode(row: int) -> None:
        with located(row):
            values[row] = pixels_of(name, feature, encoded[row])

    on_all_processors(decode, len(encoded))
    return column_of(feature, values)


def _fixed(
    name: str,
    feature: Feature,
    encoded: Sequence[bytes | memoryview],
    located: Located,
    empty: Allocator,
) -> FeatureColumn:
    pixels = empty((len(encoded), *feature.known_sizes), numpy_dtype(feature.dtype))

    def decode(row: int) -> None:
        with located(row):
            EncodedImage(name, feature, encoded[row]).decode_into(pixels[row])

    on_all_processors(decode, len(encoded))
    return FeatureColumn(pixels)


def _varying(
    name: str,
    feature: Feature,
    encoded: Sequence[bytes | memoryview],
    located: Located,
    empty: Allocator,
) -> FeatureColumn:
    images = []
    for row, data in enumerate(encoded):
        with located(row):
            images.append(EncodedImage(name, feature, data))
    ends = np.cumsum([0, *(math.prod(image.shape) for image in images)]).tolist()
    pixels = empty((ends[-1],), numpy_dtype(feature.dtype))

    def decode(row: int) -> None:
        with located(row):
            images[row].decode_into(pixels[ends[row] : ends[row + 1]].reshape(images[row].shape))

    on_all_processors(decode, len(images))
    shapes = np.array([image.shape for image in images], np.int64)
    return FeatureColumn(pixels, shapes.reshape(-1, len(feature.shape)))
