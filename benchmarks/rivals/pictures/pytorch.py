"""PyTorch's DataLoader over the files, decoded and cropped by torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pictures import BATCH, files_of
from reading import Reader, Task, epochs_of
from rivals.pictures.torch_pictures import transform_of
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image, read_file


class _Files(Dataset):
    def __init__(self, task: Task) -> None:
        self._files, self._transform = files_of(task.store), transform_of(task)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> torch.Tensor:
        # `decode_image` does not turn pictures by EXIF, unless it is asked to.
        image = decode_image(read_file(self._files[number]), ImageReadMode.RGB)
        return self._transform(image)


def _open(task: Task) -> Iterator[Any]:
    loader = DataLoader(
        _Files(task),
        BATCH,
        shuffle=True,
        num_workers=task.cores,
        persistent_workers=True,
    )
    return epochs_of(loader, task)


READER = Reader(modes={"PyTorch, torchvision": _open})
