"""The photographs that `read_shards.py` reads, made once and always the same files, and the work on each.

    DIR/files/0000013.jpg   500x375, quality 90, about 50 KB
    DIR/truth.json          facts about them: `Truth`

They are crops of two real photographs, which scikit-learn ships, enlarged or reduced by at most a
seventh: synthetic pixels would be decoded at another speed.

    jpeg         the whole picture, decoded: uint8 [375, 500, 3]
    jpeg_train   a random resized crop of 224x224, mirrored half of the time: uint8, or float32 from 0 to 1

Each library returns its own layout, [height, width, 3] or [3, height, width], and resizes with its own
bilinear filter.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import BenchmarkError

if TYPE_CHECKING:
    from PIL import Image  # which not all rivals have

BATCH = 64
PICTURES = 3008  # 47 batches, 160 MB
NUM_SHARDS = 16
SHUFFLE_BUFFER = 1024  # pictures, in readers that shuffle a stream

HEIGHT, WIDTH = 375, 500
CROP = 224
# The range of a crop's area, as a part of the picture's, and of its width divided by its height.
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)

QUALITY = 90

_SEED = 20_261_101
_NAMES = ("china.jpg", "flower.jpg")
_CROPS = 32  # of each picture, to know the mean of all crops
_ATTEMPTS = 10

# FFCV's blue is 1.2 % darker: it encodes pictures again, and decodes them less exactly.
_TOLERANCE = 0.015
_STANDARD_ERRORS = 4


@dataclass(frozen=True)
class PictureKind:
    """The work that is done with each picture.

    Attributes:
        name: The dataset's name.
        dtypes: The dtypes in which it is measured.
        height, width: The size of the result in pixels.
    """

    name: str
    dtypes: tuple[str, ...]
    height: int
    width: int

    @property
    def batch(self) -> int:
        """Pictures in a batch."""
        return BATCH

    @property
    def records(self) -> int:
        """Pictures in the dataset."""
        return PICTURES

    @property
    def is_cropped(self) -> bool:
        """Whether a random part of each picture is used."""
        return (self.height, self.width) == (CROP, CROP)

    @property
    def shapes(self) -> tuple[tuple[int, int, int], ...]:
        """The shapes that a result may have."""
        return (self.height, self.width, 3), (3, self.height, self.width)


KINDS = {
    kind.name: kind
    for kind in (
        PictureKind("jpeg", ("uint8",), HEIGHT, WIDTH),
        PictureKind("jpeg_train", ("uint8", "float32"), CROP, CROP),
    )
}


@dataclass(frozen=True)
class Truth:
    """Facts about the photographs of a folder.

    Attributes:
        pictures: Their number.
        mean: The mean of red, green and blue of all pixels, from 0 to 255.
        crop_mean: The mean of each color in random crops.
        crop_deviation: The standard deviation of each color's mean among the crops of one picture.
    """

    pictures: int
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
    """Returns the facts about the photographs of a folder."""
    return Truth(**json.loads((folder / "truth.json").read_text()))


def files_of(folder: Path) -> list[str]:
    """Returns the photographs of a folder, sorted."""
    return sorted(str(path) for path in (folder / "files").iterdir())


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


def originals() -> list[Image.Image]:
    """Returns the photographs that the others are made from.

    Raises:
        BenchmarkError: scikit-learn is not installed.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise BenchmarkError("the pictures are made from scikit-learn's: pip install scikit-learn")
    from PIL import Image

    images = Path(found.submodule_search_locations[0], "datasets", "images")
    return [Image.open(images / name).convert("RGB") for name in _NAMES]


def draw_photograph(number: int, originals: Sequence[Image.Image]) -> Image.Image:
    """Returns the photograph with a number: a part of an original, mirrored half of the time."""
    from PIL import Image

    rng, original = np.random.default_rng((_SEED, number)), originals[number % len(originals)]
    scale = rng.uniform(0.875, min(original.width / WIDTH, original.height / HEIGHT))
    width, height = WIDTH * scale, HEIGHT * scale
    left, top = rng.uniform(0, original.width - width), rng.uniform(0, original.height - height)
    picture = original.resize(
        (WIDTH, HEIGHT), Image.Resampling.LANCZOS, (left, top, left + width, top + height)
    )
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else picture


def _crop_means(pixels: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yields the mean color [3] of random crops of a picture [height, width, 3]."""
    sums = np.zeros((HEIGHT + 1, WIDTH + 1, 3))
    sums[1:, 1:] = pixels.cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
    for _ in range(_CROPS):
        top, left, height, width = draw_crop(rng, HEIGHT, WIDTH)
        bottom, right = top + height, left + width
        total = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
        yield total / (height * width)


def make_photographs(folder: Path, count: int) -> Truth:
    """Returns the facts about the photographs of a folder, which is created if it does not exist.

    Raises:
        BenchmarkError: scikit-learn is not installed.
    """
    if folder.exists():
        return read_truth(folder)
    from PIL import Image

    found = originals()
    print(f"making {count:,} photographs in {folder}", flush=True)
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "files").mkdir(parents=True)
    means, crops = [], []
    rng = np.random.default_rng(_SEED)
    for number in range(count):
        path = unfinished / "files" / f"{number:07d}.jpg"
        draw_photograph(number, found).save(path, quality=QUALITY)
        with Image.open(path) as image:
            pixels = np.asarray(image)
        means.append(pixels.mean(axis=(0, 1)))
        crops.append(list(_crop_means(pixels, rng)))
    truth = Truth(
        count,
        mean=np.mean(means, axis=0).tolist(),
        crop_mean=np.mean(crops, axis=(0, 1)).tolist(),
        crop_deviation=np.sqrt(np.var(crops, axis=1).mean(axis=0)).tolist(),
    )
    (unfinished / "truth.json").write_text(json.dumps(asdict(truth)) + "\n")
    unfinished.rename(folder)
    return truth


def check(kind: PictureKind, dtype: str, folder: Path, batches: Iterable[Any]) -> None:
    """Checks that an epoch has the right number, shape, dtype and mean of pictures.

    Raises:
        BenchmarkError: It does not.
    """
    count, total = 0, np.zeros(3)
    for batch in batches:
        images = np.asarray(batch)
        if not 0 < len(images) <= BATCH:
            raise BenchmarkError(f"a batch of {len(images)} pictures, expected at most {BATCH}")
        if images.dtype != dtype or images.shape[1:] not in kind.shapes:
            raise BenchmarkError(
                f"pictures of {images.dtype} {images.shape[1:]}, expected {dtype} {kind.shapes[0]}"
            )
        count += len(images)
        colors = 3 if images.shape[3] == 3 else 1
        others = tuple(axis for axis in (1, 2, 3) if axis != colors)
        total += images.mean(axis=others, dtype=np.float64).sum(axis=0)
    truth = read_truth(folder)
    if count != truth.pictures:
        raise BenchmarkError(f"an epoch of {count} pictures, expected {truth.pictures}")
    mean = total / count * (255 if dtype == "float32" else 1)
    expected, tolerance = truth.expected(kind)
    if (abs(mean - expected) > tolerance).any():
        raise BenchmarkError(
            f"a mean color of {mean.round(2).tolist()}, expected {expected.round(2).tolist()} "
            f"+- {tolerance.round(2).tolist()}"
        )
