"""Histories of datasets that live: `python -m tests.campaigns histories 10000 [--first N] [--processes 2]`.

Commands with random arguments change a dataset: nothing disturbs them, or they are killed before a change of a file, or
another command runs in the middle of them. After each, every reader sees what a model in plain Python states. With the same PYTHONHASHSEED, a seed does the same.
"""

from __future__ import annotations

import argparse

from beam_jobs.engines.pool import fork_context
from readers.files.processors import processors
from tests.campaigns.histories.history import outcome
from tests.campaigns.tally import Tally


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=processors())


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs the campaign."""
    seeds = range(flags.first, flags.first + flags.seeds)
    with fork_context(()).Pool(flags.processes) as pool:
        for number, (seed, counts, failure) in enumerate(
            pool.imap_unordered(outcome, seeds, 10), 1
        ):
            for name, times in counts.items():
                tally.add({"times": times}, name, seed=seed)
            if failure:
                tally.fault(f"seed {seed}\n{failure}")
            if number % 1000 == 0:
                print(f"{number:,} histories", flush=True)
