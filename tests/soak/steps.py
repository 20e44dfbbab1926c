"""The loop of a process under watch: it works, states what it did and holds, and rests."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.soak.resources import resources


def leak_of_tests() -> Callable[[], None]:
    """What keeps `SOAK_LEAK_MB` of memory and `SOAK_LEAK_FILES` descriptors each time it is called."""
    megabytes = float(os.environ.get("SOAK_LEAK_MB", 0))
    files = int(os.environ.get("SOAK_LEAK_FILES", 0))
    kept: list[Any] = []

    def leak() -> None:
        kept.append(os.urandom(int(megabytes * (1 << 20))))
        kept.extend(os.open("/dev/null", os.O_RDONLY) for _ in range(files))

    return leak


def run_steps(step: Callable[[int], dict[str, Any] | None], folder: Path, rest: float) -> None:
    """Calls a step with 0, 1, 2 and so on until the parent has ended, and prints a line of JSON for each.

    Args:
        step: Returns what it did; None if there was nothing to do yet.
        folder: SIGUSR1 writes the stacks of all threads to a file there.
        rest: How many times as long as it worked the process sleeps.
    """
    stacks = (folder / f"stacks-{os.getpid()}").open("w")
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    leak, number, parent = leak_of_tests(), 0, os.getppid()
    answers, sys.stdout = sys.stdout, sys.stderr  # What a job prints is no line of ours.
    while os.getppid() == parent:
        began = time.monotonic()
        try:
            done = step(number)
        except Exception:
            done = {"failure": traceback.format_exc()}
        seconds = time.monotonic() - began
        if done is not None:
            leak()
            line = {"step": number, **done, "seconds": round(seconds, 3), **resources()}
            print(json.dumps(line), file=answers, flush=True)
            number += 1
        time.sleep(min(max(seconds * rest, 0.2), 30))
