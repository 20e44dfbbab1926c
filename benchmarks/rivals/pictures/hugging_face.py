"""Hugging Face datasets: an Arrow dataset on disk, mapped into memory, decoded as Pillow's images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from pictures import BATCH, files_of
from reading import Reader, Task, epochs_of
from rivals.pictures.torch_pictures import transform_of
from torch.utils.data import DataLoader


def write(folder: Path, store: Path) -> None:
    """Writes the files' own bytes."""
    features = datasets.Features({"image": datasets.Image()})
    pictures = datasets.Dataset.from_dict({"image": files_of(folder)}, features=features)
    pictures.save_to_disk(str(store))


class _Transformed:
    def __init__(self, task: Task) -> None:
        self._transform = transform_of(task)

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": [self._transform(image) for image in rows["image"]]}


def _open(task: Task) -> Iterator[Any]:
    pictures = datasets.load_from_disk(str(task.store)).with_transform(_Transformed(task))
    loader = DataLoader(
        pictures, BATCH, shuffle=True, num_workers=task.cores, persistent_workers=True
    )
    return epochs_of(loader, task)


READER = Reader(modes={"HF datasets": _open}, write=write)
