"""Small inputs of each job, whose shards exchange records at the end, and whose rejects are listed."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from tests.support.datasets import write_recordings
from tests.support.images import encoded

_SPLITS = ("--splits", "train=0.7,val=0.3", "--num_shards", "train=3,val=1")

# {} is the folder of the inputs.
COMMANDS = {
    "images": (
        "images",
        "--max_rejects",
        "all",
        "--input",
        "{}/images",
        "--image_size",
        "8x8",
        *_SPLITS,
    ),
    "text": ("text", "--input", "{}/text", "--tokens", "words", *_SPLITS),
    "sensors": ("sensors", "--input", "{}/sensors/*/*.npy", "--max_rejects", "all", *_SPLITS),
    "reshard": ("reshard", "--input", "{}/old/*.tfrecord", *_SPLITS),
}

# The flags of the older dataset that `--overwrite` replaces: some of its shards have other names.
OLDER = ("--seed", "9", "--num_shards", "train=3,val=2")


def write_inputs(base: Path) -> None:
    """Writes the inputs of all jobs but `reshard`, which reads the shards of another job."""
    noise = random.Random(0)
    for label in ("cat", "dog"):
        (base / "images" / label).mkdir(parents=True)
        for number in range(10):
            pixels = np.frombuffer(noise.randbytes(12 * 10 * 3), np.uint8).reshape(12, 10, 3)
            data = b"no image" if number in (2, 3, 4) else encoded(pixels, "PNG")
            (base / "images" / label / f"{number}.png").write_bytes(data)
    (base / "text").mkdir()
    for name in "ab":
        rows = [f'{{"text": "{name} {n % 7} {n % 5} {"w" * (n * n * n % 97)}"}}' for n in range(90)]
        rows[3] = "{"
        (base / "text" / f"{name}.jsonl").write_text("\n".join(rows))
    # Some shards have more than one part of an upload.
    lengths = [1000 + 900 * (n % 9) for n in range(90)]
    write_recordings(base / "sensors", lengths, [1, 4, 5, 9, 16, 17, 21, 25])
