"""Jobs on a simulated runner and store: `python -m tests.campaigns simulation 100000 [--first N] [--job near]`.

The pipelines, steps and files are those of real jobs. The runner cuts collections into bundles at random,
runs them in any order, loses attempts half-way, repeats them, and lets attempts that it believes dead run
beside later ones; it may lose or repeat elements, too. The store fails before a request or after it, is full,
or the whole job dies at a request; other jobs write beside it. Whatever happens, readers see a whole generation
or none, no file has two contents, and the next run ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import argparse
from functools import partial

from beam_jobs.engines.pool import fork_context
from readers.files.processors import processors
from tests.campaigns.simulation.scenario import outcome
from tests.campaigns.tally import Tally

_PER_TASK = 50


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--job", default="", help="the only one; else the seed decides")


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs the campaign."""
    seeds = range(flags.first, flags.first + flags.seeds)
    with fork_context(()).Pool(processors()) as pool:
        outcomes = pool.imap_unordered(partial(outcome, name=flags.job), seeds, _PER_TASK)
        for number, (seed, struck, failure) in enumerate(outcomes, 1):
            for name, times in struck.items():
                tally.add({"times": times}, name, seed=seed)
            if failure:
                tally.fault(f"seed {seed}\n{failure}")
            if number % 5000 == 0:
                print(f"{number:,} seeds", flush=True)
