"""Measures of a picture."""

from __future__ import annotations

import math

import numpy as np

from readers.format.similarity.levels import levels

# Pixels in the middle of a larger picture that its sharpness is measured in, and the fewest at a quarter of its size.
_SHARPNESS_SIDE, _SMALLEST = 256, 8

# Rows and columns of a larger picture that everything else is measured in, evenly spaced.
_SIDE = 256

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def measure_picture(pixels: np.ndarray) -> dict[str, float]:
    """Measures a picture, [height, width] or [height, width, 1, 3 or 4], not empty.

    - `width`, `height`, `aspect`; `side`, of a square with as many pixels;
    - `brightness` and `contrast`: the mean and the standard deviation of the luma, between 0 and 1;
    - `dark` and `light`: the luma that 1% and 95% of the pixels exceed;
    - `sharpness`: the standard deviation of the Laplacian in the middle at half the size, relative to that at a quarter.
      0.25 is as smooth as possible, and photographs in focus have 0.65 to 1.3. At full size, JPEG noise would count as
      edges. NaN if a side has less than 32 pixels;
    - `entropy`: of 256 levels of luma, in bits;
    - `gray`: 1 if all three channels are equal, otherwise 0; NaN for a picture with one channel.

    Integers are levels from 0 to the maximum of their dtype; floats go from 0 to 1, or to 255 if any exceeds 1. In a
    picture with a side of more than 511 pixels, every n-th pixel is measured.
    """
    height, width = pixels.shape[:2]
    colors = pixels[..., :3] if pixels.ndim == 3 else pixels[..., None]
    some = colors[:: max(1, height // _SIDE), :: max(1, width // _SIDE)]
    luma = _luma(some)
    counts = np.bincount((luma * 255 + 0.5).astype(np.uint8).reshape(-1), minlength=256)
    shares = counts[counts > 0] / luma.size
    dark, light = np.searchsorted(np.cumsum(counts), np.array([0.99, 0.05]) * luma.size) / 255
    return {
        "width": width,
        "height": height,
        "side": math.sqrt(width * height),
        "aspect": width / height,
        "brightness": float(luma.mean()),
        "contrast": float(luma.std()),
        "dark": float(dark),
        "light": float(light),
        "sharpness": _sharpness(colors),
        "entropy": float(-(shares * np.log2(shares)).sum()),
        "gray": float((some == some[..., :1]).all()) if some.shape[2] == 3 else np.nan,
    }


def _luma(colors: np.ndarray) -> np.ndarray:
    """The luma of each pixel, float32 [height, width], between 0 and 1."""
    if colors.shape[2] == 3:
        values = colors.astype(np.float32) @ _LUMA
    else:
        values = colors[..., 0].astype(np.float32)
    if colors.dtype.kind in "ui":
        return np.clip(values / np.iinfo(colors.dtype).max, 0, 1)
    return levels(values)


def _step(colors: np.ndarray) -> float:
    """The step between levels of luma whose rounding errors are those of the channels; 0 for floats."""
    if colors.dtype.kind not in "ui":
        return 0.0
    weights = np.sqrt((_LUMA**2).sum()) if colors.shape[2] == 3 else 1.0
    return float(weights / np.iinfo(colors.dtype).max)


def _sharpness(colors: np.ndarray) -> float:
    """The edges of a picture at half its size, relative to those at a quarter; NaN if it is small or has no edges."""
    top, left = (max(0, (side - _SHARPNESS_SIDE) // 2) for side in colors.shape[:2])
    luma = _luma(colors[top : top + _SHARPNESS_SIDE, left : left + _SHARPNESS_SIDE])
    half = _halved(luma)
    quarter = _halved(half)
    if min(quarter.shape) < _SMALLEST:
        return np.nan
    # The Laplacian adds the rounding errors of five levels, one of them four times; a level is the mean of 4 or 16 pixels.
    rounding = _step(colors) ** 2 * 20 / 12
    edges, coarse_edges = _edges(half) - rounding / 4, _edges(quarter) - rounding / 16
    return float(np.sqrt(max(0.0, edges) / coarse_edges)) if coarse_edges > rounding else np.nan


def _halved(luma: np.ndarray) -> np.ndarray:
    """The means of squares of two by two pixels."""
    height, width = (side // 2 for side in luma.shape)
    return luma[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean((1, 3))


def _edges(luma: np.ndarray) -> float:
    """The variance of the Laplacian."""
    around = luma[:-2, 1:-1] + luma[2:, 1:-1] + luma[1:-1, :-2] + luma[1:-1, 2:]
    return float((around - 4 * luma[1:-1, 1:-1]).var())
