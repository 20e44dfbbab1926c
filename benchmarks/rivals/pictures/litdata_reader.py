"""LitData: chunks that `optimize` writes with the files' own bytes, which LitData itself decodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import litdata
from pictures import BATCH, files_of
from PIL import Image
from reading import Reader, Task, epochs_of
from rivals.pictures.torch_pictures import transform_of


def _read(path: str) -> dict[str, Any]:
    return {"image": Image.open(path)}


def write(folder: Path, store: Path) -> None:
    """Writes chunks of 64 MB, the size that LitData's documentation uses."""
    litdata.optimize(
        _read, files_of(folder), str(store), chunk_bytes="64MB", num_workers=2, verbose=False
    )


class _Pictures(litdata.StreamingDataset):
    def __init__(self, task: Task) -> None:
        super().__init__(str(task.store), shuffle=True)
        self._picture_transform = transform_of(task)

    def __getitem__(self, index: Any) -> Any:
        return self._picture_transform(super().__getitem__(index)["image"])


def _open(task: Task) -> Iterator[Any]:
    loader = litdata.StreamingDataLoader(
        _Pictures(task), batch_size=BATCH, num_workers=task.cores, persistent_workers=True
    )
    return epochs_of(loader, task)


READER = Reader(modes={"LitData": _open}, write=write)
