"""Boxes and masks that move with the image of their record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from readers.decoders.resampling import read_mask
from readers.decoders.view import View
from readers.format.decode.images import decode_image
from readers.format.dtypes import numpy_dtype
from readers.format.encodings.spec import format_shape
from readers.format.schema import Feature, Schema


def companion_features(
    boxes: Sequence[str], masks: Sequence[str], stored: Schema, size: tuple[int, int]
) -> dict[str, Feature]:
    """The features of boxes and masks of an image decoded to (height, width); ValueError if one is of another kind."""
    found = {}
    for name in (*boxes, *masks):
        if name not in stored:
            raise ValueError(
                f"decoders: {name!r}, to move with an image, is not among the features that are "
                f"read: {', '.join(stored)}"
            )
    for name in boxes:
        feature = stored[name]
        is_array = not feature.is_sequence and feature.step is None
        if feature.shape[1:] != (4,) or not feature.dtype.startswith("float") or not is_array:
            raise ValueError(
                f"decoders: with_boxes={name!r} is {feature}; expected float32 [None, 4]"
            )
        found[name] = feature
    for name in masks:
        feature = stored[name]
        is_array = not feature.is_sequence and feature.step is None and feature.dtype != "string"
        if not is_array or len(feature.shape) != 3:
            raise ValueError(
                f"decoders: with_masks={name!r} is {feature}; expected an encoded image, or numbers "
                "[height, width, 1] or [None, height, width]"
            )
        shape = (feature.shape[0], *size) if _is_stack(feature) else (*size, feature.shape[2])
        found[name] = Feature(feature.dtype, shape)
    return found


def moved_masks(
    masks: Mapping[str, Any],
    stored: Schema,
    view: View,
    image: tuple[int, int],
    size: tuple[int, int],
) -> dict[str, np.ndarray]:
    """The masks of one record, cropped to the window of its image and resized. `image` and `size` are (height, width).

    Raises ValueError if a mask cannot be decoded, or differs from its image in size.
    """
    found = {}
    for name, mask in masks.items():
        feature = stored[name]
        is_stack = _is_stack(feature)
        if feature.is_image:
            mask = decode_image(name, feature, mask)
        sizes = mask.shape[1:] if is_stack else mask.shape[:2]
        if sizes != image:
            raise ValueError(
                f"feature {name!r}: the mask is {format_shape(sizes)}, but its image is {format_shape(image)}"
            )
        stack = mask[..., None] if is_stack else mask[None]
        out = np.empty((len(stack), *size, stack.shape[3]), numpy_dtype(feature.dtype))
        for each, target in zip(stack, out, strict=True):
            read_mask(each, view, target)
        found[name] = out[..., 0] if is_stack else out[0]
    return found


def _is_stack(feature: Feature) -> bool:
    """Whether a mask is an array [n, height, width]."""
    return not feature.is_image and feature.shape[2] != 1
