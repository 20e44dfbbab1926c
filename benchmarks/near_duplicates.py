"""How long it takes to find near duplicates: pictures, and texts in a job as the job finds them.

Photographs are decoded and hashed on one core. Then texts of
200 characters are made, of which one in twenty is a copy with a changed word, and the text job writes them with
`--drop_near_duplicates 0.8` and without; what it drops is compared with what was planted.

    python benchmarks/near_duplicates.py --texts 1_000_000 --json near.json
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from readers.format.display import format_table
from readers.format.manifest import Manifest
from readers.format.similarity.pictures import hash_and_luma

_SEED = 0

# One text in 20 is a copy with a changed word.
_COPIES = 20

_WORDS = 20_000


def photograph(side: tuple[int, int], seed: int) -> bytes:
    """A JPEG of noise whose waves weaken with their frequency, as those of photographs do."""
    rng = np.random.default_rng(seed)
    height, width = side
    waves = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.rfftfreq(width) * width)
    waves[0, 0] = 1
    noise = rng.normal(size=(3, *waves.shape, 2)) @ [1, 1j]
    picture = np.fft.irfft2(noise / waves**1.6, side).transpose(1, 2, 0)
    pixels = np.clip(128 + 50 * (picture - picture.mean()) / picture.std(), 0, 255)
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def rate_of(work: Callable[[], object], seconds: float) -> float:
    """How often a second one core does something; as processor time, since others may use the machine."""
    work()
    began, done = time.process_time(), 0
    while time.process_time() - began < seconds:
        work()
        done += 1
    return done / (time.process_time() - began)


def pictures(seconds: float) -> list[list[str]]:
    """Rows of pictures hashed a second on one core, of pixels and of JPEGs."""
    rows = []
    for side in ((375, 500), (28, 28)):
        data = photograph(side, _SEED)
        pixels = np.asarray(Image.open(io.BytesIO(data)))

        def sketch(pixels: np.ndarray = pixels) -> None:
            hash_and_luma(pixels)

        def decode_and_sketch(data: bytes = data, sketch: Callable[..., None] = sketch) -> None:
            sketch(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))

        for name, work in (("pixels", sketch), ("JPEG", decode_and_sketch)):
            rows.append([f"{side[1]}x{side[0]}, {name}", f"{rate_of(work, seconds):,.0f}"])
    return rows


def write_texts(path: Path, count: int) -> int:
    """Writes texts of about 200 characters; returns how many are copies of others."""
    rng = np.random.default_rng(_SEED)
    letters = np.array([*"abcdefghijklmnopqrstuvwxyz"])
    words = ["".join(rng.choice(letters, size)) for size in rng.integers(3, 9, _WORDS)]
    copies = 0
    with path.open("w", encoding="utf-8") as file:
        for start in range(0, count, _COPIES):
            numbers = rng.integers(0, _WORDS, (min(_COPIES, count - start), 30)).tolist()
            if len(numbers) == _COPIES:
                numbers[-1] = [*numbers[0]]
                numbers[-1][15] = (numbers[-1][15] + 1) % _WORDS
                copies += 1
            for row in numbers:
                file.write(json.dumps({"text": " ".join(words[n] for n in row)}) + "\n")
    return copies


def job(folder: Path, name: str, *flags: str) -> tuple[Manifest, float]:
    """The manifest of a text job, and its seconds."""
    out = folder / name
    command = [sys.executable, "-m", "beam_jobs", "text", "--input", str(folder / "texts.jsonl")]
    began = time.perf_counter()
    done = subprocess.run([*command, "--output", str(out), *flags], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return Manifest.read(out), seconds


def texts(count: int) -> list[list[str]]:
    """Rows of a job without and with near duplicates dropped."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        planted = write_texts(folder / "texts.jsonl", count)
        for name, flags in (("keep", ()), ("drop", ("--drop_near_duplicates", "0.8"))):
            manifest, seconds = job(folder, name, *flags)
            dropped = f"{manifest.duplicates:,} of {planted:,}"
            rows.append([name, f"{count:,}", f"{seconds:.0f}", dropped])
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--texts", type=int, default=1_000_000, help="how many texts")
    parser.add_argument("--seconds", type=float, default=5, help="for each rate")
    parser.add_argument("--quick", action="store_true", help="few of all, to see that it runs")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    flags = parser.parse_args()
    if flags.quick:
        flags.texts, flags.seconds = 2000, 0.2
    tables = {
        "pictures": [["pictures, one core", "a second"], *pictures(flags.seconds)],
        "texts": [
            ["near duplicates", "texts", "seconds", "dropped"],
            *texts(flags.texts),
        ],
    }
    for table in tables.values():
        print(format_table(table), end="\n\n")
    if flags.json:
        flags.json.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
