"""The process of a contender: writes its store, checks that it reads all records, or is timed.

    python contender_process.py write CONTENDER KIND FOLDER
    python contender_process.py compare CONTENDER FOLDER…
    python contender_process.py time CONTENDER MODE KIND FOLDER BATCHING ORDER --seconds N --result FILE

FOLDER is KIND/NUMBER-OF-RECORDS: its `records/` has the arrays, its `CONTENDER/` is the store.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
from contender import MODES, MODULES, ORDERS, SHUFFLED, Contender, Task, writer_of
from records import BATCH, KINDS, TINY, Records, fingerprint, unpad

# Not measured after the first batch, because tf.data is still choosing its number of threads.
_WARM_SECONDS = 0.5


def load_contender(name: str) -> Contender:
    """Returns the contender that a module defines."""
    return importlib.import_module(MODULES[name]).CONTENDER


def rows_of_epoch(contender: Contender, mode: str, task: Task) -> Iterator[np.ndarray]:
    """Yields the records of an epoch, without padding."""
    for batch in contender.modes[mode](task):
        rows = list(contender.rows(batch))
        if len(rows) != BATCH:
            sys.exit(f"{mode}: a batch of {len(rows)} records, expected {BATCH}")
        # `bare` does not pad its batches, but no record ends in zeros, so that `unpad` keeps it.
        yield from map(unpad, rows) if task.batching == "padded" else rows


def check(contender: Contender, mode: str, task: Task, expected: tuple[int, int]) -> None:
    """Exits with one line if an epoch does not have the expected fingerprint."""
    found = fingerprint(rows_of_epoch(contender, mode, task))
    if found != expected:
        order = "shuffled" if task.shuffle else "in order"
        sys.exit(
            f"{mode}, {task.kind.name}, {task.batching}, {order}: {found[0]} records with checksum "
            f"{found[1]:x}, expected {expected[0]} with {expected[1]:x}"
        )


def write(name: str, kind_name: str, folder: Path) -> None:
    """Writes the store of a contender, and checks it by reading it once."""
    contender = load_contender(name)
    if kind_name == TINY.name:
        importlib.import_module(MODULES[name]).write_tiny(folder / name, int(folder.name))
        return
    kind = KINDS[kind_name]
    records = Records(folder / "records")
    if contender.write is None:
        sys.exit(f"{name} has no store of its own")
    contender.write(kind, records, folder / name)
    mode = [mode.name for mode in MODES if mode.contender == name][-1]
    task = Task(kind, folder / name, kind.batchings[0], False, 1)
    check(contender, mode, task, fingerprint(records))


def compare(name: str, folders: list[Path]) -> None:
    """Checks every mode of a contender, in every order, on each dataset."""
    contender = load_contender(name)
    for folder in folders:
        kind = KINDS[folder.parent.name]
        expected = fingerprint(Records(folder / "records"))
        for mode in MODES:
            if mode.contender != name:
                continue
            contender.prepare(mode.name)
            for batching in kind.batchings:
                if batching in mode.batchings:
                    for order in mode.orders:
                        task = Task(kind, folder / writer_of(name), batching, order == SHUFFLED, 1)
                        check(contender, mode.name, task, expected)


def time_batches(flags: argparse.Namespace) -> dict[str, float]:
    """Returns the seconds from opening the reader to its first batch, and records per second."""
    contender = load_contender(flags.contender)
    contender.prepare(flags.mode)
    kind = {**KINDS, TINY.name: TINY}[flags.kind]
    store = flags.folder / writer_of(flags.contender)
    task = Task(kind, store, flags.batching, flags.order == SHUFFLED, None)
    clock = time.perf_counter
    began = clock()
    batches = iter(contender.modes[flags.mode](task))
    next(batches)
    first = clock() - began
    if not flags.seconds:
        return {"first_seconds": first}
    until = clock() + _WARM_SECONDS
    while clock() < until:
        next(batches)
    count, began = 0, clock()
    while (now := clock()) < began + flags.seconds:
        # The last batch is released when the next one arrives, as in training.
        batch = next(batches)  # noqa: F841
        count += 1
    return {"first_seconds": first, "records_per_second": count * BATCH / (now - began)}


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("write", "compare", "time"):
        command = actions.add_parser(action)
        command.add_argument("contender", choices=MODULES)
        if action == "time":
            command.add_argument("mode")
        if action != "compare":
            command.add_argument("kind")
        command.add_argument("folder", type=Path, nargs="+" if action == "compare" else None)
        if action == "time":
            command.add_argument("batching")
            command.add_argument("order", choices=ORDERS)
            command.add_argument("--seconds", type=float, required=True)
            command.add_argument("--result", type=Path, required=True)
    return parser


def main() -> None:
    """Runs the action of the command line."""
    flags = build_parser().parse_args()
    if flags.action == "write":
        write(flags.contender, flags.kind, flags.folder)
    elif flags.action == "compare":
        compare(flags.contender, flags.folder)
    else:
        flags.result.write_text(json.dumps(time_batches(flags)))


if __name__ == "__main__":
    main()
