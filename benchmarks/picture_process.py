"""The process of a contender that reads pictures: writes its store, is checked, or is timed.

    python picture_process.py write CONTENDER FOLDER
    python picture_process.py check CONTENDER FOLDER MODE KIND DTYPE --cores N
    python picture_process.py time CONTENDER FOLDER MODE KIND DTYPE --cores N --seconds S --result FILE

FOLDER has the photographs in `files/`; the store of a contender is its `CONTENDER/`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from measure import session_cpu_seconds
from pictures.contender import ENTRIES, FILES, Contender, Task
from pictures.kinds import BATCH, KINDS
from pictures.truth import read_truth

# Not measured after the first batch: workers are filling their queues, and tf.data is still choosing
# its number of threads.
_WARM_SECONDS = 1.0


def load_contender(name: str) -> Contender:
    """Returns the contender that a module defines."""
    return importlib.import_module(ENTRIES[name].module).CONTENDER


def write(name: str, folder: Path) -> None:
    """Writes the store of a contender."""
    contender = load_contender(name)
    if contender.write is None:
        sys.exit(f"{name} has no store of its own")
    contender.write(folder, folder / name)


def task_of(flags: argparse.Namespace, epochs: int | None) -> Task:
    """Returns the task of a command line."""
    store = ENTRIES[flags.contender].store
    folder = flags.folder if store == FILES else flags.folder / store
    return Task(KINDS[flags.kind], flags.dtype, folder, epochs, flags.cores)


def check(flags: argparse.Namespace) -> None:
    """Exits with one line if an epoch does not have the number, shape, dtype and mean of pictures."""
    contender, task = load_contender(flags.contender), task_of(flags, 1)
    contender.prepare(flags.mode)
    count, total = 0, np.zeros(3)
    for batch in contender.modes[flags.mode](task):
        images = np.asarray(contender.images(batch))
        if not 0 < len(images) <= BATCH:
            sys.exit(f"a batch of {len(images)} pictures, expected at most {BATCH}")
        if images.dtype != task.dtype or images.shape[1:] not in task.kind.shapes:
            sys.exit(
                f"pictures of {images.dtype} {images.shape[1:]}, expected {task.dtype} "
                f"{task.kind.shapes[0]}"
            )
        count += len(images)
        colors = 3 if images.shape[3] == 3 else 1
        others = tuple(axis for axis in (1, 2, 3) if axis != colors)
        total += images.mean(axis=others, dtype=np.float64).sum(axis=0)
    truth = read_truth(flags.folder)
    if count != truth.pictures:
        sys.exit(f"an epoch of {count} pictures, expected {truth.pictures}")
    mean = total / count * (255 if task.dtype == "float32" else 1)
    expected, tolerance = truth.expected(task.kind)
    if (abs(mean - expected) > tolerance).any():
        sys.exit(
            f"a mean color of {mean.round(2).tolist()}, expected {expected.round(2).tolist()} "
            f"+- {tolerance.round(2).tolist()}"
        )


def time_batches(flags: argparse.Namespace) -> dict[str, float]:
    """Returns the seconds to the first batch, pictures per second, and processor time per picture."""
    contender, task = load_contender(flags.contender), task_of(flags, None)
    contender.prepare(flags.mode)
    clock, session = time.perf_counter, os.getsid(0)
    began = clock()
    batches = iter(contender.modes[flags.mode](task))
    next(batches)
    first = clock() - began
    until = clock() + _WARM_SECONDS
    while clock() < until:
        next(batches)
    count, cpu, began = 0, session_cpu_seconds(session), clock()
    while (now := clock()) < began + flags.seconds:
        # The last batch is released when the next one arrives, as in training.
        batch = next(batches)
        count += len(contender.images(batch))
    cpu = session_cpu_seconds(session) - cpu
    return {
        "first_seconds": first,
        "pictures_per_second": count / (now - began),
        "cpu_seconds_per_picture": cpu / count,
    }


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("write", "check", "time"):
        command = actions.add_parser(action)
        command.add_argument("contender", choices=ENTRIES)
        command.add_argument("folder", type=Path)
        if action != "write":
            command.add_argument("mode")
            command.add_argument("kind", choices=KINDS)
            command.add_argument("dtype")
            command.add_argument("--cores", type=int, required=True)
        if action == "time":
            command.add_argument("--seconds", type=float, required=True)
            command.add_argument("--result", type=Path, required=True)
    return parser


def main() -> None:
    """Runs the action of the command line."""
    flags = build_parser().parse_args()
    if flags.action == "write":
        write(flags.contender, flags.folder)
    elif flags.action == "check":
        check(flags)
    else:
        flags.result.write_text(json.dumps(time_batches(flags)))
        os._exit(0)  # without waiting for workers that would read on; the caller ends them


if __name__ == "__main__":
    main()
