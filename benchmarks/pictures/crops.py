"""Where a random resized crop lies, for contenders whose library leaves that to its users."""

from __future__ import annotations

import math

import numpy as np
from pictures.kinds import AREA, ASPECT

_ATTEMPTS = 10


def draw_crop(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """Returns (top, left, height, width) of a crop, drawn as `RandomResizedCrop` of torchvision does.

    Args:
        rng: The source of random numbers.
        height, width: The size of the picture in pixels.
    """
    for _ in range(_ATTEMPTS):
        area = height * width * rng.uniform(*AREA)
        aspect = math.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1])))
        wide, high = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < high <= height:
            top = int(rng.integers(0, height - high + 1))
            return top, int(rng.integers(0, width - wide + 1)), high, wide
    # The largest crop at the center whose shape is allowed.
    wide = min(width, round(height * ASPECT[1]))
    high = min(height, round(width / ASPECT[0]))
    return (height - high) // 2, (width - wide) // 2, high, wide
