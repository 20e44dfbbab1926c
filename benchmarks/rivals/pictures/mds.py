"""MosaicML Streaming: MDS shards with the files' own bytes, read as Pillow's images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streaming
from pictures import BATCH, files_of
from PIL import Image
from reading import Reader, Task, epochs_of
from rivals.pictures.torch_pictures import transform_of
from torch.utils.data import DataLoader


def write(folder: Path, store: Path) -> None:
    """Writes shards of MDS's default size, 64 MB."""
    with streaming.MDSWriter(out=str(store), columns={"image": "jpeg"}) as writer:
        for path in files_of(folder):
            writer.write({"image": Image.open(path)})


class _Pictures(streaming.StreamingDataset):
    def __init__(self, task: Task) -> None:
        super().__init__(local=str(task.store), shuffle=True, batch_size=BATCH)
        self._picture_transform = transform_of(task)

    def __getitem__(self, index: Any) -> Any:
        return self._picture_transform(super().__getitem__(index)["image"])


def _open(task: Task) -> Iterator[Any]:
    streaming.base.util.clean_stale_shared_memory()
    loader = DataLoader(_Pictures(task), BATCH, num_workers=task.cores, persistent_workers=True)
    return epochs_of(loader, task)


READER = Reader(modes={"MosaicML Streaming": _open}, write=write)
