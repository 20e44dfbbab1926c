"""This project: shards of the photographs' own bytes, read by `load`, `as_numpy` and `RecordSource`.

The readers have no random resized crop, so that a function of the user's makes it: from the decoded
pictures of a batch, with numbers that `readers.transforms` draws from the keys of their records.
"""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pictures.contender import Contender, Task
from pictures.crops import draw_crop
from pictures.kinds import AREA, ASPECT, BATCH, CROP, HEIGHT, NUM_SHARDS, WIDTH
from PIL import Image

import readers
from readers import transforms

# All photographs are of one size, which the schema states so that batches are dense.
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


def _options(task: Task, order: str, transform: Any) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        "batch_size": BATCH,
        "shuffle": True,
        "repeat": task.epochs,
        "order": order,
        "transform": transform if task.kind.is_cropped else None,
    }


def _load(order: str, task: Task) -> Any:
    transform = partial(_cropped_tensors, task.dtype)
    return readers.load(task.store, **_options(task, order, transform))


def _as_numpy(task: Task) -> Any:
    transform = partial(_cropped_arrays, task.dtype)
    return readers.as_numpy(task.store, **_options(task, "global", transform))


def _from_source(task: Task) -> Iterator[np.ndarray]:
    """Yields batches like PyTorch's DataLoader: fetches the records of a list of indices, stacks them."""
    source = readers.RecordSource(task.store, schema=_SCHEMA)
    rng = np.random.default_rng(0)
    for _ in itertools.count() if task.epochs is None else range(task.epochs):
        order = rng.permutation(len(source))
        for first in range(0, len(order), BATCH):
            records = source.__getitems__(order[first : first + BATCH].tolist())
            images = [record["image"] for record in records]
            if task.kind.is_cropped:
                images = [_cropped(image, rng) for image in images]
            batch = np.stack(images)
            yield transforms.to_float(batch) if task.dtype == "float32" else batch


def _cropped(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    top, left, height, width = draw_crop(rng, HEIGHT, WIDTH)
    cropped = _resized(image, (top, left, top + height, left + width))
    return cropped[:, ::-1] if rng.random() < 0.5 else cropped


def _resized(image: np.ndarray, box: Any) -> np.ndarray:
    """Returns a window of an image, given as (top, left, bottom, right), in the size of crops."""
    top, left, bottom, right = box
    resized = Image.fromarray(image).resize(
        (CROP, CROP), Image.Resampling.BILINEAR, (left, top, right, bottom)
    )
    return np.asarray(resized)


def _boxes(keys: Any, cast: Any, exp: Any, sqrt: Any, minimum: Any) -> Any:
    """Returns (top, left, height, width) of a random crop for each key, as parts of the picture's size."""
    low, high = np.log(ASPECT, dtype=np.float32)
    aspect = exp(low + transforms.uniform(keys, "aspect") * (high - low)) * (HEIGHT / WIDTH)
    area = AREA[0] + transforms.uniform(keys, "area") * (AREA[1] - AREA[0])
    # A crop that would be larger than the picture is made to fit.
    width, height = minimum(sqrt(area * aspect), 1.0), minimum(sqrt(area / aspect), 1.0)
    top = transforms.uniform(keys, "top") * (1.0 - height)
    return cast(top), cast(transforms.uniform(keys, "left") * (1.0 - width)), height, width


def _cropped_arrays(dtype: str, batch: dict[str, Any], keys: np.ndarray) -> dict[str, Any]:
    top, left, height, width = _boxes(keys, np.float32, np.exp, np.sqrt, np.minimum)
    scale = np.array([HEIGHT, WIDTH, HEIGHT, WIDTH])
    boxes = np.stack([top, left, top + height, left + width], axis=1) * scale
    images = np.stack(list(map(_resized, batch["image"], boxes.tolist())))
    images = transforms.random_flip(images, keys)
    return {"image": transforms.to_float(images) if dtype == "float32" else images}


def _cropped_tensors(dtype: str, batch: dict[str, Any], keys: Any) -> dict[str, Any]:
    import tensorflow as tf

    top, left, height, width = _boxes(keys, tf.identity, tf.exp, tf.sqrt, tf.minimum)
    boxes = tf.stack([top, left, top + height, left + width], axis=1)
    images = tf.image.crop_and_resize(
        batch["image"], boxes, tf.range(tf.shape(boxes)[0]), (CROP, CROP)
    )
    images = transforms.random_flip(images, keys)
    return {"image": images / 255 if dtype == "float32" else tf.cast(tf.round(images), tf.uint8)}


CONTENDER = Contender(
    modes={
        "load": partial(_load, "global"),
        "load, interleave": partial(_load, "interleave"),
        "as_numpy": _as_numpy,
        "RecordSource": _from_source,
    },
    write=write,
    prepare=_prepare,
)
