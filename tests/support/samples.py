"""The datasets that the README and docstrings read, made in half a second."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

import beam_jobs
import readers
from examples.samples import make_samples


def write_samples(root: Path) -> Path:
    """Writes `inputs/` and `shards/` to a directory, and returns it.

    In `shards/images` images are arrays, in `shards/photos` they are encoded.
    """
    make_samples(root / "inputs")
    pictures = [*sorted((root / "inputs/images").glob("*/*"))]
    rows, photos = [], []
    for path in pictures:
        label = ["rings", "stripes"].index(path.parent.name)
        image = Image.open(path).convert("RGB").resize((64, 64))
        rows.append({"image": np.asarray(image), "label": label})
        encoded = io.BytesIO()
        image.save(encoded, "jpeg")
        photos.append({"image": encoded.getvalue(), "label": label})
    features = {"image": ("uint8", [64, 64, 3]), "label": "int64"}
    rows = {"train": [row for n, row in enumerate(rows) if n % 5], "val": rows[::5]}
    beam_jobs.write(
        rows, root / "shards/images", readers.Schema(features), label_names=["rings", "stripes"]
    )
    shutil.copytree(root / "shards/images", root / "shards/more_images")
    photo = ("uint8", [None, None, 3], "source")
    beam_jobs.write(photos, root / "shards/photos", readers.Schema({**features, "image": photo}))
    recordings = [
        {"signal": np.load(path), "label": 0}
        for path in sorted((root / "inputs/sensors").glob("*/*"))
    ]
    schema = readers.Schema({"signal": ("float32", [None, 3]), "label": "int64"})
    beam_jobs.write(recordings, root / "shards/sensors", schema)
    texts = [{"tokens": np.arange(4 + n % 11, dtype=np.int32)} for n in range(1200)]
    beam_jobs.write(texts, root / "shards/text", readers.Schema({"tokens": ("int32", [None])}))
    return root
