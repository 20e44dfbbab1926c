"""Pictures with planted faults: parts of photographs that scikit-image and scikit-learn ship.

    FOLDER/files/0000013.jpg    192 x 144, quality 90
    FOLDER/records.parquet      id, path, label, split

A picture is a part of one photograph with a part of another in it, as in cut-and-paste augmentation, so that
there are as many different ones as are needed. Its class follows from its brightness: that is a fault.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image, ImageFilter
from planted.truth import Truth

_WIDTH, _HEIGHT = 192, 144
_PHOTOGRAPHS = {
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
    # Only in full runs: the tests do not install it.
    "skimage": tuple(
        f"data/{name}"
        for name in (
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "ihc.png",
            "motorcycle_left.png",
            "rocket.jpg",
        )
    ),
}
_QUALITY = 90

# The classes from the darkest; the last one is rare, and not in the second split.
_SHARES = {"a": 0.3, "b": 0.25, "c": 0.2, "d": 0.15, "e": 0.095, "f": 0.005}
_RARE = "f"


def _originals() -> list[Image.Image]:
    found = []
    for package, names in _PHOTOGRAPHS.items():
        spec = importlib.util.find_spec(package)
        if spec and spec.submodule_search_locations:
            folder = Path(spec.submodule_search_locations[0])
            found += [Image.open(folder / name).convert("RGB") for name in names]
    return found


def _part(photo: Image.Image, rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A part of a photograph at its own scale or a little smaller, mirrored half of the time."""
    scale = rng.uniform(1.0, min(1.5, photo.width / width, photo.height / height))
    wide, high = width * scale, height * scale
    left, top = rng.uniform(0, photo.width - wide), rng.uniform(0, photo.height - high)
    box = (left, top, left + wide, top + high)
    part = photo.resize((width, height), Image.Resampling.LANCZOS, box)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else part


def _draw(
    photos: list[Image.Image], rng: np.random.Generator, width: int = _WIDTH, height: int = _HEIGHT
) -> Image.Image:
    one, other = rng.choice(len(photos), 2, replace=False)
    picture = _part(photos[one], rng, width, height)
    inner = int(width * rng.uniform(0.4, 0.65)), int(height * rng.uniform(0.4, 0.65))
    place = int(rng.integers(width - inner[0] + 1)), int(rng.integers(height - inner[1] + 1))
    picture.paste(_part(photos[other], rng, *inner), place)
    return Image.fromarray(_scaled(picture, float(rng.uniform(0.6, 1.05))))


def _scaled(picture: Image.Image, factor: float, base: int = 0) -> np.ndarray:
    """The pixels with their distance from a level multiplied."""
    return (base + (np.asarray(picture, np.float32) - base) * factor).clip(0, 255).astype(np.uint8)


def _flat(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """One colour, with a line of another: a placeholder."""
    pixels = np.full((_HEIGHT, _WIDTH, 3), rng.integers(60, 190, 3), np.uint8)
    row = int(rng.integers(10, _HEIGHT - 10))
    pixels[row : row + 2, 20:-20] = rng.integers(60, 190, 3)
    return Image.fromarray(pixels)


def _spoilers(
    photos: list[Image.Image], rng: np.random.Generator
) -> dict[str, Callable[[Image.Image], Image.Image]]:
    """Kind of fault -> how a picture gets it."""
    return {
        "dark": lambda p: Image.fromarray(_scaled(p, 0.08)),
        "light": lambda p: Image.fromarray(_scaled(p, 0.04, 255)),
        "blurry": lambda p: p.filter(ImageFilter.GaussianBlur(3)),
        "low information": lambda p: _flat(p, rng),
        # Half of them have one channel in the file.
        "gray": lambda p: p.convert("L").convert("RGB" if rng.random() < 0.5 else "L"),
        "odd aspect": lambda p: _draw(photos, rng, 420, 60),
        "tiny": lambda p: p.resize((6, 5), Image.Resampling.LANCZOS),
        "huge": lambda p: p.resize((_WIDTH * 9, _HEIGHT * 9), Image.Resampling.BICUBIC),
    }


def _compressed(picture: Image.Image) -> Image.Image:
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=30)
    return Image.open(file).convert("RGB")


