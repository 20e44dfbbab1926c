"""Boxes and masks that move with the image of their record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from readers.decoders.resampling import read_mask
from readers.decoders.view import View
from readers.format.decode.images import decode_image
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.schema import Feature, Schema


@dataclass(frozen=True)
class Companions:
    """The features that move with an image.

    Attributes:
        boxes: The names of features float [n, 4]: two corners, as parts of the image from 0 to 1.
        box_order: Whether the corners of boxes are y, x or x, y.
        masks: The names of masks: encoded images, arrays [height, width, 1], or [n, height, width].
    """

    boxes: tuple[str, ...]
    box_order: Literal["yxyx", "xyxy"]
    masks: tuple[str, ...]

    def features(self, stored: Schema, size: tuple[int, int]) -> dict[str, Feature]:
        """The features that they become.

        Args:
            stored: The features as they are stored.
            size: The (height, width) of the decoded image.

        Raises:
            ValueError: A feature is missing, or holds neither boxes nor masks.
        """
        found = {}
        for name in (*self.boxes, *self.masks):
            if name not in stored:
                raise ValueError(
                    f"decoders: {name!r}, to move with an image, is not among the features that are "
                    f"read: {', '.join(stored)}"
                )
        for name in self.boxes:
            feature = stored[name]
            is_array = not feature.is_sequence and feature.step is None
            if feature.shape[1:] != (4,) or not feature.dtype.startswith("float") or not is_array:
                raise ValueError(
                    f"decoders: with_boxes={name!r} is {feature}; expected float32 [None, 4]"
                )
            found[name] = feature
        for name in self.masks:
            feature = stored[name]
            shape = _mask_shape(feature, size)
            if shape is None:
                raise ValueError(
                    f"decoders: with_masks={name!r} is {feature}; expected an encoded image, or numbers "
                    "[height, width, 1] or [None, height, width]"
                )
            found[name] = Feature(feature.dtype, shape)
        return found

    def moved(
        self,
        values: dict[str, Any],
        stored: Schema,
        view: View,
        image: tuple[int, int],
        size: tuple[int, int],
    ) -> dict[str, np.ndarray]:
        """The values of one record, moved.

        Args:
            values: The values as they are stored, encoded masks as bytes.
            stored: The features as they are stored.
            view: The window of the image.
            image: The (height, width) of the image.
            size: The (height, width) of the decoded image.

        Raises:
            ValueError: A mask cannot be decoded, or its size is not the image's.
        """
        x_first = self.box_order == "xyxy"
        found = {name: view.moved_boxes(values[name], image, x_first) for name in self.boxes}
        for name in self.masks:
            feature = stored[name]
            is_stack = not feature.is_image and feature.shape[2] != 1
            mask = values[name]
            if feature.is_image:
                mask = decode_image(name, feature, mask)
            sizes = mask.shape[1:] if is_stack else mask.shape[:2]
            if sizes != image:
                raise ValueError(
                    f"feature {name!r}: the mask is {format_shape(sizes)}, its image "
                    f"{format_shape(image)}"
                )
            stack = mask[..., None] if is_stack else mask[None]
            out = np.empty((len(stack), *size, stack.shape[3]), numpy_dtype(feature.dtype))
            for each, target in zip(stack, out, strict=True):
                read_mask(each, view, target)
            found[name] = out[..., 0] if is_stack else out[0]
        return found


def _mask_shape(feature: Feature, size: tuple[int, int]) -> Sequence[int | None] | None:
    """The shape of a moved mask in a record; None if the feature holds no masks."""
    if feature.is_sequence or feature.step or len(feature.shape) != 3 or feature.dtype == "string":
        return None
    if feature.is_image or feature.shape[2] == 1:
        return (*size, feature.shape[2])
    return (feature.shape[0], *size)
