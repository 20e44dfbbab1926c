"""Numbers that describe a picture."""

from __future__ import annotations

import numpy as np

# Pixels of the middle of a larger picture in which its sharpness is measured, and the fewest at half size.
_SHARPNESS_SIDE, _SMALLEST = 512, 8

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def measure_picture(pixels: np.ndarray) -> dict[str, float]:
    """Numbers that describe a picture.

    `brightness` and `contrast` are the mean and the standard deviation of its luma, between 0 and 1;
    `dark` is the luma that one pixel in a hundred exceeds, and `light` that which nineteen in twenty
    exceed. `sharpness` is the standard deviation of the Laplacian, relative to that of the picture at half
    its size: 0.25 is as smooth as can be, and photographs in focus have 0.5 to 1.5. `entropy` is that of 256 levels of luma, in bits. `gray` is 1 if all
    channels are the same.

    Args:
        pixels: The picture, [height, width] or [height, width, 1, 3 or 4], not empty. Integers are
            levels from 0 to the largest of their dtype; floats are levels from 0 to 1, or to 255 if
            there is one above 1.
    """
    height, width = pixels.shape[:2]
    colors = pixels[..., :3] if pixels.ndim == 3 else pixels[..., None]
    luma = _luma(colors)
    dark, light = np.percentile(luma, (99, 5))
    counts = np.bincount((luma * 255).astype(np.uint8).reshape(-1), minlength=256)
    shares = counts[counts > 0] / luma.size
    return {
        "width": width,
        "height": height,
        "aspect": width / height,
        "brightness": float(luma.mean()),
        "contrast": float(luma.std()),
        "dark": float(dark),
        "light": float(light),
        "sharpness": _sharpness(luma, _step(colors)),
        "entropy": float(-(shares * np.log2(shares)).sum()),
        "gray": float(bool((colors == colors[..., :1]).all())),
    }


def _luma(colors: np.ndarray) -> np.ndarray:
    """The luma of each pixel, float32 [height, width], between 0 and 1."""
    if colors.shape[2] == 3:
        values = colors.astype(np.float32) @ _LUMA
    else:
        values = colors[..., 0].astype(np.float32)
    if colors.dtype.kind in "ui":
        return values / np.iinfo(colors.dtype).max
    finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    return np.clip(finite / 255 if finite.max() > 1 else finite, 0, 1)


def _step(colors: np.ndarray) -> float:
    """The difference of levels of luma whose rounding errors are those of the channels; 0 for floats."""
    if colors.dtype.kind == "f":
        return 0.0
    weights = np.sqrt((_LUMA**2).sum()) if colors.shape[2] == 3 else 1.0
    return float(weights / np.iinfo(colors.dtype).max)


def _sharpness(luma: np.ndarray, step: float) -> float:
    """The edges in the middle of a picture, relative to those at half its size; NaN if it has none.

    Args:
        luma: The luma.
        step: The difference of neighbouring levels, whose rounding is no edge; 0 for floats.
    """
    top, left = (max(0, (side - _SHARPNESS_SIDE) // 2) for side in luma.shape)
    fine = luma[top : top + _SHARPNESS_SIDE, left : left + _SHARPNESS_SIDE]
    height, width = (side // 2 for side in fine.shape)
    if min(height, width) < _SMALLEST:
        return np.nan
    coarse = fine[: 2 * height, : 2 * width].reshape(height, 2, width, 2).mean((1, 3))
    # The Laplacian adds the rounding errors of five levels, of which one counts four times.
    rounding = step**2 * 20 / 12
    edges, coarse_edges = _edges(fine) - rounding, _edges(coarse)
    return float(np.sqrt(max(0.0, edges) / coarse_edges)) if coarse_edges > rounding else np.nan


def _edges(luma: np.ndarray) -> float:
    """The variance of the Laplacian."""
    around = luma[:-2, 1:-1] + luma[2:, 1:-1] + luma[1:-1, :-2] + luma[1:-1, 2:]
    return float((around - 4 * luma[1:-1, 1:-1]).var())