def _near_copies() -> list[Callable[[Image.Image], Image.Image]]:
    half = _WIDTH // 2, _HEIGHT // 2
    return [
        lambda p: p.resize(half, Image.Resampling.BICUBIC),
        _compressed,
        lambda p: Image.fromarray(_scaled(p, 1.06)),
    ]


class _Writer:
    """Writes pictures, and remembers what they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.rows: list[dict[str, str]] = []

    def add(self, picture: Image.Image | bytes, label: str, split: str) -> str:
        name = f"{len(self.rows):07d}"
        path = self._folder / "files" / f"{name}.jpg"
        if isinstance(picture, bytes):
            path.write_bytes(picture)
        else:
            picture.save(path, quality=_QUALITY)
        self.rows.append({"id": name, "path": f"files/{name}.jpg", "label": label, "split": split})
        return name

    def data(self, name: str) -> bytes:
        return (self._folder / "files" / f"{name}.jpg").read_bytes()


def make_pictures(folder: Path, count: int) -> Truth:
    """Writes some `count` pictures, of which a tenth have faults, and returns the truth."""
    rng = np.random.default_rng(20_261_125)
    (folder / "files").mkdir(parents=True)
    photos, writer, few = _originals(), _Writer(folder), max(3, count // 160)
    clean = [_draw(photos, rng) for _ in range(count - 14 * few)]
    labels = _labels(clean)
    splits = ["train" if rng.random() < 0.8 or c == _RARE else "val" for c in labels]
    names = [writer.add(*each) for each in zip(clean, labels, splits, strict=True)]
    truth = Truth(0)
    free = iter(number for number in rng.permutation(len(clean)) if labels[number] != _RARE)
    _plant_copies(truth, writer, names, free, few)
    for kind, spoil in _spoilers(photos, rng).items():
        for _ in range(few):
            row = writer.rows[next(free)]
            spoiled = spoil(_draw(photos, rng))
            truth.plant(kind, writer.add(spoiled, row["label"], row["split"]))
    truth.plant("missing class", f"val, {_RARE}")
    truth.plant("imbalance", "label")
    truth.plant("labels follow from brightness", "brightness")
    truth.records = len(writer.rows)
    truth.splits = {row["id"]: row["split"] for row in writer.rows}
    pa.parquet.write_table(pa.Table.from_pylist(writer.rows), folder / "records.parquet")
    return truth


def _labels(pictures: list[Image.Image]) -> list[str]:
    """The class of each picture, by the rank of its brightness."""
    means = [float(np.asarray(picture.convert("L")).mean()) for picture in pictures]
    ranks = np.argsort(np.argsort(means)) / len(means)
    ends = np.cumsum(list(_SHARES.values()))
    return [list(_SHARES)[min(int(np.searchsorted(ends, rank)), 5)] for rank in ranks]


def _plant_copies(
    truth: Truth, writer: _Writer, names: list[str], free: Iterator[int], few: int
) -> None:
    """Adds copies of pictures: equal and similar ones, in their split, in another, and with another label."""
    other = {"train": "val", "val": "train"}
    near = _near_copies()
    for number in range(few):
        row = writer.rows[next(free)]
        again = writer.add(writer.data(row["id"]), row["label"], row["split"])
        truth.plant("exact duplicates", row["id"], again)
        row = writer.rows[next(free)]
        leak = writer.add(writer.data(row["id"]), row["label"], other[row["split"]])
        truth.plant("leaks", row["id"], leak)
        row = writer.rows[next(free)]
        label = "a" if row["label"] != "a" else "b"
        truth.plant(
            "contradictions", row["id"], writer.add(writer.data(row["id"]), label, row["split"])
        )
        for kind in ("near duplicates", "near leaks"):
            row = writer.rows[next(free)]
            with Image.open(io.BytesIO(writer.data(row["id"]))) as picture:
                copy = near[number % len(near)](picture.convert("RGB"))
            split = row["split"] if kind == "near duplicates" else other[row["split"]]
            truth.plant(kind, row["id"], writer.add(copy, row["label"], split))
