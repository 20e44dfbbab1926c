"""Generates small inputs of every kind for trying the jobs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

_IMAGE_MODES = ("RGB", "RGB", "L", "P", "RGBA", "CMYK", "I;16")

_WORDS = {
    "negative": "dull slow broken noisy late cold empty weak sour plain",
    "positive": "bright quick solid quiet prompt warm full strong sweet rich",
}
_NEUTRAL = "the service a room this meal our guide that film it was and felt very"


def make_samples(directory: Path, per_class: int = 60) -> None:
    """Writes `images/`, `text/` and `sensors/` to a directory; the files are always the same.

    Args:
        directory: The directory, which is created if it does not exist.
        per_class: Number of images and recordings of each class.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    make_images(directory / "images", per_class, rng)
    make_texts(directory / "text", 20 * per_class, rng)
    make_recordings(directory / "sensors", per_class, rng)


def make_images(directory: Path, per_class: int, rng: np.random.Generator) -> None:
    """Writes JPEG and PNG images of stripes and rings in many sizes and modes, some rotated by EXIF."""
    for name in ("rings", "stripes"):
        (directory / name).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            mode = _IMAGE_MODES[number % len(_IMAGE_MODES)]
            height, width = rng.integers(80, 320, 2).tolist()
            y, x = np.mgrid[:height, :width] / 20 + rng.random(2)[:, None, None]
            wave = np.hypot(y - 4, x - 4) if name == "rings" else x + 0.5 * y
            gray = (127.5 + 127.5 * np.sin(wave * rng.uniform(1, 3))).astype(np.uint8)
            if mode == "I;16":
                image = Image.fromarray(gray.astype(np.uint16) << 8)
            else:
                tint = rng.uniform(0.4, 1, 3)
                image = Image.fromarray((gray[..., None] * tint).astype(np.uint8)).convert(mode)
            exif = Image.Exif()
            if mode == "RGB" and number % 4 == 1:
                exif[0x0112] = 6  # orientation: rotate by 90 degrees
            suffix = "jpg" if mode in ("RGB", "L", "CMYK") else "png"
            image.save(directory / name / f"{number:04d}.{suffix}", exif=exif)


def make_texts(directory: Path, count: int, rng: np.random.Generator) -> None:
    """Writes a JSONL file of short, labelled opinions."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "opinions.jsonl").open("w") as file:
        for _ in range(count):
            label = str(rng.choice(["negative", "positive"]))
            length = rng.integers(3, 12)
            words = [*rng.choice(_NEUTRAL.split(), length), *rng.choice(_WORDS[label].split(), 2)]
            text = " ".join(map(str, words)).capitalize() + "."
            file.write(json.dumps({"text": text, "label": label}) + "\n")


def make_recordings(directory: Path, per_class: int, rng: np.random.Generator) -> None:
    """Writes `.npy` recordings of three channels, at rest or walking, float32 [50..500, 3]."""
    for name, amplitude in (("rest", 0.05), ("walk", 1.0)):
        (directory / name).mkdir(parents=True, exist_ok=True)
        for number in range(per_class):
            length = int(rng.integers(50, 501))
            steps = np.sin(np.arange(length)[:, None] * 0.3 + np.array([0, 1, 2]))
            noise = rng.normal(0, 0.1, (length, 3))
            np.save(
                directory / name / f"{number:04d}.npy", (amplitude * steps + noise).astype("f4")
            )
