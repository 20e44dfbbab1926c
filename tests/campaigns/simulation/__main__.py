"""A campaign of many seeds, of all jobs or of one: `python -m tests.campaigns simulation 100000 [--first N] [--job near]`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from beam_jobs.engines.direct import cores
from beam_jobs.engines.fork_server import fork_context
from tests.campaigns.simulation.scenario import run_seeds
from tests.campaigns.tally import Tally

_PER_TASK = 50


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns simulation", description=__doc__
    )
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--job", default="", help="the only one; else the seed decides")
    parser.add_argument("--log", type=Path, help="a line of JSON for some seeds together")
    options = parser.parse_args(arguments)
    tally, end = Tally(options.log), options.first + options.seeds
    tasks = [range(at, min(at + _PER_TASK, end)) for at in range(options.first, end, _PER_TASK)]
    with fork_context(()).Pool(cores()) as pool:
        found = pool.imap_unordered(partial(run_seeds, name=options.job), tasks)
        for number, (struck, failed) in enumerate(found, 1):
            for name, times in struck.items():
                tally.add({"times": times}, name)
            for seed, text in failed.items():
                tally.fault(f"seed {seed}\n{text}")
            if number % 100 == 0:
                print(f"{number * _PER_TASK:,} seeds", flush=True)
    return tally.end()
