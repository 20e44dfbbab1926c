"""Reads a dataset by turns, in the environment of a revision that `compare.py` measures.

    python reading_turns.py '{"calls": [...], "path": "...", "options": {...}}'

It opens the dataset with the first of the calls that this revision knows, prints a line when it has begun to read,
and then reads for as many seconds as each line of its input says. It answers with the records, the seconds, and
the processor seconds of all its threads.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import readers

WARM_SECONDS = 0.5
# At the beginning of a turn, batches are ready that were read during the turns of others.
WARM_SHARE = 0.2


def opened(calls: list[str], path: str, options: dict[str, Any]) -> Iterator[Any]:
    """Returns an iterator of batches, by the first call that does not fail."""
    for call in calls:
        try:
            found: Iterator[Any] = iter(
                eval(call, {"readers": readers, "path": path, "options": options})
            )
            return found
        except (AttributeError, TypeError) as error:
            print(f"{call}: {error}", file=sys.stderr)
    sys.exit("none of these calls works with this revision")


def read(batches: Iterator[Any], seconds: float) -> tuple[int, float, float]:
    """Returns the number of records read in a number of seconds, these seconds, and the processor seconds."""
    count, cpu, began = 0, time.process_time(), time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        batch = next(batches)
        first = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
        count += first.shape[0]
    return count, spent, time.process_time() - cpu


def main() -> None:
    """Reads until the input ends."""
    batches = opened(**json.loads(sys.argv[1]))
    read(batches, WARM_SECONDS)
    print("reading", flush=True)
    for line in sys.stdin:
        read(batches, WARM_SHARE * float(line))
        print(json.dumps(read(batches, float(line))), flush=True)


if __name__ == "__main__":
    main()
