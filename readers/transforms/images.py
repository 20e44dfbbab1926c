"""Transforms of batches of images.

Random transforms depend only on a key for each image: a resumed run, or one with another batch size, augments each image in the
same way. All keep the dtype, so that images can stay uint8, a quarter of the size of float32, until `normalize` or `to_float`.
"""

from __future__ import annotations

from collections.abc import Sequence

from readers.transforms.draws import below, uniform
from readers.transforms.operations import Array, operations_of

Size = Sequence[int]


def to_float(images: Array) -> Array:
    """Converts images to float32 from 0 to 1, as `tf.image.convert_image_dtype` does.

    Args:
        images: uint8, uint16 or floating point, a `tf.Tensor` or `np.ndarray` of any shape.

    Raises:
        ValueError: `images` has another dtype.

    Example:
        >>> transforms.to_float(np.array([0, 255], np.uint8))
        array([0., 1.], dtype=float32)
    """
    return operations_of(images).to_float(images)


def random_flip(images: Array, keys: Array, *, up_down: bool = False, salt: str = "flip") -> Array:
    """Mirrors each image from left to right with a probability of one half.

    Args:
        images: uint8 or float32 [B, H, W, C], a `tf.Tensor` or `np.ndarray`.
        keys: int64 [B], the keys of the records.
        up_down: Whether to also turn each image upside down with a probability of one half.
        salt: Give each use in a pipeline a different salt to make them independent.

    Raises:
        ValueError: `images` is not a batch of images.

    Example:
        >>> def augment(batch, keys):
        ...     return {**batch, "image": transforms.random_flip(batch["image"], keys)}
        >>> batches = readers.as_numpy("shards/images", 32, shuffle=True, transform=augment)
        >>> next(batches)["image"].shape
        (32, 64, 64, 3)
    """
    ops = operations_of(images, keys)
    images = ops.checked_batch(images)
    images = ops.flipped(images, 2, uniform(keys, f"{salt}: left to right") < 0.5)
    if not up_down:
        return images
    return ops.flipped(images, 1, uniform(keys, f"{salt}: upside down") < 0.5)


def random_crop(
    images: Array, keys: Array, size: Size, padding: int = 0, *, salt: str = "crop"
) -> Array:
    """Crops each image at a random position: [B, height, width, C].

    Args:
        images: uint8 or float32 [B, H, W, C], a `tf.Tensor` or `np.ndarray`.
        keys: int64 [B], the keys of the records.
        size: (height, width) of the crop in pixels.
        padding: Zero pixels to add on every side before cropping; 4, with the size of the images, is common for CIFAR.
        salt: Give each use in a pipeline a different salt to make them independent.

    Raises:
        ValueError: `images` is not a batch of images, `size` is not two positive numbers,
            `padding` is negative, or the images are known to be smaller than the crop.
        tf.errors.InvalidArgumentError: When run, if tensors of unknown size are smaller than the crop.

    Example:
        >>> images, keys = np.zeros((8, 64, 64, 3), np.uint8), np.arange(8)
        >>> transforms.random_crop(images, keys, (56, 56)).shape
        (8, 56, 56, 3)
    """
    ops = operations_of(images, keys)
    images, size = ops.checked_batch(images), _height_width(size)
    if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
        raise ValueError(f"padding={padding!r}: expected a number of pixels of at least 0")
    if padding:
        images = ops.padded(images, padding)
    corners = []
    for axis, (side, extent) in enumerate(zip(("height", "width"), size, strict=True), 1):
        message = f"random_crop: expected a {side} of at least {extent}, including padding"
        found = ops.checked_side(images, axis, extent, message)
        corners.append(below(keys, f"{salt}: {side}", found - extent + 1))
    return ops.cropped(images, size, *corners)


def _height_width(size: Size) -> tuple[int, int]:
    sides = size if isinstance(size, (tuple, list)) else ()
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f"size={size!r}: expected (height, width) in pixels, such as (224, 224)")
    return sides[0], sides[1]
