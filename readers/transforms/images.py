"""Transforms of batches of images: decoding, resizing and augmentation.

Random transforms take a key for each image and depend on nothing else: a resumed run, or one with
another batch size, augments each image in the same way. All keep the dtype, so that images can stay
uint8, a quarter of the size of float32, until `normalize` or `to_float`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from readers.tfdata.decode import pixels_of
from readers.transforms.draws import below, uniform

Size = Sequence[int]


def decode_images(encoded: tf.Tensor, size: Size, channels: int = 3) -> tf.Tensor:
    """Decodes and resizes images: uint8 [B, height, width, channels].

    Unlike the images job, it ignores EXIF orientation and drops transparency.

    Args:
        encoded: string [B], JPEG, PNG, or another format that `tf.io.decode_image` reads.
        size: (height, width) in pixels.
        channels: 1 for gray, 3 for RGB.

    Raises:
        ValueError: `size` is not two positive numbers, or `channels` is not 1 or 3.
        tf.errors.InvalidArgumentError: When run, if the bytes are not an image.
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
    """Converts images to float32 from 0 to 1, as `tf.image.convert_image_dtype` does."""
    return tf.image.convert_image_dtype(images, tf.float32)


def resize(images: tf.Tensor | tf.RaggedTensor, size: Size) -> tf.Tensor:
    """Resizes images to [B, height, width, C], as `tf.image.resize` does.

    Bilinear, and antialiased when shrinking, as in the images job with `--jpeg_exact`; uint8 is
    rounded.

    Args:
        images: uint8 or float32 [B, H, W, C], or a RaggedTensor of images of different sizes.
        size: (height, width) in pixels.

    Raises:
        ValueError: `images` is not a batch of images, or `size` is not two positive numbers.
    """
    height, width = _height_width(size)
    if not isinstance(images, tf.RaggedTensor):
        return _resized(_checked_batch(images), (height, width))

    def one(image: tf.RaggedTensor) -> tf.Tensor:
        return _resized(image.to_tensor(), (height, width))

    spec = tf.TensorSpec([height, width, _checked_batch(images).shape[3]], images.dtype)
    return tf.map_fn(one, images, fn_output_signature=spec)


def random_flip(
    images: tf.Tensor, keys: tf.Tensor, *, up_down: bool = False, salt: str = "flip"
) -> tf.Tensor:
    """Mirrors each image from left to right with a probability of one half.

    Args:
        images: uint8 or float32 [B, H, W, C].
        keys: int64 [B], the keys of the records.
        up_down: Whether to also turn each image upside down with a probability of one half.
        salt: Give each use in a pipeline its own salt to make them independent.

    Raises:
        ValueError: `images` is not a batch of images.
    """
    images = _checked_batch(images)
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
    """Crops each image at a random position: [B, height, width, C].

    Args:
        images: uint8 or float32 [B, H, W, C].
        keys: int64 [B], the keys of the records.
        size: (height, width) of the crop in pixels.
        padding: Zero pixels to add on every side before cropping; 4, with the size of the images,
            is common for CIFAR.
        salt: Give each use in a pipeline its own salt to make them independent.

    Raises:
        ValueError: `images` is not a batch of images, `size` is not two positive numbers,
            `padding` is negative, or the images are statically known to be smaller than the crop.
        tf.errors.InvalidArgumentError: When run, if the images are smaller than the crop.
    """
    images = _checked_batch(images)
    height, width = _height_width(size)
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise ValueError(f"padding={padding!r}: expected a number of pixels of at least 0")
    if padding:
        images = tf.pad(images, [[0, 0], [padding, padding], [padding, padding], [0, 0]])
    images = _cropped(images, keys, 1, height, f"{salt}: height")
    return _cropped(images, keys, 2, width, f"{salt}: width")


def _cropped(images: tf.Tensor, keys: tf.Tensor, axis: int, extent: int, salt: str) -> tf.Tensor:
    """`extent` rows (axis 1) or columns (axis 2) of each image, from a random position on."""
    side = ("height", "width")[axis - 1]
    message = f"random_crop: expected a {side} of at least {extent}, including padding"
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
    """Brightens or darkens each image by a random amount, as `tf.image.adjust_brightness` does.

    Adds a number from -max_delta to max_delta to float32 images and clips them to 0 to 1; for
    uint8, the number is multiplied by 255 and the images are clipped to 0 to 255. Use it before
    `normalize`.

    Args:
        images: uint8, or float32 from 0 to 1, [B, H, W, C].
        keys: int64 [B], the keys of the records.
        max_delta: The largest change, from 0 to 1.
        salt: Give each use in a pipeline its own salt to make them independent.

    Raises:
        ValueError: `images` is not a batch of images, or `max_delta` is not from 0 to 1.
    """
    if not 0 <= max_delta <= 1:
        raise ValueError(f"max_delta={max_delta!r}: expected a number from 0 to 1")
    images = _checked_batch(images)
    delta = (2 * uniform(keys, salt) - 1) * max_delta
    adjusted = tf.image.adjust_brightness(images, delta[:, None, None, None])
    return tf.clip_by_value(adjusted, 0, 1) if adjusted.dtype.is_floating else adjusted


def _resized(images: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    resized = tf.image.resize(images, size, antialias=True)
    if images.dtype.is_integer:
        return tf.saturate_cast(tf.round(resized), images.dtype)
    return resized


def _checked_batch(images: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
    """The images as a tensor; raises ValueError unless they are a batch of images."""
    if not isinstance(images, tf.RaggedTensor):
        images = tf.convert_to_tensor(images)
    if images.shape.rank != 4:
        raise ValueError(f"expected a batch of images [B, H, W, C], found the shape {images.shape}")
    return images


def _height_width(size: Size) -> tuple[int, int]:
    sides = size if isinstance(size, (tuple, list)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f"size={size!r}: expected (height, width) in pixels, such as (224, 224)")
    return sides[0], sides[1]
