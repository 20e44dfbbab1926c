"""What is known of the photographs of a folder, and what a contender must find."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pictures.kinds import PictureKind

_TOLERANCE = (
    0.015  # FFCV's blue is 1.2 % darker: it encodes pictures anew, and decodes them roughly
)
_STANDARD_ERRORS = 4


@dataclass(frozen=True)
class Truth:
    """What is known of the photographs of a folder.

    Attributes:
        pictures: Their number.
        bytes: The size of all files.
        mean: The mean of red, green and blue of all pixels, from 0 to 255.
        crop_mean: The mean of each color in random crops.
        crop_deviation: The standard deviation of each color's mean among the crops of one picture.
    """

    pictures: int
    bytes: int
    mean: list[float]
    crop_mean: list[float]
    crop_deviation: list[float]

    def expected(self, kind: PictureKind) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean of each color in an epoch, and how far a right one may be from it.

        That is 1.5 %, or four standard errors if so few random crops differ by more.
        """
        if not kind.is_cropped:
            return np.array(self.mean), np.array(self.mean) * _TOLERANCE
        mean = np.array(self.crop_mean)
        error = np.array(self.crop_deviation) / math.sqrt(self.pictures)
        return mean, np.maximum(mean * _TOLERANCE, error * _STANDARD_ERRORS)


def read_truth(folder: Path) -> Truth:
    """Returns what is known of the photographs of a folder."""
    return Truth(**json.loads((folder / "truth.json").read_text()))


def files_of(folder: Path) -> list[str]:
    """Returns the photographs of a folder, sorted."""
    return sorted(str(path) for path in (folder / "files").iterdir())
