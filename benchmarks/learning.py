"""What the trainings of convergence.py share: a task, the steps of a network, hosts and checkpoints."""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import readers

# The inputs of the network, and last the labels, int64 [B].
Batch = Sequence[torch.Tensor]

# The batches of some epochs, shuffled with a seed.
Loader = Callable[[int, int], Iterable[Batch]]


class Task(ABC):
    """What is learned, from which dataset, by which network.

    Attributes:
        name: The name on the command line.
        epochs: The default number of epochs.
        batch_size: Records per batch of all hosts together; 2 and 4 divide it.
        columns: The features that make a batch; the last is the label.
        validation: The split that the accuracy is measured on.
        readings: Arguments of `readers.torch_batches` by name. Each is tried on several hosts and with
            kills, in the global order.
    """

    name: str
    epochs: int
    batch_size: int
    columns: Sequence[str]
    validation: str
    readings: dict[str, dict[str, Any]]

    @abstractmethod
    def write(self, folder: Path, data: Path) -> str:
        """Runs a job on inputs in a folder; returns the path of the dataset.

        Args:
            folder: An empty folder for the inputs and the dataset.
            data: The folder that keeps what is fetched.
        """

    @abstractmethod
    def network(self) -> nn.Module:
        """A network with random weights, which takes the inputs of a batch."""

    @abstractmethod
    def optimizer(self, weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of the weights."""

    @abstractmethod
    def loaders(self, path: str, data: Path) -> dict[str, Loader]:
        """The loaders of the training split by name; the first holds everything in memory."""

    def batches(self, path: str, split: str = "train", **how: Any) -> Any:
        """Batches by `readers.torch_batches`."""
        size = how.pop("size", self.batch_size)
        return readers.torch_batches(
            path, split=split, batch_size=size, as_supervised=self.columns, **how
        )


class Training:
    """A network and its optimizer, which take one batch after another."""

    def __init__(self, task: Task, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = task.network()
        self.optimizer = task.optimizer(self.net.parameters())
        self.losses: list[float] = []

    def step(self, batch: Batch) -> None:
        """Learns from a batch."""
        *inputs, labels = batch
        loss = nn.functional.cross_entropy(self.net(*inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(float(loss.detach()))

    def accuracy(self, batches: Iterable[Batch]) -> float:
        """The share of correct labels."""
        self.net.eval()
        with torch.no_grad():
            right = [self.net(*inputs).argmax(1) == labels for *inputs, labels in batches]
        return float(torch.cat(right).float().mean())

    def save(self, checkpoint: Path) -> None:
        """Writes a checkpoint, which replaces the last one as a whole."""
        content = {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses,
        }
        torch.save(content, f"{checkpoint}.new")
        os.replace(f"{checkpoint}.new", checkpoint)

    def restore(self, checkpoint: Path) -> None:
        """Continues from a checkpoint."""
        saved = torch.load(checkpoint, weights_only=True)
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.losses = saved["losses"]


def losses_of_hosts(task: Task, path: str, reading: str, epochs: int, hosts: int) -> list[float]:
    """The losses if each batch is read by several hosts, each its share of the records."""
    training = Training(task, 0)
    shares = [
        task.batches(
            path,
            size=task.batch_size // hosts,
            shard=(host, hosts),
            **_training(task, reading, epochs),
        )
        for host in range(hosts)
    ]
    for batches in zip(*shares, strict=True):
        training.step([torch.cat(parts) for parts in zip(*batches, strict=True)])
    return training.losses


def train_with_checkpoints(
    task: Task, path: str, reading: str, epochs: int, checkpoint: Path, kill_at: int
) -> None:
    """Trains from the last checkpoint on; kills its process before the step `kill_at`, unless it is -1."""
    training = Training(task, 0)
    if checkpoint.exists():
        training.restore(checkpoint)
    how = _training(task, reading, epochs)
    saved = task.batches(path, **how).state(len(training.losses))
    for batch in task.batches(path, state=saved, **how):
        if len(training.losses) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        training.step(batch)
        if len(training.losses) % 10 == 0:
            training.save(checkpoint)
    training.save(checkpoint)


def _training(task: Task, reading: str, epochs: int) -> dict[str, Any]:
    return {"shuffle": True, "repeat": epochs, "remainder": "drop", **task.readings[reading]}
