"""What is known of the photographs of a folder, and what a contender must find."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from pictures.kinds import PictureKind

_TOLERANCE = 0.01
_STANDARD_ERRORS = 4


@dataclass(frozen=True)
class Truth:
    """What is known of the photographs of a folder.

    Attributes:
        pictures: Their number.
        bytes: The size of all files.
        mean: The mean of all pixels, from 0 to 255.
        crop_mean: The mean of the means of random crops.
        crop_deviation: The standard deviation of the means of random crops.
    """

    pictures: int
    bytes: int
    mean: float
    crop_mean: float
    crop_deviation: float

    def expected(self, kind: PictureKind, pictures: int) -> tuple[float, float]:
        """Returns the mean pixel of a number of results, and how far a right one may be from it.

        That is 1 %, or four standard errors if so few random crops differ by more.
        """
        if not kind.is_cropped:
            return self.mean, self.mean * _TOLERANCE
        error = self.crop_deviation / math.sqrt(pictures)
        return self.crop_mean, max(self.crop_mean * _TOLERANCE, error * _STANDARD_ERRORS)


def read_truth(folder: Path) -> Truth:
    """Returns what is known of the photographs of a folder."""
    return Truth(**json.loads((folder / "truth.json").read_text()))


def files_of(folder: Path) -> list[str]:
    """Returns the photographs of a folder, sorted."""
    return sorted(str(path) for path in (folder / "files").iterdir())
