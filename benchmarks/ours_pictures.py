"""This project: shards of the photographs' own bytes, read by `load`, `as_numpy` and `RecordSource`."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pictures import AREA, ASPECT, BATCH, CROP, HEIGHT, NUM_SHARDS, WIDTH
from reading import Reader, Task

import readers
from readers import decoders, transforms

# All photographs have one size, which the schema states so that batches are dense.
_SCHEMA = readers.Schema({"image": readers.Feature("uint8", (HEIGHT, WIDTH, 3), "source")})


def write(folder: Path, store: Path) -> None:
    """Writes shards with the images job, as users do."""
    command = [sys.executable, "-m", "beam_jobs", "images", "--label", "none"]
    command += ["--input", str(folder / "files" / "*.jpg"), "--output", str(store)]
    command += ["--encoding", "source", "--num_shards", str(NUM_SHARDS)]
    if code := subprocess.run(command).returncode:
        sys.exit(code)


def _prepare(mode: str) -> None:
    if mode.startswith("load"):
        importlib.import_module("readers.tfdata.dataset")  # imports TensorFlow


def _options(task: Task) -> dict[str, Any]:
    is_float = task.kind.is_cropped and task.dtype == "float32"
    return {
        "schema": _SCHEMA,
        "batch_size": BATCH,
        "shuffle": True,
        "repeat": task.epochs,
        "decoders": _decoders(task),
        "transform": _to_float if is_float else None,
    }


def _decoders(task: Task) -> dict[str, decoders.Decoder]:
    if not task.kind.is_cropped:
        return {}
    return {"image": decoders.RandomResizedCrop(CROP, AREA, ASPECT, flip=True)}


def _to_float(batch: dict[str, Any], keys: Any) -> dict[str, Any]:
    return {"image": transforms.to_float(batch["image"])}


def _load(task: Task) -> Any:
    return readers.load(task.store, **_options(task))


def _as_numpy(task: Task) -> Any:
    return readers.as_numpy(task.store, **_options(task))


def _from_source(task: Task) -> Iterator[np.ndarray]:
    """Yields batches like PyTorch's DataLoader: fetches the records of a list of indices, stacks them."""
    source = readers.RecordSource(task.store, schema=_SCHEMA, decoders=_decoders(task))
    rng = np.random.default_rng(0)
    for epoch in itertools.count() if task.epochs is None else range(task.epochs):
        source.set_epoch(epoch)
        order = rng.permutation(len(source))
        for first in range(0, len(order), BATCH):
            records = source.__getitems__(order[first : first + BATCH].tolist())
            batch = np.stack([record["image"] for record in records])
            yield transforms.to_float(batch) if task.dtype == "float32" else batch


READER = Reader(
    modes={
        "load": _load,
        "as_numpy": _as_numpy,
        "RecordSource": _from_source,
    },
    write=write,
    prepare=_prepare,
)
