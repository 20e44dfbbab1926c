"""The operations of transforms for TensorFlow, which only this file imports; `arrays` has the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def float32(values: tf.Tensor) -> tf.Tensor:
    """The numbers as float32."""
    return tf.cast(values, tf.float32)


def int64(count: Any) -> tf.Tensor:
    """A number, or several, as int64."""
    return tf.cast(count, tf.int64)


def checked_keys(keys: Any) -> tf.Tensor:
    """The keys as int64 [B]; raises ValueError if they are known to be something else."""
    return tf.ensure_shape(tf.convert_to_tensor(keys, tf.int64), [None])


def checked_batch(images: Any) -> tf.Tensor | tf.RaggedTensor:
    """The images as a tensor; raises ValueError unless they are a batch of images."""
    if not isinstance(images, tf.RaggedTensor):
        images = tf.convert_to_tensor(images)
    if images.shape.rank != 4:
        raise ValueError(f"expected a batch of images [B, H, W, C], found the shape {images.shape}")
    return images


def checked_side(images: tf.Tensor, axis: int, least: int, message: str) -> tf.Tensor:
    """The size of an axis, int64 []; raises ValueError if it is known to be below `least`."""
    known = images.shape[axis]
    if known is not None and known < least:
        raise ValueError(f"{message}, found {known}: resize first, or pad more")
    found = tf.shape(images, tf.int64)[axis]
    enough = tf.debugging.Assert(found >= least, [f"{message}: found", found])
    with tf.control_dependencies([enough]):
        return tf.identity(found)


def flipped(images: tf.Tensor, axis: int, which: tf.Tensor) -> tf.Tensor:
    """The images, reversed along an axis where `which` is true, bool [B]."""
    # tf.where would broadcast the condition to every value, which takes three times as long.
    return tf.raw_ops.Select(condition=which, x=tf.reverse(images, [axis]), y=images)


def padded(images: tf.Tensor, padding: int) -> tf.Tensor:
    """Pads the images with zero pixels on every side."""
    return tf.pad(images, [[0, 0], [padding, padding], [padding, padding], [0, 0]])


def cropped(
    images: tf.Tensor, size: tuple[int, int], tops: tf.Tensor, lefts: tf.Tensor
) -> tf.Tensor:
    """Crops each image at its top and left, int64 [B]."""
    for axis, (extent, first) in enumerate(zip(size, (tops, lefts), strict=True), 1):
        places = first[:, None] + tf.range(tf.cast(extent, tf.int64))
        images = tf.gather(images, places, axis=axis, batch_dims=1)
    return images


def to_float(images: tf.Tensor) -> tf.Tensor:
    """Converts the images to float32; integers are divided by the maximum of their dtype."""
    return tf.image.convert_image_dtype(images, tf.float32)


def on_values(
    values: tf.Tensor | tf.RaggedTensor, function: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor | tf.RaggedTensor:
    """Applies a function to dense values, or to the flat values of ragged ones."""
    if isinstance(values, tf.RaggedTensor):
        return values.with_flat_values(function(values.flat_values))
    return function(tf.convert_to_tensor(values))


def standardized(
    values: tf.Tensor, mean: tuple[float, ...], std: tuple[float, ...], dtype: str
) -> tf.Tensor:
    """(values - mean) / std, computed in a dtype, as float32."""
    channels, shape = len(mean), tf.shape(values)
    means, stds = tf.constant(mean, dtype), tf.constant(std, dtype)
    rows = tf.cast(values, dtype)
    if channels > 1:
        # Broadcasting a few numbers to each pixel takes TensorFlow several times as long.
        rows = tf.reshape(rows, [tf.reduce_prod(shape[:-2]), shape[-2] * channels])
        means, stds = tf.tile(means, shape[-2:-1]), tf.tile(stds, shape[-2:-1])
    found = tf.cast((rows - means) / stds, tf.float32)
    return tf.ensure_shape(tf.reshape(found, shape), values.shape)


def masked(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Dense values where the mask of their leading dimensions is true, and 0 elsewhere; ragged ones unchanged."""
    if isinstance(values, tf.RaggedTensor):
        return values
    shape, mask = tf.shape(values), tf.convert_to_tensor(mask)
    rows = tf.reshape(values, tf.concat([[tf.size(mask)], shape[mask.shape.rank :]], axis=0))
    kept = tf.raw_ops.Select(condition=tf.reshape(mask, [-1]), x=rows, y=tf.zeros_like(rows))
    return tf.ensure_shape(tf.reshape(kept, shape), values.shape)
