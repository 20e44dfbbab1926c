"""The parts that contenders based on PyTorch share: torchvision's transforms, and the DataLoader."""

from __future__ import annotations

import torch
from pictures import AREA, ASPECT, CROP
from reading import Task
from torchvision.transforms import v2


def transform_of(task: Task) -> v2.Transform:
    """Returns the transform of a picture: a tensor [3, height, width] or one of Pillow's images."""
    steps: list[v2.Transform] = []
    if task.kind.is_cropped:
        steps += [v2.RandomResizedCrop(CROP, AREA, ASPECT), v2.RandomHorizontalFlip()]
    steps.append(v2.ToImage())
    steps.append(v2.ToDtype(getattr(torch, task.dtype), scale=True))
    # A plain tensor is collated faster than torchvision's own kind.
    steps.append(v2.ToPureTensor())
    return v2.Compose(steps)
