"""Decoders that give every image one size: `RandomResizedCrop`, `CenterCrop` and `Resize`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import Literal

import numpy as np

from readers.decoders.companions import companion_features, moved_masks
from readers.decoders.decoder import Batch, Decoder, image_of, is_bytes
from readers.decoders.resampling import ArrayImage, opencv, read_view
from readers.decoders.view import ATTEMPTS, View, central_view, random_view
from readers.format.decode.column import FeatureColumn, column_of
from readers.format.decode.image_columns import of_each_row
from readers.format.decode.images import EncodedImage
from readers.format.dtypes import numpy_dtype
from readers.format.schema import Feature, Schema
from readers.order.draws import uniforms


@dataclass(frozen=True)
class _Resized(Decoder):
    """Decodes a window of each image and resizes it; the arguments are those of `Resize`."""

    size: int | Sequence[int]
    channels: Literal[1, 3, 4] | None = field(default=None, kw_only=True)
    with_boxes: str | Sequence[str] = field(default=(), kw_only=True)
    box_order: Literal["yxyx", "xyxy"] = field(default="yxyx", kw_only=True)
    with_masks: str | Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        sides = self.size if isinstance(self.size, (tuple, list)) else (self.size, self.size)
        are_whole = all(isinstance(side, (int, np.integer)) for side in sides)
        if len(sides) != 2 or not are_whole or not all(side > 0 for side in sides):
            raise ValueError(
                f"{type(self).__name__}: size={self.size!r}: expected pixels, such as 224, or (height, "
                "width), such as (240, 320)"
            )
        if self.channels not in (None, 1, 3, 4):
            raise ValueError(f"channels={self.channels!r}: expected 1, 3, 4 or None")
        if self.box_order not in ("yxyx", "xyxy"):
            raise ValueError(f"box_order={self.box_order!r}: expected 'yxyx' or 'xyxy'")
        for name, value in (
            ("size", tuple(map(int, sides))),
            ("with_boxes", _names(self.with_boxes)),
            ("with_masks", _names(self.with_masks)),
        ):
            object.__setattr__(self, name, value)
        opencv()  # Raises an error now if it is not installed.

    @property
    def moved(self) -> Sequence[str]:
        return (*self.with_boxes, *self.with_masks)

    def features(self, name: str, stored: Schema) -> dict[str, Feature]:
        image, size = self._image(name, stored[name]), self._size
        found = companion_features(self.with_boxes, self.with_masks, stored, size)
        return found | {name: Feature(image.dtype, (*size, image.known_sizes[-1]))}

    def columns(self, name: str, stored: Schema, batch: Batch) -> dict[str, FeatureColumn]:
        image, features = self._image(name, stored[name]), self.features(name, stored)
        is_encoded = stored[name].is_image or is_bytes(stored[name])
        opened = partial(EncodedImage, name, image) if is_encoded else ArrayImage
        moving = {other: batch.columns[other].arrays() for other in self.moved}
        images, salts, count = batch.columns[name].arrays(), self._salts, len(batch.keys)
        draws = uniforms(batch.keys, salts).tolist() if salts else [()] * count
        shape, dtype = features[name].known_sizes, numpy_dtype(image.dtype)
        pixels = (
            batch.rows([shape] * count, dtype)
            if batch.rows
            else batch.empty((count, *shape), dtype)
        )
        x_first = self.box_order == "xyxy"

        def decode(row: int) -> dict[str, np.ndarray]:
            source = opened(images[row])
            whole = source.shape[0], source.shape[1]
            if not all(whole):
                raise ValueError(f"feature {name!r}: the image has no pixels")
            view = read_view(source, self._view(whole, draws[row]), pixels[row])
            boxes = {n: view.moved_boxes(moving[n][row], whole, x_first) for n in self.with_boxes}
            masks = {other: moving[other][row] for other in self.with_masks}
            return boxes | moved_masks(masks, stored, view, whole, self._size)

        rows = of_each_row(decode, count, batch.located)
        found = {
            other: column_of(features[other], [row[other] for row in rows]) for other in moving
        }
        return found | {name: FeatureColumn(pixels)}

    @abstractmethod
    def _view(self, image: tuple[int, int], draws: Sequence[float]) -> View:
        """The window of an image of size (height, width), given a number for each of `_salts`."""

    @property
    def _salts(self) -> list[str]:
        """The purposes of the random numbers that determine the window."""
        return []

    @property
    def _size(self) -> tuple[int, int]:
        height, width = self.size  # type: ignore[misc]
        return height, width

    def _image(self, name: str, stored: Feature) -> Feature:
        """The feature of the whole image."""
        if stored.is_image or is_bytes(stored):
            return image_of(name, stored, self.channels)
        is_array = stored.shape[2:] in ((1,), (3,), (4,)) and stored.dtype in ("uint8", "uint16")
        if is_array and not stored.is_sequence and self.channels in (None, stored.shape[2]):
            return Feature(stored.dtype, stored.shape)
        raise ValueError(
            f"decoders: {name!r} is {stored}; expected an encoded image, the bytes of one, or uint8 "
            f"[height, width, {self.channels or '1, 3 or 4'}]"
        )


@dataclass(frozen=True)
class RandomResizedCrop(_Resized):
    """Decodes a random window of each image and resizes it: uint8 [height, width, channels].

    The window is drawn like that of torchvision's `RandomResizedCrop`. It depends only on the record's
    key, so every reader, host and resumed run decodes the same pixels.

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        scale: The range of the window's area, relative to the image's.
        ratio: The range of its width divided by its height.
        flip: Whether to mirror it from left to right with a probability of one half.
        salt: Give each decoder in a pipeline a different salt to make them independent.
        channels, with_boxes, box_order, with_masks: As for `Resize`, which raises the same errors.

    Example:
        >>> crop = readers.decoders.RandomResizedCrop(48, flip=True)
        >>> batches = readers.as_numpy("shards/images", 32, decoders={"image": crop})
        >>> next(batches)["image"].shape
        (32, 48, 48, 3)
    """

    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: bool = field(default=False, kw_only=True)
    salt: str = field(default="crop", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, limit in (("scale", 1.0), ("ratio", float("inf"))):
            value = getattr(self, name)
            is_pair = isinstance(value, (tuple, list)) and len(value) == 2
            if (
                not (is_pair and all(isinstance(bound, Real) for bound in value))
                or not 0 < value[0] <= value[1] <= limit
                or value[1] == float("inf")
            ):
                raise ValueError(
                    f"RandomResizedCrop: {name}={value!r}: expected two numbers above 0, the smaller "
                    f"first{', at most 1' if limit == 1 else ''}"
                )

    def _view(self, image: tuple[int, int], draws: Sequence[float]) -> View:
        view = random_view(image, self.scale, self.ratio, draws[:-1])
        return replace(view, mirrored=True) if self.flip and draws[-1] < 0.5 else view

    @property
    def _salts(self) -> list[str]:
        pairs = [f"{self.salt}: {what} {n}" for n in range(ATTEMPTS) for what in ("area", "shape")]
        return [*pairs, *(f"{self.salt}: {what}" for what in ("top", "left", "flip"))]


@dataclass(frozen=True)
class CenterCrop(_Resized):
    """Decodes the center of each image and resizes it: uint8 [height, width, channels].

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        fraction: The part of the largest window of this shape to take, above 0 and at most 1. 0.875 is
            the same as resizing the shorter side to 256 and cropping 224 pixels.
        channels, with_boxes, box_order, with_masks: As for `Resize`, which raises the same errors.

    Example:
        >>> crop = readers.decoders.CenterCrop((48, 32))
        >>> next(readers.as_numpy("shards/images", 32, decoders={"image": crop}))["image"].shape
        (32, 48, 32, 3)
    """

    fraction: float = 0.875

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.fraction, Real) or not 0 < self.fraction <= 1:
            raise ValueError(
                f"CenterCrop: fraction={self.fraction!r}: expected a number above 0 and at most 1"
            )

    def _view(self, image: tuple[int, int], draws: Sequence[float]) -> View:
        return central_view(image, self._size, self.fraction)


@dataclass(frozen=True)
class Resize(_Resized):
    """Decodes each image and resizes it, whatever its shape: uint8 [height, width, channels].

    uint16 PNGs stay uint16. Arrays [height, width, channels] are accepted in place of encoded images.
    EXIF orientation is ignored, as in TensorFlow.

    Args:
        size: (height, width) of the result in pixels, or one number for both.
        channels: 1 for gray, 3 for RGB, 4 for RGBA (not for JPEGs); None for those of the feature, or 3 for bytes.
        with_boxes: The names of features of boxes, float [n, 4], that move with the image: two corners, relative to the image,
            from 0 to 1. They are clipped at the edges, and keep their number and order: a box outside the window gets no area.
        box_order: "yxyx", or "xyxy" for a dataset written with `--box_order xyxy`.
        with_masks: The names of masks of the image's size that move with it: encoded images, or arrays
            [height, width, 1] or [n, height, width]. They are resized with the nearest value.

    Raises:
        ValueError: An argument is not as described.
        ImportError: OpenCV or simplejpeg is not installed.

    Example:
        >>> small = readers.decoders.Resize(32)
        >>> next(readers.as_numpy("shards/images", 32, decoders={"image": small}))["image"].shape
        (32, 32, 32, 3)
    """

    def _view(self, image: tuple[int, int], draws: Sequence[float]) -> View:
        return View(0, 0, *image)


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())
