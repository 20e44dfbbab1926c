"""Normalisation of pictures and sensor arrays by the statistics that a dataset's manifest holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from readers.format.manifest import Manifest
from readers.format.schema import IMAGE_ENCODINGS

# float32 holds all their values.
_NARROW = ("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of the values of a feature.

    Attributes:
        mean, std: One number for each channel, the last dimension; or a single one for all values.
        dtype: Of the values they were taken from. Those of uint8 pictures do not fit what
            `to_float` makes of them.

    Raises:
        ValueError: A number is not finite, a deviation not above 0, or there are not as many.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    dtype: str

    def __post_init__(self) -> None:
        if (
            not self.mean
            or len(self.mean) != len(self.std)
            or not all(map(math.isfinite, self.mean + self.std))
            or min(self.std) <= 0
        ):
            raise ValueError(
                f"mean={self.mean}, std={self.std}: expected as many finite numbers of each, "
                "deviations above 0"
            )

    @classmethod
    def of(
        cls, manifest: Manifest, split: str, feature: str, *, per_channel: bool = True
    ) -> Moments:
        """Those of a feature in one split, so that a model knows nothing of the others.

        Args:
            manifest: Of the dataset.
            split: Usually `train`.
            feature: Its name.
            per_channel: Whether each channel has its own, where the manifest has them: the last
                dimension of two or more, if it is from 2 to 64. False for a last dimension that is
                something else, the width of gray pictures, say.

        Raises:
            ValueError: The split or the feature is unknown, the manifest has no mean of it, or it
                is constant.

        Example:
            >>> manifest = readers.Manifest.read("shards/runs")
            >>> moments = Moments.of(manifest, "train", "signal")
        """
        stored = manifest.schema.select([feature])[feature]
        figures = manifest.split(split).statistics.get(feature)
        if not isinstance(figures, dict):
            figures = {}
        channels = figures.get("channels") if per_channel else None
        if not isinstance(channels, dict):
            channels = {name: [figures.get(name)] for name in ("mean", "std")}
        mean, std = _numbers(channels.get("mean")), _numbers(channels.get("std"))
        if not mean or not std or len(mean) != len(std):
            reason = "the split has no values of it, or of one of its channels"
            if stored.encoding in IMAGE_ENCODINGS:
                reason = "encoded pictures are not looked into; write them with --encoding tensor"
            elif stored.dtype in ("string", "complex64", "complex128"):
                reason = f"{stored.dtype} has none"
            raise ValueError(
                f"feature {feature!r}: the manifest has no mean and std of it in split {split!r}: "
                f"{reason}, or give Moments(mean, std, dtype)"
            )
        if 0 in std:
            constant = std.index(0)
            of_feature = f"channel {constant} of feature" if len(std) > 1 else "feature"
            cure = "take per_channel=False" if len(std) > 1 else "leave it as it is"
            raise ValueError(
                f"{of_feature} {feature!r} is {mean[constant]} throughout split {split!r} (std 0), "
                f"so it cannot be normalised: {cure}"
            )
        return cls(mean, std, stored.dtype)


def _numbers(found: Any) -> tuple[float, ...] | None:
    """The numbers of a list; None where it is none, or one of them is missing."""
    if isinstance(found, list) and all(isinstance(number, float) for number in found):
        return tuple(found)
    return None


def normalize(
    values: tf.Tensor | tf.RaggedTensor, moments: Moments, mask: tf.Tensor | None = None
) -> tf.Tensor | tf.RaggedTensor:
    """The values less their mean, in standard deviations, float32 of the same shape.

    Args:
        values: [B, ...], of the dtype of the moments: uint8 pictures as they are read.
        moments: One, or one for each channel.
        mask: bool, the leading dimensions of padded values; padding, where it is false, stays 0.

    Raises:
        ValueError: They have another dtype, or another number of channels.
    """
    if values.dtype != tf.as_dtype(moments.dtype):
        raise ValueError(
            f"expected values of {moments.dtype}, from which the moments were taken, found "
            f"{values.dtype.name}: normalise before any conversion, or give other Moments"
        )
    if isinstance(values, tf.RaggedTensor):
        return values.with_flat_values(_normalized(values.flat_values, moments))
    normalized = _normalized(tf.convert_to_tensor(values), moments)
    return normalized if mask is None else _masked(normalized, mask)


def _normalized(values: tf.Tensor, moments: Moments) -> tf.Tensor:
    channels, shape = len(moments.mean), tf.shape(values)
    dtype = tf.float32 if moments.dtype in _NARROW else tf.float64
    mean, std = tf.constant(moments.mean, dtype), tf.constant(moments.std, dtype)
    rows = tf.cast(values, dtype)
    if channels > 1:
        if values.shape.rank < 2 or values.shape[-1] != channels:
            raise ValueError(
                f"the moments are of {channels} channels, the last dimension; found the shape "
                f"{values.shape}"
            )
        # TensorFlow takes several times as long to repeat a few numbers for each pixel.
        rows = tf.reshape(rows, [tf.reduce_prod(shape[:-2]), shape[-2] * channels])
        mean, std = tf.tile(mean, shape[-2:-1]), tf.tile(std, shape[-2:-1])
    normalized = tf.cast((rows - mean) / std, tf.float32)
    return tf.ensure_shape(tf.reshape(normalized, shape), values.shape)


def _masked(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The values where the mask, bool of the leading dimensions, is true; 0 elsewhere."""
    shape = tf.shape(values)
    rows = tf.reshape(values, tf.concat([[tf.size(mask)], shape[mask.shape.rank :]], axis=0))
    kept = tf.raw_ops.Select(condition=tf.reshape(mask, [-1]), x=rows, y=tf.zeros_like(rows))
    return tf.ensure_shape(tf.reshape(kept, shape), values.shape)
