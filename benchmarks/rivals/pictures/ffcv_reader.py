"""FFCV: a file of JPEGs, which its own threads decode and crop in code that Numba compiles.

FFCV encodes the pictures anew, at the same quality. It needs the headers of OpenCV and libjpeg-turbo.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ffcv.fields import RGBImageField
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.pipeline.operation import Operation
from ffcv.transforms import Convert, RandomHorizontalFlip, ToTensor
from ffcv.writer import DatasetWriter
from pictures import AREA, ASPECT, BATCH, CROP, files_of
from PIL import Image
from reading import Reader, Task, epochs_of


class _Files:
    def __init__(self, folder: Path) -> None:
        self._files = files_of(folder)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[np.ndarray]:
        return (np.asarray(Image.open(self._files[number])),)


def write(folder: Path, store: Path) -> None:
    """Writes one file, as FFCV does."""
    fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90)}
    DatasetWriter(str(store), fields, num_workers=2).from_indexed_dataset(_Files(folder))


def _open(task: Task) -> Iterator[Any]:
    steps: list[Operation] = [SimpleRGBImageDecoder()]
    if task.kind.is_cropped:
        steps = [RandomResizedCropRGBImageDecoder((CROP, CROP), AREA, ASPECT)]
        steps.append(RandomHorizontalFlip())
    steps.append(ToTensor())
    if task.dtype == "float32":
        steps.append(Convert(torch.float32))
    loader = Loader(
        str(task.store),
        BATCH,
        num_workers=task.cores,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": steps},
    )
    for (images,) in epochs_of(loader, task):
        yield images.div_(255) if task.dtype == "float32" else images


READER = Reader(modes={"FFCV": _open}, write=write)
