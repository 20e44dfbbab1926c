"""The photographs that all contenders read: made once, always the same files.

    DIR/files/0000013.jpg   500x375, quality 90, about 50 KB
    DIR/truth.json          what is known of them: `truth.Truth`

They are crops of two real photographs, which scikit-learn ships, enlarged or reduced by at most a
seventh: pixels that were drawn by a program would be decoded at another speed.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from measure import BenchmarkError
from pictures.crops import draw_crop
from pictures.kinds import HEIGHT, WIDTH
from pictures.truth import Truth, read_truth
from PIL import Image

_SEED = 20_261_101
QUALITY = 90
_NAMES = ("china.jpg", "flower.jpg")
_CROPS = 32  # of each picture, to know the mean of all crops


def originals() -> list[Image.Image]:
    """Returns the photographs that the others are made from.

    Raises:
        BenchmarkError: scikit-learn is not installed.
    """
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise BenchmarkError("the pictures are made from scikit-learn's: pip install scikit-learn")
    images = Path(found.submodule_search_locations[0], "datasets", "images")
    return [Image.open(images / name).convert("RGB") for name in _NAMES]


def draw_photograph(number: int, originals: Sequence[Image.Image]) -> Image.Image:
    """Returns the photograph with a number: a part of an original, mirrored half of the time."""
    rng = np.random.default_rng((_SEED, number))
    return _draw(originals[number % len(originals)], rng)


def _draw(original: Image.Image, rng: np.random.Generator) -> Image.Image:
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
    """Returns what is known of the photographs of a folder, which is created if it does not exist.

    Raises:
        BenchmarkError: scikit-learn is not installed.
    """
    if folder.exists():
        return read_truth(folder)
    found = originals()
    print(f"making {count:,} photographs in {folder}", flush=True)
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "files").mkdir(parents=True)
    size = 0
    means, crops = [], []
    for number in range(count):
        rng = np.random.default_rng((_SEED, number))
        path = unfinished / "files" / f"{number:07d}.jpg"
        _draw(found[number % len(found)], rng).save(path, quality=QUALITY)
        size += path.stat().st_size
        with Image.open(path) as image:
            pixels = np.asarray(image)
        means.append(pixels.mean(axis=(0, 1)))
        crops.append(list(_crop_means(pixels, rng)))
    truth = Truth(
        count,
        size,
        mean=np.mean(means, axis=0).tolist(),
        crop_mean=np.mean(crops, axis=(0, 1)).tolist(),
        crop_deviation=np.sqrt(np.var(crops, axis=1).mean(axis=0)).tolist(),
    )
    (unfinished / "truth.json").write_text(json.dumps(asdict(truth)) + "\n")
    unfinished.rename(folder)
    return truth
