"""Recordings of speech: 640 of 7 to 29 steps of 12 channels by nine speakers, and a recurrent network.

The recordings are Japanese Vowels of the UCI Machine Learning Repository (M. Kudo, J. Toyama, M. Shimbo,
1999; doi 10.24432/C5NS47; licence CC BY 4.0): 270 to train and 370 to test, each the LPC cepstrum of the
vowels "ae". They are read from a wheel of sktime, which is fetched once and has a known checksum.
"""

from __future__ import annotations

import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learning import Batch, Loader, Task
from measure import BenchmarkError, run
from torch import nn

import readers

VERSION = "1.2.0"
SHA256 = "dbffc6731d2d683b668dceb5e2bbc5804bebc8446b4c580803a281684d90e4ae"
CHANNELS, SPEAKERS = 12, 9

PADDED: dict[str, Any] = {"batching": "padded", "mask": True}
BY_LENGTH = {**PADDED, "bucket_boundaries": [14, 18]}
INTERLEAVED: dict[str, Any] = {"order": "interleave", "shuffle_buffer": 50}

# One length for all batches, so that those of several hosts are parts of one array.
ONE_LENGTH: dict[str, Any] = {"max_length": 29, "pad_to": "max_length"}
READINGS = {"padded": {**PADDED, **ONE_LENGTH}, "by length": {**BY_LENGTH, **ONE_LENGTH}}

# The channels of a recording, each a list of numbers as text, and its speaker, 0 to 8.
Recording = tuple[list[list[str]], int]


def fetch(data: Path) -> Path:
    """Returns the path of the wheel, which is fetched unless it is in the folder.

    Raises:
        BenchmarkError: The wheel cannot be fetched, or has another checksum.
    """
    wheel = data / f"sktime-{VERSION}-py3-none-any.whl"
    if not wheel.exists():
        wanted = data / "sktime.txt"
        wanted.write_text(f"sktime=={VERSION} --hash=sha256:{SHA256}\n")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        how = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(wanted)]
        run(f"fetch {wheel}", [*pip, *how, "-d", str(data)], data / "sktime.log")
    if (found := hashlib.sha256(wheel.read_bytes()).hexdigest()) != SHA256:
        raise BenchmarkError(f"{wheel} has sha256 {found}, expected {SHA256}; delete it")
    return wheel


def recordings_of(wheel: Path, part: str) -> list[Recording]:
    """The recordings of a part, TRAIN or TEST."""
    folder = "sktime/datasets/data/JapaneseVowels"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"{folder}/JapaneseVowels_{part}.ts").decode()
    rows = [line.split(":") for line in text.splitlines() if line and line[0] not in "#@"]
    return [([channel.split(",") for channel in row[:-1]], int(row[-1]) - 1) for row in rows]


class InMemory:
    """Batches of all recordings in random order, padded with zeros, by NumPy alone."""

    def __init__(self, recordings: list[Recording], batch_size: int) -> None:
        self._signals = [np.array(channels, np.float64).T for channels, _ in recordings]
        self._labels = np.array([speaker for _, speaker in recordings])
        self._batch_size = batch_size

    def epochs(self, seed: int, epochs: int) -> Iterator[Batch]:
        """The batches of some epochs."""
        rng = np.random.default_rng(seed)
        for _ in range(epochs):
            order = rng.permutation(len(self._signals))
            for first in range(0, len(order), self._batch_size):
                yield self._batch(order[first : first + self._batch_size])

    def _batch(self, rows: np.ndarray) -> Batch:
        longest = max(len(self._signals[row]) for row in rows)
        signal = np.zeros((len(rows), longest, CHANNELS), np.float32)
        mask = np.zeros((len(rows), longest), bool)
        for place, row in enumerate(rows):
            length = len(self._signals[row])
            signal[place, :length], mask[place, :length] = self._signals[row], True
        return [torch.from_numpy(array) for array in (signal, mask, self._labels[rows])]


class Recurrent(nn.Module):
    """A GRU whose states at all steps of a recording are averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(CHANNELS, 32, batch_first=True)
        self.scores = nn.Linear(32, SPEAKERS)

    def forward(self, signal: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The scores [B, 9] of signals [B, T, 12] with masks [B, T]."""
        states, _ = self.gru(signal)
        real = mask.unsqueeze(2)
        scores: torch.Tensor = self.scores((states * real).sum(1) / real.sum(1))
        return scores


class Vowels(Task):
    """Who speaks in a recording."""

    name = "vowels"
    epochs = 40
    batch_size = 24
    columns = ("signal", "signal_mask", "label")
    validation = "test"
    readings = READINGS

    def write(self, folder: Path, data: Path) -> str:
        wheel = fetch(data)
        listed = [["path", "speaker", "split"]]
        (folder / "inputs").mkdir()
        for split in ("train", "test"):
            for number, (channels, speaker) in enumerate(recordings_of(wheel, split.upper())):
                name = f"{split}-{number:03}.csv"
                names = [f"lpc{channel}" for channel in range(1, CHANNELS + 1)]
                _write_csv(folder / "inputs" / name, [names, *zip(*channels, strict=True)])
                listed.append([name, str(speaker), split])
        _write_csv(folder / "inputs" / "speakers.csv", listed)
        job = [sys.executable, "-m", "beam_jobs", "sensors"]
        flags = [
            *("--table", str(folder / "inputs/speakers.csv"), "--output", str(folder / "vowels")),
            *("--label", "column:speaker", "--split_column", "split"),
            *("--num_shards", "train=8,test=1"),
        ]
        subprocess.run([*job, *flags], check=True, capture_output=True)
        return str(folder / "vowels")

    def network(self) -> nn.Module:
        return Recurrent()

    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(weights, 0.005)

    def batches(self, path: str, split: str = "train", **how: Any) -> Any:
        return super().batches(path, split, **{**PADDED, **how})

    def loaders(self, path: str, data: Path) -> dict[str, Loader]:
        in_memory = InMemory(recordings_of(fetch(data), "TRAIN"), self.batch_size)

        def by(read: Any, convert: Any, **how: Any) -> Loader:
            def loader(seed: int, epochs: int) -> Iterator[Batch]:
                batches = read(
                    path,
                    split="train",
                    batch_size=self.batch_size,
                    as_supervised=self.columns,
                    shuffle=True,
                    seed=seed,
                    repeat=epochs,
                    **how,
                )
                for batch in batches:
                    yield [convert(array) for array in batch]

            return loader

        return {
            "NumPy, in memory": in_memory.epochs,
            "load, padded, global": by(readers.load, _of_tensorflow, **PADDED),
            "torch_batches, padded, global": by(readers.torch_batches, torch.as_tensor, **PADDED),
            "torch_batches, padded, interleave": by(
                readers.torch_batches, torch.as_tensor, **PADDED, **INTERLEAVED
            ),
            "as_numpy, by length, global": by(readers.as_numpy, torch.as_tensor, **BY_LENGTH),
            "as_numpy, by length, interleave": by(
                readers.as_numpy, torch.as_tensor, **BY_LENGTH, **INTERLEAVED
            ),
        }


def _of_tensorflow(tensor: Any) -> torch.Tensor:
    return torch.tensor(tensor.numpy())


def _write_csv(path: Path, rows: Iterable[Iterable[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    path.write_text(text.getvalue())
