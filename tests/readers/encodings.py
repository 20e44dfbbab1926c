"""A dataset with a feature of every encoding, whose shapes differ from record to record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from readers.format.schema import Schema
from tests.support.datasets import write_dataset
from tests.support.images import encoded

SCHEMA = Schema(
    {
        "image": ("uint8", (4, 50, 3)),
        "signal": ("float32", (None, 2)),
        "grid": ("int16", (None, 2, None)),
        "raw": ("float64", (None,), "raw"),
        "tags": ("int64", (None,), "list"),
        "words": ("string", (None,), "list"),
        "names": ("string", (2,)),
        "zlib": ("uint8", (40, None), "zlib"),
        "shuffled": ("float64", (None, 2, None), "zlib_shuffled"),
        "story": ("string", (), "zlib"),
        "label": ("int64", ()),
        "flag": ("bool", (), "list"),
        "half": ("bfloat16", (), "list"),
        "wide": ("complex64", ()),
        "text": ("string", ()),
        "photo": ("uint8", (None, None, 3), "png"),
        "icon": ("uint8", (2, 2, 1), "png"),
        "events": ("int32", (None, None, 2), "sequence"),
        "steps": ("float32", (None, 3), "sequence"),
    }
)


def record(rng: np.random.Generator, i: int) -> dict[str, Any]:
    n = i % 4
    return {
        "image": rng.integers(0, 256, (4, 50, 3)).astype(np.uint8),
        "signal": rng.normal(size=(n, 2)).astype(np.float32),
        "grid": rng.integers(1, 9, (n, 2, i % 3)).astype(np.int16),
        "raw": rng.normal(size=n),
        "tags": rng.integers(-9, 999, n),
        "words": [b"w%d" % k for k in range(n)],
        "names": ["a", f"b{i}"],
        "zlib": rng.integers(0, 3, (40, n)).astype(np.uint8),
        "shuffled": rng.normal(size=(n, 2, i % 3)),
        "story": "Größe" * i,
        "label": i - 5,
        "flag": bool(i % 2),
        "half": i / 2,
        "wide": i + 2j,
        "text": f"text {i}",
        "photo": encoded(rng.integers(0, 256, (i % 3 + 1, n + 1, 3)).astype(np.uint8), "PNG"),
        "icon": encoded(rng.integers(0, 256, (2, 2)).astype(np.uint8), "PNG"),
        "events": [rng.integers(1, 9, (k, 2)).astype(np.int32) for k in range(n)],
        "steps": [rng.normal(size=3).astype(np.float32) for _ in range(n)],
    }


def write(directory: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Writes 37 records in three shards, one of which is empty; returns the dataset and them."""
    rng = np.random.default_rng(5)
    records = [record(rng, i) for i in range(37)]
    shards = [records[:30], [], records[30:]]
    return write_dataset(directory, SCHEMA, {"train": shards}), records
