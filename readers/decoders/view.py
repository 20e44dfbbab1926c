"""The window of an image that is decoded, and how boxes move with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# As in torchvision, before it takes the largest window at the center.
ATTEMPTS = 10


@dataclass(frozen=True)
class View:
    """A window of an image in pixels, optionally mirrored from left to right."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool = False

    def reduction(self, size: tuple[int, int]) -> int:
        """The largest of 1, 2, 4, 8 by which the window can be reduced and still have at least `size` pixels."""
        times = min(self.height // size[0], self.width // size[1])
        return min(1 << max(times.bit_length() - 1, 0), 8)

    def aligned(self, factor: int, image: tuple[int, int]) -> View:
        """The window with its edges moved outwards to multiples of a factor, within the image."""
        if factor == 1:
            return self
        top, left = self.top // factor * factor, self.left // factor * factor
        bottom = min(-(-(self.top + self.height) // factor) * factor, image[0])
        right = min(-(-(self.left + self.width) // factor) * factor, image[1])
        return View(top, left, bottom - top, right - left, self.mirrored)

    def moved_boxes(self, boxes: np.ndarray, image: tuple[int, int], x_first: bool) -> np.ndarray:
        """Converts the boxes of an image of size (height, width) to boxes of the window, in the same order.

        Boxes are float [n, 4], two corners relative to the image, from 0 to 1, each x, y or else y, x. They are clipped
        at the edges of the window; a box outside of it gets no area.
        """
        corners = boxes.reshape(-1, 2, 2)[..., ::-1] if x_first else boxes.reshape(-1, 2, 2)
        places = corners * np.array(image, boxes.dtype) - (self.top, self.left)
        moved = np.clip(places / (self.height, self.width), 0, 1)
        if self.mirrored:
            moved[..., 1] = 1 - moved[:, ::-1, 1]
        moved = moved[..., ::-1] if x_first else moved
        return moved.reshape(-1, 4).astype(boxes.dtype)


def central_view(image: tuple[int, int], size: tuple[int, int], fraction: float) -> View:
    """The window at the center with the shape of `size`, and with a fraction of the height of the largest such window."""
    scale = fraction * min(image[0] / size[0], image[1] / size[1])
    height = min(max(round(size[0] * scale), 1), image[0])
    width = min(max(round(size[1] * scale), 1), image[1])
    return View((image[0] - height) // 2, (image[1] - width) // 2, height, width)


def random_view(
    image: tuple[int, int],
    scale: tuple[float, float],
    ratio: tuple[float, float],
    draws: Sequence[float],
) -> View:
    """A random window, drawn like that of torchvision's `RandomResizedCrop`.

    `draws` are random numbers from 0 to below 1: `ATTEMPTS` pairs, and two more.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    *pairs, down, across = draws
    for area, shape in zip(pairs[::2], pairs[1::2], strict=True):
        pixels = image[0] * image[1] * (scale[0] + (scale[1] - scale[0]) * area)
        aspect = math.exp(low + (high - low) * shape)
        height, width = round(math.sqrt(pixels / aspect)), round(math.sqrt(pixels * aspect))
        if 0 < height <= image[0] and 0 < width <= image[1]:
            top, left = int(down * (image[0] - height + 1)), int(across * (image[1] - width + 1))
            return View(top, left, height, width)
    height = min(image[0], max(round(image[1] / ratio[0]), 1))
    width = min(image[1], max(round(image[0] * ratio[1]), 1))
    return View((image[0] - height) // 2, (image[1] - width) // 2, height, width)
