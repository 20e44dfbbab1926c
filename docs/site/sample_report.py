"""Makes the sample report of the site: 1,797 scanned digits, and two files that are not as they should be."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def make(page: Path) -> None:
    """Writes the digits as PNG files, a dataset of them, and the report of the dataset to `page`."""
    digits = load_digits()
    with tempfile.TemporaryDirectory() as folder:
        for number, (pixels, target) in enumerate(zip(digits.images, digits.target, strict=True)):
            file = Path(folder, "digits", NAMES[target], f"{number:04}.png")
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15).astype("uint8")).resize((64, 64)).save(file)
        whole = file.read_bytes()
        file.with_name("cut.png").write_bytes(whole[: len(whole) // 2])
        Image.new("L", (64, 64)).save(file.with_name("black.png"))
        flags = ["--image_size=64x64", "--channels=1", "--splits=train=0.8,val=0.2"]
        _run(folder, "images", "--input=digits", "--output=shards", *flags, "--max_rejects=1")
        _run(folder, "report", "shards", f"--output={page}")


def _run(folder: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "beam_shards", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"beam-shards {' '.join(arguments)} failed: {done.stderr}")


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
