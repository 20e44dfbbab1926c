"""The loop of a process under watch: it works, states what it did and holds, and rests."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.campaigns.soak.resources import resources


def planted(process: str) -> Callable[[], None]:
    """What is wrong after each step of a process, for the tests of the soak.

    `SOAK_PLANT` names the process and a fault: `reader memory` keeps 20 MB, `reader files` keeps three descriptors,
    `reader sleep` does not return.
    """
    fault = os.environ.get("SOAK_PLANT", "").removeprefix(f"{process} ")
    kept: list[Any] = []
    faults: dict[str, Callable[[], Any]] = {
        "memory": lambda: kept.append(os.urandom(20 << 20)),
        "files": lambda: kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(3)),
        "sleep": lambda: time.sleep(1e6),
    }
    return faults.get(fault, lambda: None)


def run_steps(
    process: str, step: Callable[[int], dict[str, Any] | None], folder: Path, rest: float
) -> None:
    """Calls a step with 0, 1, 2 and so on until the parent has ended, and prints a line of JSON for each.

    Args:
        process: Its name.
        step: Returns what it did; None if there was nothing to do yet.
        folder: SIGUSR1 writes the stacks of all threads to a file there.
        rest: How many times as long as it worked the process sleeps.
    """
    stacks = (folder / f"stacks-{os.getpid()}").open("w")
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    spoil, number, parent = planted(process), 0, os.getppid()
    answers, sys.stdout = sys.stdout, sys.stderr  # stdout is for the lines of JSON.
    while os.getppid() == parent:
        began = time.monotonic()
        try:
            done = step(number)
        except Exception:
            done = {"failure": traceback.format_exc()}
        seconds = time.monotonic() - began
        if done is not None:
            # With TensorFlow there are 440,000 objects, and Python looks through all of them for cycles when there
            # are a quarter more: after a hundred datasets, an hour. What waits for that is not kept.
            gc.collect()
            line = {"step": number, **done, "seconds": round(seconds, 3), **resources()}
            print(json.dumps(line), file=answers, flush=True)
            spoil()
            number += 1
        time.sleep(min(max(seconds * rest, 0.2), 30))
