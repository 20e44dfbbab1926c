"""Whether training converges as well as with a loader that holds everything in memory.

A small residual network learns the digits of scikit-learn in PyTorch, with the same initial weights for each
seed, by a loader in memory and by those of this project.

    python benchmarks/convergence.py --seeds 48 --json convergence.json
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import run_command, save
from harness import format_markdown
from measure import BenchmarkError
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import readers

EPOCHS, BATCH = 15, 60

_MEMORY = "DataLoader(TensorDataset), in memory"

# The batches of some epochs, shuffled with a seed: images and labels.
Batch = Sequence[torch.Tensor]
Loader = Callable[[int, int], Iterable[Batch]]


def write(folder: Path) -> str:
    """Writes the digits by the images job; returns the path of the dataset."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / "inputs" / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9375).astype(np.uint8)).save(path)
    job = [sys.executable, "-m", "beam_jobs", "images"]
    job += ["--input", str(folder / "inputs/*/*.png"), "--output", str(folder / "digits")]
    job += ["--channels", "1", "--splits", "train=0.8,val=0.2", "--exact_splits"]
    subprocess.run([*job, "--num_shards", "train=8,val=1"], check=True, capture_output=True)
    return str(folder / "digits")


def batches(path: str, split: str = "train", batch_size: int = BATCH, **how: Any) -> Any:
    """Batches by `readers.torch_batches`."""
    columns = ("image", "label")
    return readers.torch_batches(
        path, split=split, batch_size=batch_size, as_supervised=columns, **how
    )


def loaders(path: str) -> dict[str, Loader]:
    """The loaders by name; the first holds everything in memory."""
    (everything,) = batches(path, batch_size=10**4)

    def in_memory(seed: int, epochs: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(TensorDataset(*everything), BATCH, shuffle=True, generator=generator)
        for _ in range(epochs):
            yield from loader

    def by_ours(**how: Any) -> Loader:
        def loader(seed: int, epochs: int) -> Iterable[Batch]:
            found: Iterable[Batch] = batches(path, shuffle=True, seed=seed, repeat=epochs, **how)
            return found

        return loader

    return {
        _MEMORY: in_memory,
        "torch_batches, global": by_ours(),
        "torch_batches, interleave": by_ours(order="interleave", shuffle_buffer=200),
    }


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


class Training:
    """A network and its optimizer, which take one batch after another."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            ChannelsFirst(), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Residual(16),
            nn.MaxPool2d(2), Residual(16), nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)

    def step(self, batch: Batch) -> None:
        """Learns from a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def accuracy(self, found: Iterable[Batch]) -> float:
        """The share of correct labels."""
        self.net.eval()
        with torch.no_grad():
            right = [self.net(images).argmax(1) == labels for images, labels in found]
        return float(torch.cat(right).float().mean())


def accuracies(path: str, seeds: int, epochs: int) -> dict[str, list[float]]:
    """The accuracy of each seed, by loader."""
    found: dict[str, list[float]] = {}
    for name, loader in loaders(path).items():
        print(f"  {name}", flush=True)
        found[name] = []
        for seed in range(seeds):
            training = Training(seed)
            for batch in loader(seed, epochs):
                training.step(batch)
            found[name].append(training.accuracy(batches(path, "val")))
    return found


def _error(runs: Sequence[float]) -> float:
    """The standard error of the mean."""
    return statistics.stdev(runs) / math.sqrt(len(runs))


def format_accuracies(found: dict[str, list[float]]) -> str:
    """The mean of each loader, and how far it is from the first one's, which is in memory, with the same seeds."""
    rows = [["loader", "accuracy", "sigma", "standard error", "minus in memory", "standard error"]]
    for name, runs in found.items():
        apart = [a - b for a, b in zip(runs, found[_MEMORY], strict=True)]
        cells = [f"{statistics.mean(runs):.4f}", f"{statistics.stdev(runs):.4f}"]
        cells += [f"{_error(runs):.4f}", f"{statistics.mean(apart):+.4f}", f"{_error(apart):.4f}"]
        rows.append([name, *cells])
    return format_markdown(rows)


def main() -> None:
    """Parses the command line, trains, and prints the tables.

    Raises:
        BenchmarkError: A flag is wrong.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument("--seeds", type=int, default=48, help=f"at least 2 {default}")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=default)
    parser.add_argument("--quick", action="store_true", help="smoke test: 2 seeds and epochs")
    parser.add_argument("--json", metavar="PATH", help="write the results to this file")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if flags.quick:
        flags.seeds, flags.epochs = 2, 2
    if flags.seeds < 2:
        raise BenchmarkError(f"--seeds {flags.seeds}: expected at least 2")
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder))
        found = accuracies(path, flags.seeds, flags.epochs)
    print(f"\n{flags.epochs} epochs, {flags.seeds} seeds\n\n{format_accuracies(found)}")
    if flags.quick:
        print("\nThe trainings were short: these figures only show that the benchmark runs.")
    save(flags.json, {"epochs": flags.epochs, "accuracy": found})


if __name__ == "__main__":
    run_command(main)
