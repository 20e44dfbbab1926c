"""A campaign of many seeds, of all jobs or of one: `python -m tests.campaigns simulation 100000 [first_seed [near]]`."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from beam_jobs.engines.direct import cores
from beam_jobs.engines.fork_server import fork_context
from tests.campaigns.simulation.scenario import run_seeds

_PER_TASK = 50


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    tasks = [
        range(at, min(at + _PER_TASK, first + count))
        for at in range(first, first + count, _PER_TASK)
    ]
    struck, failures, began = Counter[str](), dict[int, str](), time.monotonic()
    with fork_context(()).Pool(cores()) as pool:
        run = partial(run_seeds, name=arguments[2] if len(arguments) > 2 else "")
        found: Iterable[tuple[Counter[str], dict[int, str]]] = pool.imap_unordered(run, tasks)
        for number, (more, failed) in enumerate(found, 1):
            struck += more
            failures |= failed
            for seed, text in failed.items():
                print(f"seed {seed}\n{text}", flush=True)
            if number % 100 == 0:
                print(f"{number * _PER_TASK:,} seeds, {len(failures)} failed", flush=True)
    print(f"{count:,} seeds from {first}, {time.monotonic() - began:.0f} s")
    for name, times in sorted(struck.items()):
        print(f"  {name}: {times:,}")
    print(f"failed: {sorted(failures) or 'none'}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
