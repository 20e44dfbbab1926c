"""Transforms of batches of pictures: decoding, size, and augmentation.

A random one takes a key for each picture, from which its numbers follow: a run that goes on, or one
with another batch size, augments alike. All keep the dtype, so that pictures can stay uint8, a quarter
of float32, until `normalize` or `to_float`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from readers.tfdata.decode import pixels_of
from readers.transforms.draws import below, uniform

Size = Sequence[int]


def decode_images(encoded: tf.Tensor, size: Size, channels: int = 3) -> tf.Tensor:
    """Encoded pictures, each decoded and resized: uint8 [B, height, width, channels].

    They are not turned by their EXIF tag, and transparency is dropped: the images job does both as
    pictures should be seen.

    Args:
        encoded: string [B]: JPEG, PNG, or what else `tf.io.decode_image` reads.
        size: (height, width).
        channels: 1 for gray, 3 for RGB.

    Raises:
        ValueError: A size or number of channels that cannot be.
        tf.errors.InvalidArgumentError: When run, on bytes that are no such picture.
    """
    height, width = _height_width(size)
    if channels not in (1, 3):
        raise ValueError(f"channels={channels!r}: expected 1 for gray or 3 for RGB")

    def decode(data: tf.Tensor) -> tf.Tensor:
        pixels = tf.ensure_shape(pixels_of(data, channels), [None, None, channels])
        return _resized(pixels, (height, width))

    spec = tf.TensorSpec([height, width, channels], tf.uint8)
    return tf.map_fn(decode, tf.convert_to_tensor(encoded), fn_output_signature=spec)


def to_float(images: tf.Tensor) -> tf.Tensor:
    """Pictures as float32 from 0 to 1, as `tf.image.convert_image_dtype` makes them."""
    return tf.image.convert_image_dtype(images, tf.float32)


def resize(images: tf.Tensor | tf.RaggedTensor, size: Size) -> tf.Tensor:
    """Pictures of another size, [B, height, width, C], as `tf.image.resize` makes them.

    Bilinear, antialiased where it shrinks, as in the images job; uint8 is rounded.

    Args:
        images: uint8 or float32 [B, H, W, C], or a RaggedTensor of pictures of different sizes.
        size: (height, width).

    Raises:
        ValueError: They are no batch of pictures, or the size cannot be.
    """
    height, width = _height_width(size)
    if not isinstance(images, tf.RaggedTensor):
        return _resized(_batch(images), (height, width))

    def one(image: tf.RaggedTensor) -> tf.Tensor:
        return _resized(image.to_tensor(), (height, width))

    spec = tf.TensorSpec([height, width, _batch(images).shape[3]], images.dtype)
    return tf.map_fn(one, images, fn_output_signature=spec)


def random_flip(
    images: tf.Tensor, keys: tf.Tensor, *, up_down: bool = False, salt: str = "flip"
) -> tf.Tensor:
    """Pictures of which every other one, at random, is mirrored from left to right.

    Args:
        images: uint8 or float32 [B, H, W, C].
        keys: int64 [B].
        up_down: Whether every other one is turned upside down as well.
        salt: Another one for each use in a pipeline makes them independent.

    Raises:
        ValueError: They are no batch of pictures.
    """
    images = _batch(images)
    images = _flipped(images, keys, 2, f"{salt}: left to right")
    return _flipped(images, keys, 1, f"{salt}: upside down") if up_down else images


def _flipped(images: tf.Tensor, keys: tf.Tensor, axis: int, salt: str) -> tf.Tensor:
    # tf.where would broadcast the condition to every value, which takes three times as long.
    return tf.raw_ops.Select(
        condition=uniform(keys, salt) < 0.5, x=tf.reverse(images, [axis]), y=images
    )


def random_crop(
    images: tf.Tensor, keys: tf.Tensor, size: Size, padding: int = 0, *, salt: str = "crop"
) -> tf.Tensor:
    """A part of each picture, at a random place: [B, height, width, C].

    Args:
        images: uint8 or float32 [B, H, W, C].
        keys: int64 [B].
        size: (height, width) of the part.
        padding: Pixels of 0 around each picture first; 4 with the pictures' own size is usual for
            CIFAR.
        salt: Another one for each use in a pipeline makes them independent.

    Raises:
        ValueError: They are no batch of pictures, the size or padding cannot be, or the pictures
            are known to be smaller.
        tf.errors.InvalidArgumentError: When run, on pictures that are smaller.
    """
    images = _batch(images)
    height, width = _height_width(size)
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise ValueError(f"padding={padding!r}: expected a number of pixels of at least 0")
    if padding:
        images = tf.pad(images, [[0, 0], [padding, padding], [padding, padding], [0, 0]])
    images = _window(images, keys, 1, height, f"{salt}: height")
    return _window(images, keys, 2, width, f"{salt}: width")


def _window(images: tf.Tensor, keys: tf.Tensor, axis: int, extent: int, salt: str) -> tf.Tensor:
    """Of each picture, `extent` rows (axis 1) or columns (axis 2) in a row from a random one on."""
    side = ("height", "width")[axis - 1]
    message = f"random_crop: expected a {side} of at least {extent}, padding included"
    known = images.shape[axis]
    if known is not None and known < extent:
        raise ValueError(f"{message}, found {known}: resize first, or pad more")
    found = tf.shape(images, tf.int64)[axis]
    enough = tf.debugging.Assert(found >= extent, [f"{message}: found", found])
    with tf.control_dependencies([enough]):
        first = below(keys, salt, found - extent + 1)
    return tf.gather(
        images, first[:, None] + tf.range(tf.cast(extent, tf.int64)), axis=axis, batch_dims=1
    )


def random_brightness(
    images: tf.Tensor, keys: tf.Tensor, max_delta: float, *, salt: str = "brightness"
) -> tf.Tensor:
    """Pictures made brighter or darker, each as `tf.image.adjust_brightness` does it.

    A number from -max_delta to max_delta is added to float32, which is then clipped to 0 to 1; to
    uint8, 255 times as much, clipped to 0 to 255. So it belongs before `normalize`.

    Args:
        images: uint8, or float32 from 0 to 1, [B, H, W, C].
        keys: int64 [B].
        max_delta: From 0 to 1.
        salt: Another one for each use in a pipeline makes them independent.

    Raises:
        ValueError: They are no batch of pictures, or `max_delta` is out of range.
    """
    if not 0 <= max_delta <= 1:
        raise ValueError(f"max_delta={max_delta!r}: expected a number from 0 to 1")
    images = _batch(images)
    delta = (2 * uniform(keys, salt) - 1) * max_delta
    adjusted = tf.image.adjust_brightness(images, delta[:, None, None, None])
    return tf.clip_by_value(adjusted, 0, 1) if adjusted.dtype.is_floating else adjusted


def _resized(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    resized = tf.image.resize(images, size, antialias=True)
    if images.dtype.is_integer:
        return tf.saturate_cast(tf.round(resized), images.dtype)
    return resized


def _batch(images: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    """The pictures themselves, once they are seen to be a batch."""
    if not isinstance(images, tf.RaggedTensor):
        images = tf.convert_to_tensor(images)
    if images.shape.rank != 4:
        raise ValueError(
            f"expected a batch of pictures [B, H, W, C], found the shape {images.shape}"
        )
    return images


def _height_width(size: Size) -> tuple[int, int]:
    sides = size if isinstance(size, (tuple, list)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f"size={size!r}: expected (height, width) in pixels, such as (224, 224)")
    return sides[0], sides[1]
