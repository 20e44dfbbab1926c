"""The levels of pictures of any dtype."""

from __future__ import annotations

import numpy as np

_LARGE_SIDE = 2048


def reduced(pixels: np.ndarray) -> np.ndarray:
    """Converts a picture to uint8 with fewer than 4,096 pixels a side, by taking every n-th pixel of a larger one.

    Integers are levels from 0 to the maximum of their dtype; floats are converted by `levels`.
    """
    step = max(1, max(pixels.shape[:2]) // _LARGE_SIDE)
    pixels = pixels[::step, ::step]
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind in "ui":
        return (pixels / np.float32(np.iinfo(pixels.dtype).max / 255)).clip(0, 255).astype(np.uint8)
    return (levels(pixels.astype(np.float32)) * 255).astype(np.uint8)


def levels(values: np.ndarray) -> np.ndarray:
    """Floats as levels from 0 to 1; if any value is above 1, the range is taken to be 0 to 255."""
    finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(finite / 255 if finite.max() > 1 else finite, 0, 1)
