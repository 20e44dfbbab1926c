"""A process that reads with the compiled kernel or without it, for as long as a line of its input says.

    python kernel_process.py with|without WAY KIND FOLDER BATCHING ORDER

WAY is one of `ours.py`, or `loop over one batch`, which repeats a batch of `load` in a `tf.data.Dataset`.
It prints a line when it has begun, and the records per second of each turn.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import contender_process
from compiled_kernel import LOOP
from contender import SHUFFLED, Contender, Task
from records import BATCH, KINDS

from readers import is_compiled
from readers.format.compiled import library

_WARM_SECONDS = 0.6
_WARM_SHARE = 0.15


def _repeated(contender: Contender, task: Task) -> Any:
    """A dataset of one batch, again and again."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(next(iter(contender.modes["load"](task)))).repeat()


def main() -> None:
    """Reads by turns until the input ends."""
    kernel, way, kind, folder, batching, order = sys.argv[1:]
    if kernel == "without":
        library.library = lambda: None  # type: ignore[assignment]
    if is_compiled() != (kernel == "with"):
        sys.exit("the kernel is not compiled: install the package where there is a C compiler")
    contender = contender_process.load_contender("ours")
    contender.prepare("load" if way == LOOP else way)
    task = Task(KINDS[kind], Path(folder) / "ours", batching, order == SHUFFLED, None)
    batches = iter(_repeated(contender, task) if way == LOOP else contender.modes[way](task))

    def read(seconds: float) -> float:
        count, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            next(batches)
            count += BATCH
        return count / spent

    next(batches)
    read(_WARM_SECONDS)
    print("reading", flush=True)
    for line in sys.stdin:
        read(_WARM_SHARE * float(line))
        print(read(float(line)), flush=True)


if __name__ == "__main__":
    main()
