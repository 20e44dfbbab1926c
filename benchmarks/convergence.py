"""Whether training converges as well as with a loader that holds everything in memory.

Two small networks learn in PyTorch, with the same initial weights for each seed: a residual network the
digits of scikit-learn (digits.py), and a recurrent one the speakers of recordings of 7 to 29 steps
(vowels.py). Each is trained by a loader in memory and by those of this project. Then one training is repeated
with its batches divided between 1, 2 and 4 hosts, and once more killed ten times with SIGKILL, each time
resumed from its last checkpoint: its losses must be those of the undisturbed run.

    python benchmarks/convergence.py --seeds 48 --json convergence.json
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import parse_names, run_command, save
from digits import Digits
from learning import Task, Training, losses_of_hosts, train_with_checkpoints
from measure import BenchmarkError
from vowels import Vowels

from readers.format.display import format_table

TASKS: dict[str, Task] = {task.name: task for task in (Digits(), Vowels())}
HOSTS = (2, 4)


def accuracies(
    task: Task, path: str, data: Path, seeds: int, epochs: int
) -> dict[str, list[float]]:
    """The accuracy of each seed, by loader."""
    found: dict[str, list[float]] = {}
    for name, loader in task.loaders(path, data).items():
        print(f"  {task.name}: {name}", flush=True)
        found[name] = []
        for seed in range(seeds):
            training = Training(task, seed)
            for batch in loader(seed, epochs):
                training.step(batch)
            found[name].append(training.accuracy(task.batches(path, task.validation)))
    return found


def differences(
    task: Task, path: str, folder: Path, epochs: int, kills: int
) -> list[dict[str, Any]]:
    """The largest difference of a loss from the undisturbed run on one host, for each other run."""
    rows = []
    for reading in task.readings:
        losses = losses_of_hosts(task, path, reading, epochs, 1)
        others = {
            f"{hosts} hosts": losses_of_hosts(task, path, reading, epochs, hosts) for hosts in HOSTS
        }
        checkpoint = folder / f"{reading}.checkpoint"
        whens = np.random.default_rng(0).choice(len(losses), kills, replace=False)
        others[f"killed {kills} times"] = losses_after_kills(
            task, path, reading, epochs, checkpoint, sorted(whens.tolist())
        )
        rows += [
            {
                "batches": reading,
                "run": run,
                "steps": len(losses),
                "difference": max(abs(a - b) for a, b in zip(losses, other, strict=True)),
            }
            for run, other in others.items()
        ]
    return rows


def losses_after_kills(
    task: Task, path: str, reading: str, epochs: int, checkpoint: Path, whens: Sequence[int]
) -> list[float]:
    """The losses of a training whose process is killed before some steps and started again."""
    words = [task.name, path, reading, str(epochs), str(checkpoint)]
    for when in (*whens, -1):
        command = [sys.executable, __file__, "--train", *words, str(when)]
        code = subprocess.run(command, check=False).returncode
        if code != (0 if when == -1 else -signal.SIGKILL):
            raise BenchmarkError(f"{' '.join(command)} ended with exit code {code}")
    losses: list[float] = torch.load(checkpoint, weights_only=True)["losses"]
    return losses


def table_of_accuracies(found: dict[str, list[float]]) -> str:
    """The mean of each loader, and how far it is from the first one's, which is in memory, with the same seeds."""
    rows = [["loader", "accuracy", "sigma", "standard error", "minus in memory", "standard error"]]
    first = next(iter(found.values()))
    for name, runs in found.items():
        apart = [a - b for a, b in zip(runs, first, strict=True)]
        mean, error = statistics.mean(apart), error_of(apart)
        rows.append(
            [
                name,
                f"{statistics.mean(runs):.4f}",
                f"{statistics.stdev(runs):.4f}",
                f"{error_of(runs):.4f}",
                f"{mean:+.4f}",
                f"{error:.4f}",
            ]
        )
    return format_table(rows)


def error_of(runs: Sequence[float]) -> float:
    """The standard error of the mean."""
    return statistics.stdev(runs) / math.sqrt(len(runs))


def table_of_differences(rows: list[dict[str, Any]]) -> str:
    """How far the losses of each run are from those of one host, undisturbed."""
    head = ["batches", "run", "steps", "largest difference of a loss from one host, undisturbed"]
    found = [
        [row["batches"], row["run"], str(row["steps"]), f"{row['difference']:g}"] for row in rows
    ]
    return format_table([head, *found])


def parse() -> argparse.Namespace:
    """The flags.

    Raises:
        BenchmarkError: A flag is wrong.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument("--tasks", default=",".join(TASKS), help=default)
    parser.add_argument("--seeds", type=int, default=48, help=f"at least 2 {default}")
    parser.add_argument(
        "--epochs", type=int, help=f"(default: {', '.join(map(_epochs, TASKS.values()))})"
    )
    parser.add_argument("--kills", type=int, default=10, help=default)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("benchmark_data"),
        help=f"folder for the recordings, which are fetched once {default}",
    )
    parser.add_argument(
        "--quick", action="store_true", help="smoke test: 2 seeds, 2 epochs, 1 kill"
    )
    parser.add_argument("--json", metavar="PATH", help="write the results to this file")
    parser.add_argument("--train", nargs=6, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.quick:
        flags.seeds, flags.epochs, flags.kills = 2, 2, 1
    if flags.seeds < 2:
        raise BenchmarkError(f"--seeds {flags.seeds}: expected at least 2")
    flags.tasks = parse_names(list(TASKS), flags.tasks)
    return flags


def _epochs(task: Task) -> str:
    return f"{task.epochs} of {task.name}"


def main() -> None:
    """Parses the command line, trains, and prints the tables."""
    flags = parse()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if flags.train:
        name, path, reading, epochs, checkpoint, when = flags.train
        train_with_checkpoints(TASKS[name], path, reading, int(epochs), Path(checkpoint), int(when))
        return
    data = flags.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in flags.tasks:
        task = TASKS[name]
        epochs = flags.epochs or task.epochs
        with tempfile.TemporaryDirectory() as folder:
            path = task.write(Path(folder), data)
            found = accuracies(task, path, data, flags.seeds, epochs)
            apart = differences(task, path, Path(folder), epochs, flags.kills)
        print(f"\n{name}, {epochs} epochs, {flags.seeds} seeds\n")
        print(table_of_accuracies(found), table_of_differences(apart), sep="\n\n", flush=True)
        results[name] = {"epochs": epochs, "accuracy": found, "differences": apart}
    if flags.quick:
        print("\nThe trainings were short: these figures only show that the benchmark runs.")
    save(flags.json, results)


if __name__ == "__main__":
    run_command(main)
