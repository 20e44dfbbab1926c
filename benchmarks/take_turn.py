"""What runs in a contender's process: it writes its store, proves that it reads all, or is timed.

    python take_turn.py write CONTENDER KIND FOLDER
    python take_turn.py compare CONTENDER FOLDER…
    python take_turn.py time CONTENDER WAY KIND FOLDER BATCHING ORDER --seconds N --result FILE

A folder is named for its kind's dataset: `records/` are the arrays, `CONTENDER/` is its store.
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
from contender import MODULES, ORDERS, PLAIN_TENSORFLOW, SHUFFLED, WAYS, Contender, Task
from records import BATCH, KINDS, TINY, Records, fingerprint, unpad

# After the first batch and before what is measured: tf.data is choosing its number of threads then.
_WARM_SECONDS = 0.5


def load_contender(name: str) -> Contender:
    """The contender's own module says what it is."""
    return importlib.import_module(MODULES[name]).CONTENDER


def store_of(name: str, folder: Path) -> Path:
    """Where the contender's records are."""
    return folder / ("ours" if name in PLAIN_TENSORFLOW else name)


def rows_of_epoch(contender: Contender, way: str, task: Task) -> Iterator[np.ndarray]:
    """The records of an epoch, whatever batches they are in."""
    for batch in contender.ways[way](task):
        rows = list(contender.rows(batch))
        if len(rows) != BATCH:
            sys.exit(f"{way}: a batch of {len(rows)} records, expected {BATCH}")
        # The records of bare batches are not padded, and have no zeros at their end.
        yield from map(unpad, rows) if task.batching == "padded" else rows


def check(contender: Contender, way: str, task: Task, expected: tuple[int, int]) -> None:
    """Leaves with one line where an epoch is not of the records there are."""
    found = fingerprint(rows_of_epoch(contender, way, task))
    if found != expected:
        order = "shuffled" if task.shuffle else "in order"
        sys.exit(
            f"{way}, {task.kind.name}, {task.batching}, {order}: {found[0]} records of "
            f"{expected[0]}, or others (sum {found[1]:x}, expected {expected[1]:x})"
        )


def write(name: str, kind_name: str, folder: Path) -> None:
    """Writes the contender's store, and reads it back once."""
    contender = load_contender(name)
    if kind_name == TINY.name:
        importlib.import_module(MODULES[name]).write_tiny(folder / name, int(folder.name))
        return
    kind = KINDS[kind_name]
    records = Records(folder / "records")
    if contender.write is None:
        sys.exit(f"{name} has nothing to write")
    contender.write(kind, records, folder / name)
    way = [way.name for way in WAYS if way.contender == name][-1]
    task = Task(kind, folder / name, kind.batchings[0], False, 1)
    check(contender, way, task, fingerprint(records))


def compare(name: str, folders: list[Path]) -> None:
    """Every way of a contender, in every order, on each dataset."""
    contender = load_contender(name)
    for folder in folders:
        kind = KINDS[folder.parent.name]
        expected = fingerprint(Records(folder / "records"))
        for way in WAYS:
            if way.contender != name:
                continue
            contender.prepare(way.name)
            for batching in kind.batchings:
                if batching in way.batchings:
                    for order in way.orders:
                        task = Task(kind, store_of(name, folder), batching, order == SHUFFLED, 1)
                        check(contender, way.name, task, expected)


def time_batches(flags: argparse.Namespace) -> dict[str, float]:
    """Seconds to the first batch, from the call that opens the reader, and records a second."""
    contender = load_contender(flags.contender)
    contender.prepare(flags.way)
    kind = {**KINDS, TINY.name: TINY}[flags.kind]
    store = store_of(flags.contender, flags.folder)
    task = Task(kind, store, flags.batching, flags.order == SHUFFLED, None)
    clock = time.perf_counter
    began = clock()
    batches = iter(contender.ways[flags.way](task))
    next(batches)
    first = clock() - began
    if not flags.seconds:
        return {"first_seconds": first}
    until = clock() + _WARM_SECONDS
    while clock() < until:
        next(batches)
    count, began = 0, clock()
    while (now := clock()) < began + flags.seconds:
        # The batch before is let go of when this one is there, as in training.
        batch = next(batches)  # noqa: F841
        count += 1
    return {"first_seconds": first, "records_per_second": count * BATCH / (now - began)}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    for action in ("write", "compare", "time"):
        command = actions.add_parser(action)
        command.add_argument("contender", choices=MODULES)
        if action == "time":
            command.add_argument("way")
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
    """Does what it is told."""
    flags = build_parser().parse_args()
    if flags.action == "write":
        write(flags.contender, flags.kind, flags.folder)
    elif flags.action == "compare":
        compare(flags.contender, flags.folder)
    else:
        flags.result.write_text(json.dumps(time_batches(flags)))


if __name__ == "__main__":
    main()
