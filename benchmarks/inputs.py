"""The inputs of the benchmarks: made once, always the same files, in a folder for each size.

    DIR/sensors/20000/class-3/0000013.npy   float32 [50..500, 6]
    DIR/images/1000/class-3/0000013.jpg     640x480, 60 to 120 KB, unless another size is asked for
    DIR/text/50000/part-0001.jsonl          {"text": 200 characters, "label": 0..9}

The contents of a file depend only on its number, so that smaller inputs are subsets of larger ones.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("sensors", "images", "text")
CLASSES = 10

_SEED = 20_260_101
IMAGE_SIZE = 640, 480
_TEXT_LENGTH = 200
_TEXTS_PER_FILE = 25_000
_TEXT_WORDS = 60  # at least 200 characters, whichever words are drawn


def _random(*key: int) -> np.random.Generator:
    return np.random.default_rng((_SEED, *key))


def write_recording(path: Path, number: int) -> None:
    """Writes a random walk of six channels."""
    rng = _random(0, number)
    steps = rng.standard_normal((rng.integers(50, 501), 6), dtype=np.float32)
    np.save(path, np.cumsum(steps, axis=0, dtype=np.float32))


def write_image(path: Path, number: int, size: tuple[int, int] = IMAGE_SIZE) -> None:
    """Writes a JPEG with the spectrum of a photograph: large shapes, fainter small ones, and grain.

    Pure noise would decode slower than photographs, and flat colours faster.
    """
    rng = _random(1, number)
    width, height = size
    pixels = np.full((height, width, 3), 128, np.float32)
    for cells, contrast in ((4, 60), (16, 30), (64, 15), (240, 8)):
        grid = rng.integers(0, 256, (cells * 3 // 4, cells, 3), dtype=np.uint8)
        enlarged = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC)
        pixels += (np.asarray(enlarged, np.float32) - 127.5) * (contrast / 64)
    pixels += rng.standard_normal(pixels.shape, dtype=np.float32) * 5
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    image.save(path, "JPEG", quality=90)


def _vocabulary() -> list[str]:
    rng = _random(2)
    letters = np.array(list("etaoinshrdlucmfwypvbgkqjxz"))
    return ["".join(rng.choice(letters, length)) for length in rng.integers(3, 10, 2000)]


def write_texts(path: Path, number: int, count: int, vocabulary: list[str]) -> None:
    """Writes the first `count` lines of the file with this number."""
    rng = _random(3, number)
    labels = rng.integers(0, CLASSES, _TEXTS_PER_FILE)
    words = rng.integers(0, len(vocabulary), (_TEXTS_PER_FILE, _TEXT_WORDS))
    with path.open("w") as file:
        for label, row in zip(labels[:count].tolist(), words[:count].tolist(), strict=True):
            text = " ".join([vocabulary[word] for word in row])[: _TEXT_LENGTH - 1] + "."
            file.write(json.dumps({"text": text, "label": label}) + "\n")


def _make_files(
    folder: Path,
    size: int,
    suffix: str,
    write: Callable[[Path, int], None],
    different: int,
) -> None:
    for label in range(CLASSES):
        (folder / f"class-{label}").mkdir()
    for number in range(size):
        name = f"class-{number % CLASSES}/{number:07d}{suffix}"
        if number >= different:
            first = number % different
            os.link(folder / f"class-{first % CLASSES}/{first:07d}{suffix}", folder / name)
        else:
            write(folder / name, number)


def _make_texts(folder: Path, size: int) -> None:
    vocabulary = _vocabulary()
    for number, first in enumerate(range(0, size, _TEXTS_PER_FILE)):
        path = folder / f"part-{number:04d}.jsonl"
        write_texts(path, number, min(_TEXTS_PER_FILE, size - first), vocabulary)


def make_inputs(
    data: Path,
    kind: str,
    size: int,
    different: int | None = None,
    image_size: tuple[int, int] = IMAGE_SIZE,
) -> Path:
    """Returns the folder with `size` records of a kind, which is created if it does not exist.

    Args:
        data: The folder of inputs.
        kind: One of `KINDS`.
        size: The number of records.
        different: The number of different files; the others are further names of these (default: all).
        image_size: The width and height of images in pixels.
    """
    folder = data / kind / str(size)
    if folder.exists():
        return folder
    print(f"making {size:,} {kind} in {folder}", flush=True)
    unfinished = folder.with_name(f".{size}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    different = different or size
    if kind == "sensors":
        _make_files(unfinished, size, ".npy", write_recording, different)
    elif kind == "images":
        write = partial(write_image, size=image_size)
        _make_files(unfinished, size, ".jpg", write, different)
    else:
        _make_texts(unfinished, size)
    return unfinished.rename(folder)


def read_all(folder: Path) -> None:
    """Reads all files of a folder, so that they are in the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()
