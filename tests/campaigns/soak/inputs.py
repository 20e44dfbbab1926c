"""Small inputs of each job, other ones for each seed, and the records that they must become."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.support.images import encoded

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
    if kind == "text":
        return dict(_texts(random, folder))
    found = {}
    for number in range(random.integers(30, 60)):
        if kind == "images":
            name, value = f"a/{number}.png", random.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
            (folder / name).write_bytes(encoded(value, "PNG", compress_level=1))
        else:
            name = f"a/{number}.npy"
            value = random.normal(size=(random.integers(1, 500), 3)).astype(np.float32)
            np.save(folder / name, value)
        found[name] = checksum(value)
    if kind == "images":
        (folder / "a" / "broken.png").write_bytes(random.bytes(100))  # Becomes a reject.
    return found


def _texts(random: np.random.Generator, folder: Path) -> Iterator[tuple[str, int]]:
    for name in ("a/1.txt", "a/2.txt"):
        lines = [bytes(random.integers(97, 123, random.integers(1, 400))) for _ in range(100)]
        (folder / name).write_bytes(b"\n".join(lines))
        for number, line in enumerate(lines, 1):
            yield f"{name}#{number}", checksum(line)
