"""Small inputs of each job, other ones for each seed, and the records that they must become."""

from __future__ import annotations

import io
import shutil
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = ("images", "text", "sensors")

_SIDE = 24


def checksum(value: bytes | np.ndarray) -> int:
    """A number that stands for a text or an array."""
    return zlib.crc32(value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes())


def write_inputs(kind: str, seed: int, folder: Path) -> dict[str, int]:
    """Writes the inputs of a job to a new folder; returns the checksum of each record by its key."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "a").mkdir(parents=True)
    random = np.random.default_rng(seed)
    return {"images": _images, "text": _texts, "sensors": _sensors}[kind](random, folder)


def _images(random: np.random.Generator, folder: Path) -> dict[str, int]:
    found = {}
    for number in range(random.integers(30, 60)):
        pixels = random.integers(0, 256, (_SIDE, _SIDE, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        (folder / "a" / f"{number}.png").write_bytes(file.getvalue())
        found[f"a/{number}.png"] = checksum(pixels)
    (folder / "a" / "broken.png").write_bytes(random.bytes(100))  # Becomes a reject.
    return found


def _texts(random: np.random.Generator, folder: Path) -> dict[str, int]:
    found = {}
    for name in ("a/1.txt", "a/2.txt"):
        lines = [bytes(random.integers(97, 123, random.integers(1, 400))) for _ in range(100)]
        (folder / name).write_bytes(b"\n".join(lines))
        found |= {f"{name}#{n}": checksum(line) for n, line in enumerate(lines, 1)}
    return found


def _sensors(random: np.random.Generator, folder: Path) -> dict[str, int]:
    found = {}
    for number in range(random.integers(30, 60)):
        signal = random.normal(size=(random.integers(1, 500), 3)).astype(np.float32)
        np.save(folder / "a" / f"{number}.npy", signal)
        found[f"a/{number}.npy"] = checksum(signal)
    return found
