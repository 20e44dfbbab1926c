"""Whether training converges as well as with a loader that holds everything in memory.

A small residual network learns the 1,797 handwritten digits of scikit-learn in PyTorch, with the same
initial weights for each seed, from three loaders: `DataLoader(TensorDataset(...), shuffle=True)`,
`readers.torch_batches` in its global order, and the same with `order="interleave"` in small windows. Then one
training is repeated with its batches divided between 1, 2 and 4 hosts, and once more killed ten times with
SIGKILL, each time resumed from its last checkpoint: its losses must be those of the undisturbed run.

    python benchmarks/convergence.py --seeds 24 --epochs 15 --json convergence.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import readers
from readers.format.display import format_table

BATCH = 60
Batch = tuple[torch.Tensor, torch.Tensor]


def write_digits(folder: Path) -> str:
    """Writes the digits as PNG files and runs the images job on them; returns the dataset's path."""
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / "inputs" / str(label) / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9375).astype(np.uint8)).save(path)
    flags = [
        "--channels",
        "1",
        "--splits",
        "train=0.8,val=0.2",
        "--exact_splits",
        "--num_shards",
        "train=8,val=1",
    ]
    command = [
        sys.executable,
        "-m",
        "beam_jobs",
        "images",
        "--input",
        str(folder / "inputs/*/*.png"),
    ]
    subprocess.run(
        [*command, "--output", str(folder / "digits"), *flags], check=True, capture_output=True
    )
    return str(folder / "digits")


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


class Training:
    """A network and its optimizer, which take one batch after another."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), Residual(16), nn.MaxPool2d(2), Residual(16),
            nn.Flatten(), nn.Linear(256, 10),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05, momentum=0.9)
        self.losses: list[float] = []

    def step(self, batch: Batch) -> None:
        """Learns from a batch of images uint8 [B, 8, 8, 1] and labels int64 [B]."""
        loss = nn.functional.cross_entropy(self.net(as_input(batch[0])), batch[1])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(float(loss.detach()))

    def accuracy(self, batches: Iterable[Batch]) -> float:
        """The share of correct labels."""
        self.net.eval()
        with torch.no_grad():
            right = [self.net(as_input(image)).argmax(1) == label for image, label in batches]
        return float(torch.cat(right).float().mean())


def as_input(images: torch.Tensor) -> torch.Tensor:
    """float32 [B, 1, 8, 8] from 0 to 1."""
    return images.movedim(-1, 1).float() / 255


def ours(path: str, split: str = "train", **how: Any) -> Any:
    """Batches of (image, label) by `readers.torch_batches`."""
    return readers.torch_batches(
        path,
        split=split,
        batch_size=how.pop("size", BATCH),
        as_supervised=("image", "label"),
        **how,
    )


def compare(path: str, seeds: int, epochs: int) -> list[dict[str, Any]]:
    """The accuracy with each loader, for each seed."""
    (everything,) = ours(path, size=10**4)

    def in_memory(seed: int) -> Iterable[Batch]:
        generator = torch.Generator().manual_seed(seed)
        found: Any = DataLoader(
            TensorDataset(*everything), BATCH, shuffle=True, generator=generator
        )
        return found

    loaders: dict[str, Callable[[int], Iterable[Batch]]] = {
        "in memory": in_memory,
        "global": lambda seed: ours(path, shuffle=True, seed=seed),
        "interleave": lambda seed: ours(
            path, shuffle=True, seed=seed, order="interleave", shuffle_buffer=200
        ),
    }
    rows = []
    for name, loader in loaders.items():
        found = []
        for seed in range(seeds):
            training, batches = Training(seed), loader(seed)
            for _ in range(epochs):
                for batch in batches:
                    training.step(batch)
            found.append(training.accuracy(ours(path, "val")))
        rows.append(
            {
                "loader": name,
                "accuracy": statistics.mean(found),
                "sigma": statistics.stdev(found) if seeds > 1 else 0.0,
                "runs": found,
            }
        )
    return rows


def of_hosts(path: str, hosts: int, epochs: int) -> list[float]:
    """The losses if each batch is divided between hosts, one network each, kept equal."""
    training = Training(0)
    parts = [
        ours(
            path,
            size=BATCH // hosts,
            shuffle=True,
            repeat=epochs,
            shard=(host, hosts),
            remainder="drop",
        )
        for host in range(hosts)
    ]
    for several in zip(*parts, strict=True):
        images, labels = zip(*several, strict=True)
        training.step((torch.cat(images), torch.cat(labels)))
    return training.losses


def train_with_checkpoints(path: str, checkpoint: Path, epochs: int, kill_at: int | None) -> None:
    """Trains from the last checkpoint on; kills its process before the step `kill_at`."""
    training, done = Training(0), 0
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        training.net.load_state_dict(saved["net"])
        training.optimizer.load_state_dict(saved["optimizer"])
        training.losses = saved["losses"]
        done = len(training.losses)
    start = ours(path, shuffle=True, repeat=epochs, remainder="drop")
    batches = ours(path, shuffle=True, repeat=epochs, remainder="drop", state=start.state(done))
    for batch in batches:
        if len(training.losses) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        training.step(batch)
        if len(training.losses) % 10 == 0 or len(training.losses) == len(start):
            content = {
                "net": training.net.state_dict(),
                "optimizer": training.optimizer.state_dict(),
                "losses": training.losses,
            }
            torch.save(content, f"{checkpoint}.new")
            os.replace(f"{checkpoint}.new", checkpoint)


def killed(path: str, folder: Path, kills: int, epochs: int) -> list[float]:
    """The losses of a training that is killed some times."""
    checkpoint = folder / "checkpoint"
    steps = len(ours(path, shuffle=True, repeat=epochs, remainder="drop"))
    whens: Iterator[int | None] = iter(sorted(np.random.default_rng(0).choice(steps, kills, False)))
    for when in itertools.chain(whens, [None]):
        words = [str(path), str(checkpoint), str(epochs), str(-1 if when is None else when)]
        done = subprocess.run([sys.executable, __file__, "--train", *words], check=False)
        assert done.returncode == (0 if when is None else -signal.SIGKILL), done.returncode
    losses: list[float] = torch.load(checkpoint, weights_only=True)["losses"]
    return losses


def main() -> None:
    """Parses the command line, trains, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--train", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if args.train:
        path, checkpoint, epochs, when = args.train
        train_with_checkpoints(
            path, Path(checkpoint), int(epochs), int(when) if when != "-1" else None
        )
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write_digits(folder)
        rows = compare(path, args.seeds, args.epochs)
        curves = {hosts: of_hosts(path, hosts, args.epochs) for hosts in (1, 2, 4)}
        again = killed(path, folder, args.kills, args.epochs)
    table = [["loader", "accuracy", "sigma"]]
    table += [[row["loader"], f"{row['accuracy']:.4f}", f"{row['sigma']:.4f}"] for row in rows]
    print(format_table(table))
    apart = {f"{hosts} hosts": distance(curves[1], curves[hosts]) for hosts in (2, 4)}
    apart[f"killed {args.kills} times"] = distance(curves[1], again)
    table = [["run", "steps", "largest difference of a loss from one host, undisturbed"]]
    table += [[run, str(len(curves[1])), f"{apart[run]:g}"] for run in apart]
    print(format_table(table))
    if args.json:
        args.json.write_text(json.dumps({"accuracy": rows, "differences": apart}, indent=1))


def distance(losses: list[float], others: list[float]) -> float:
    """The largest difference of two curves."""
    return max(abs(a - b) for a, b in zip(losses, others, strict=True))


if __name__ == "__main__":
    main()
