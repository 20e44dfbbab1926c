"""Handwritten digits: the 1,797 images of 8x8 pixels in scikit-learn, and a small residual network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learning import Batch, Loader, Task
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

READINGS: dict[str, dict[str, Any]] = {"dense": {}}


class Residual(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum, rectified."""
        return torch.relu(x + self.inner(x))


class ChannelsFirst(nn.Module):
    """uint8 [B, 8, 8, 1] as float32 [B, 1, 8, 8] from 0 to 1."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The scaled images."""
        return images.movedim(-1, 1).float() / 255


class Digits(Task):
    """Which digit an image shows."""

    name = "digits"
    epochs = 15
    batch_size = 60
    columns = ("image", "label")
    validation = "val"
    readings = READINGS

    def write(self, folder: Path, data: Path) -> str:
        digits = load_digits()
        for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
            path = folder / "inputs" / str(label) / f"{number:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((pixels * 15.9375).astype(np.uint8)).save(path)
        job = [sys.executable, "-m", "beam_jobs", "images"]
        flags = [
            *("--input", str(folder / "inputs/*/*.png"), "--output", str(folder / "digits")),
            *("--channels", "1", "--splits", "train=0.8,val=0.2", "--exact_splits"),
            *("--num_shards", "train=8,val=1"),
        ]
        subprocess.run([*job, *flags], check=True, capture_output=True)
        return str(folder / "digits")

    def network(self) -> nn.Module:
        return nn.Sequential(
            ChannelsFirst(), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Residual(16),
            nn.MaxPool2d(2), Residual(16), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(weights, 0.05, momentum=0.9)

    def loaders(self, path: str, data: Path) -> dict[str, Loader]:
        (everything,) = self.batches(path, size=10**4)

        def in_memory(seed: int, epochs: int) -> Iterator[Batch]:
            generator = torch.Generator().manual_seed(seed)
            loader = DataLoader(
                TensorDataset(*everything), self.batch_size, shuffle=True, generator=generator
            )
            for _ in range(epochs):
                yield from loader

        def by_ours(**how: Any) -> Loader:
            def loader(seed: int, epochs: int) -> Iterable[Batch]:
                found: Iterable[Batch] = self.batches(
                    path, shuffle=True, seed=seed, repeat=epochs, **how
                )
                return found

            return loader

        return {
            "DataLoader(TensorDataset), in memory": in_memory,
            "torch_batches, global": by_ours(),
            "torch_batches, interleave": by_ours(order="interleave", shuffle_buffer=200),
        }
