"""Normalizes images and sensor arrays with the statistics in a dataset's manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from readers.decoders.channels import Channels
from readers.format.manifest import Manifest
from readers.transforms.operations import Array, operations_of

# Dtypes whose values all fit float32.
_NARROW = ("bool", "uint8", "int8", "uint16", "int16", "float16", "bfloat16", "float32")


@dataclass(frozen=True)
class Moments:
    """The mean and standard deviation of a feature's values.

    Attributes:
        mean: One number per channel (the last dimension), or a single one for all values.
        std: The standard deviations, as many.
        dtype: The dtype of the values described. Moments of uint8 images do not fit the output of `to_float`.

    Raises:
        ValueError: A number is not finite, a deviation is not above 0, or `mean` and `std` differ in length.

    Example:
        >>> of_imagenet = transforms.Moments((123.7, 116.3, 103.5), (58.4, 57.1, 57.4), "uint8")
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
                f"mean={self.mean}, std={self.std}: expected finite numbers, one deviation above 0 for each mean"
            )

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        split: str,
        feature: str,
        *,
        per_channel: bool = True,
        channels: Sequence[str] | None = None,
    ) -> Moments:
        """The moments of a feature in one split.

        Args:
            manifest: The dataset's manifest.
            split: Usually `train`, so that the model learns nothing from the other splits.
            feature: The feature's name.
            per_channel: Whether to use separate moments per channel if the manifest has them:
                it does if there are at least two dimensions and the last has a size from 2 to 64. Set it to
                False if the last dimension is not channels, such as the width of gray images.
            channels: The names of the channels that `columns=` keeps of the feature, in its order; None for all.

        Raises:
            ValueError: The split or the feature is unknown, or the feature has no mean in the manifest or is constant.

        Example:
            >>> manifest = readers.Manifest.read("shards/sensors")
            >>> moments = transforms.Moments.of(manifest, "train", "signal")
            >>> len(moments.mean)
            3
        """
        stored = manifest.schema.select([feature])[feature]
        figures = manifest.split(split).statistics.get(feature)
        if not isinstance(figures, dict):
            figures = {}
        parts = figures.get("channels") if per_channel else None
        if not isinstance(parts, dict):
            parts = {name: [figures.get(name)] for name in ("mean", "std")}
        mean, std = _numbers(parts.get("mean")), _numbers(parts.get("std"))
        if not mean or not std or len(mean) != len(std):
            reason = "the feature, or one of its channels, has no values there"
            if manifest.operation.get("name") == "select":
                reason = "of a subset, it has only those of single numbers"
            if stored.is_image:
                reason = "encoded images have no statistics; write them with --encoding tensor"
            elif stored.dtype in ("string", "complex64", "complex128"):
                reason = f"{stored.dtype} features have no statistics"
            raise ValueError(
                f"feature {feature!r}: the manifest has no mean and std in split {split!r}: "
                f"{reason}; or pass Moments(mean, std, dtype)"
            )
        if channels is not None and len(mean) > 1:
            places = Channels.named(feature, channels, manifest.channels.get(feature, ())).places
            mean, std = (tuple(each[place] for place in places) for each in (mean, std))
        if 0 in std:
            constant = std.index(0)
            of_feature = f"channel {constant} of feature" if len(std) > 1 else "feature"
            advice = "use per_channel=False" if len(std) > 1 else "leave it unchanged"
            raise ValueError(
                f"{of_feature} {feature!r} is {mean[constant]} throughout split {split!r} (std 0), "
                f"so it cannot be normalized: {advice}"
            )
        return cls(mean, std, stored.dtype)


def _numbers(found: Any) -> tuple[float, ...] | None:
    """The numbers of a list; None if it is not a list, or a number is missing."""
    if isinstance(found, list) and all(isinstance(number, float) for number in found):
        return tuple(found)
    return None


def normalize(values: Array, moments: Moments, mask: Array | None = None) -> Array:
    """Subtracts the mean and divides by the standard deviation; returns float32 of the same shape.

    Args:
        values: [B, ...], with the moments' dtype; pass uint8 images as they are read. A `tf.Tensor`
            or `np.ndarray`; or ragged, a `tf.RaggedTensor` or an object array of arrays.
        moments: The moments of all values or of each channel.
        mask: bool, the mask of padded values, which covers their leading dimensions; padding, where it is false, becomes 0.

    Raises:
        ValueError: `values` has another dtype or another number of channels than `moments`.

    Example:
        >>> moments = transforms.Moments((10.0,), (2.0,), "float32")
        >>> transforms.normalize(np.array([8, 10, 14], np.float32), moments)
        array([-1.,  0.,  2.], dtype=float32)
    """
    ops = operations_of(values, mask)

    def normalized(dense: Array) -> Array:
        _check(dense, moments)
        dtype = "float32" if moments.dtype in _NARROW else "float64"
        return ops.standardized(dense, moments.mean, moments.std, dtype)

    found = ops.on_values(values, normalized)
    return found if mask is None else ops.masked(found, mask)


def _check(values: Array, moments: Moments) -> None:
    if values.dtype.name != moments.dtype:
        raise ValueError(
            f"expected values of {moments.dtype}, the dtype of the moments, found "
            f"{values.dtype.name}: normalize before any conversion, or pass other Moments"
        )
    channels, shape = len(moments.mean), values.shape
    if channels > 1 and (len(shape) < 2 or shape[-1] != channels):
        raise ValueError(
            f"the moments have {channels} channels: expected as many in the last dimension, found the shape {shape}"
        )
