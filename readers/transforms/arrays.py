"""The operations of transforms, computed by NumPy; `tftensors.operations` has the same names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from readers.files.processors import on_all_processors
from readers.format.decode.column import object_array
from readers.format.decode.images import decode_image
from readers.format.schema import Feature

shift = operator.rshift


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
            f"expected keys of the shape [B] and int64, found the shape {keys.shape} and "
            f"{keys.dtype}"
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
    """The images with zero pixels on every side."""
    return np.pad(images, [(0, 0), (padding, padding), (padding, padding), (0, 0)])


def cropped(
    images: np.ndarray, size: tuple[int, int], tops: np.ndarray, lefts: np.ndarray
) -> np.ndarray:
    """The part of each image from its top and left, int64 [B], on."""
    # Windows over all channels, so that whole rows of a crop are copied at once.
    windows = sliding_window_view(images, (*size, images.shape[3]), (1, 2, 3))
    return windows[np.arange(len(images)), tops, lefts, 0]


def brightened(images: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The images with a number, float32 [B], added to each, in the range of their dtype."""
    deltas = deltas[:, None, None, None]
    if images.dtype.kind == "f":
        return np.clip(images + deltas.astype(images.dtype), 0, 1)
    # As TensorFlow converts: 255.5 instead of 255 rounds the integers that the cast would cut off.
    highest = np.iinfo(images.dtype).max
    scaled = (to_float(images) + deltas) * (highest + 0.5)
    return np.clip(scaled, 0, highest).astype(images.dtype)


def to_float(images: Any) -> np.ndarray:
    """The images as float32; integers are divided by the highest of their dtype."""
    images = np.asarray(images)
    floats = images.astype(np.float32, copy=False)
    return floats if images.dtype.kind == "f" else floats * (1.0 / np.iinfo(images.dtype).max)


def resized(images: Any, size: tuple[int, int]) -> np.ndarray:
    """The images [B, H, W, C], or an object array of images of several sizes, resized."""
    images = np.asarray(images)
    if images.dtype.hasobject and images.ndim == 1 and len(images):
        return np.stack([resized(image[None], size)[0] for image in images])
    images = checked_batch(images)
    floats = _resampled(_resampled(images, 1, size[0]), 2, size[1])
    if images.dtype.kind not in "iu":
        return floats
    limits = np.iinfo(images.dtype)
    return np.clip(np.round(floats), limits.min, limits.max).astype(images.dtype)


def _resampled(images: np.ndarray, axis: int, extent: int) -> np.ndarray:
    """The images with another height or width, float32.

    Every result is a weighted sum of the pixels around its center, with the triangle and the
    arithmetic of `ComputeSpansCore` in TensorFlow's scale_and_translate_op.cc.
    """
    size = images.shape[axis]
    step = np.float32(1 / (np.float32(extent) / np.float32(size)))
    reach = max(step, np.float32(1))
    centers = (np.arange(extent, dtype=np.float32) + np.float32(0.5)) * step
    first = np.ceil(centers - reach - np.float32(0.5)).astype(np.int64)
    places = first[:, None] + np.arange(2 * math.ceil(reach) + 1)
    distances = np.abs(places.astype(np.float32) + np.float32(0.5) - centers[:, None]) / reach
    weights = np.maximum(0, 1 - distances) * ((places >= 0) & (places < size))
    weights /= weights.sum(axis=1, keepdims=True)
    places = places.clip(0, size - 1)
    along = [-1 if number == axis else 1 for number in range(4)]
    out = np.zeros((*images.shape[:axis], extent, *images.shape[axis + 1 :]), np.float32)
    for tap in range(places.shape[1]):
        out += weights[:, tap].reshape(along) * images.take(places[:, tap], axis)
    return out


def decoded(encoded: Any, size: tuple[int, int], channels: int) -> np.ndarray:
    """Images of several sizes, decoded and resized: uint8 [B, height, width, channels]."""
    feature = Feature("uint8", (None, None, channels), "jpeg")
    encoded = np.asarray(encoded, object)
    out = np.empty((len(encoded), *size, channels), np.uint8)

    def decode(number: int) -> None:
        try:
            pixels = decode_image("encoded", feature, encoded[number])
        except ValueError as error:
            raise ValueError(f"image {number} of the batch: {error}") from None
        out[number] = resized(pixels[None], size)[0]

    on_all_processors(decode, len(encoded))
    return out


def is_ragged(values: Any) -> bool:
    """Whether values are an object array, which holds an array for each record."""
    return np.asarray(values).dtype.hasobject


def on_values(values: Any, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The result of a function of dense values, for each record if the values are ragged."""
    values = np.asarray(values)
    if values.dtype.hasobject:
        return object_array([on_values(value, function) for value in values])
    return function(values)


def standardized(
    values: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...], dtype: str
) -> np.ndarray:
    """(values - mean) / std, computed in a dtype, as float32; always a new array."""
    out = values.astype(dtype, order="C")
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
    """The values, set to 0 in place where the mask of their leading dimensions is false."""
    values[~np.asarray(mask, bool)] = 0
    return values
