"""The operations of transforms for NumPy; `tftensors` has the same names."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from readers.files.processors import on_all_processors
from readers.format.decode.column import object_array
from readers.shards.memory import RecyclingAllocator

# From this many numbers on, threads pay off.
_LARGE = 1 << 20


@cache
def _memory(process: int) -> RecyclingAllocator:
    """Memory to reuse, because new memory takes as long as making float32 images; a fork has its own, because of the lock."""
    return RecyclingAllocator()


def float32(values: np.ndarray) -> np.ndarray:
    """The numbers as float32."""
    return values.astype(np.float32)


def int64(count: Any) -> np.ndarray:
    """A number, or several, as int64."""
    return np.asarray(count, np.int64)


def checked_keys(keys: Any) -> np.ndarray:
    """The keys as int64 [B]; raises ValueError unless they are a batch of integers."""
    keys = np.asarray(keys)
    if keys.ndim != 1 or not np.can_cast(keys.dtype, np.int64):
        raise ValueError(
            f"expected keys of the shape [B] and int64, found the shape {keys.shape} and {keys.dtype}"
        )
    return keys.astype(np.int64, copy=False)


def checked_batch(images: Any) -> np.ndarray:
    """The images as an array; raises ValueError unless they are a batch of images."""
    images = np.asarray(images)
    if images.ndim != 4:
        raise ValueError(f"expected a batch of images [B, H, W, C], found the shape {images.shape}")
    return images


def checked_side(images: np.ndarray, axis: int, least: int, message: str) -> int:
    """The size of an axis; raises ValueError if it is below `least`."""
    if images.shape[axis] < least:
        raise ValueError(f"{message}, found {images.shape[axis]}: resize first, or pad more")
    return images.shape[axis]


def flipped(images: np.ndarray, axis: int, which: np.ndarray) -> np.ndarray:
    """The images, reversed along an axis where `which` is true, bool [B]."""
    out = images.copy()
    out[which] = np.flip(images[which], axis)
    return out


def padded(images: np.ndarray, padding: int) -> np.ndarray:
    """Pads the images with zero pixels on every side."""
    return np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])


def cropped(
    images: np.ndarray, size: tuple[int, int], tops: np.ndarray, lefts: np.ndarray
) -> np.ndarray:
    """Crops each image at its top and left, int64 [B]."""
    # Windows over all channels, so that whole rows of a crop are copied together.
    windows = sliding_window_view(images, (*size, images.shape[3]), (1, 2, 3))
    return windows[np.arange(len(images)), tops, lefts, 0]


def to_float(images: Any) -> np.ndarray:
    """Converts the images to float32; integers are divided by the maximum of their dtype."""
    images = np.asarray(images)
    if images.dtype.kind == "f":
        return images.astype(np.float32, copy=False)
    scale = np.float32(1.0 / np.iinfo(images.dtype).max)
    floats = _memory(os.getpid()).empty(images.shape, np.dtype(np.float32))
    if images.size < _LARGE or images.ndim < 2:
        return np.multiply(images, scale, out=floats, dtype=np.float32)

    def scaled(row: int) -> None:
        floats[row] = images[row]
        floats[row] *= scale  # While the row is in the processor's cache.

    on_all_processors(scaled, len(images))
    return floats


def on_values(values: Any, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Applies a function to dense values, or to each record of ragged ones."""
    values = np.asarray(values)
    if values.dtype.hasobject:
        return object_array([on_values(value, function) for value in values])
    return function(values)


def standardized(
    values: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...], dtype: str
) -> np.ndarray:
    """(values - mean) / std, computed in a dtype, as float32; always a new array."""
    out = _memory(os.getpid()).empty(values.shape, np.dtype(dtype))
    out[...] = values
    rows, means, stds = out, np.array(mean, dtype), np.array(std, dtype)
    if len(mean) > 1:
        # Rows of all channels: NumPy is slow at broadcasting a few numbers to each pixel.
        *outer, pixels, channels = values.shape
        rows = out.reshape(*outer, pixels * channels)
        means, stds = np.tile(means, pixels), np.tile(stds, pixels)
    rows -= means
    rows /= stds
    return out.astype(np.float32, copy=False)


def masked(values: np.ndarray, mask: Any) -> np.ndarray:
    """Sets dense values to 0, in place, where the mask of their leading dimensions is false."""
    if not values.dtype.hasobject:
        values[~np.asarray(mask, bool)] = 0
    return values
