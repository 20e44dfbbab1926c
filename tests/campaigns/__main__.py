"""Campaigns that run for as long as one likes.

    python -m tests.campaigns kills --kills 1000     jobs that are killed at a random step
    python -m tests.campaigns simulation 100000      jobs on a runner and a store that fail
    python -m tests.campaigns histories 10000        commands that change datasets, against a model
    python -m tests.campaigns fuzz all --hours 2     functions that take foreign bytes
    python -m tests.campaigns damage                 every byte of small datasets, damaged
    python -m tests.campaigns mutation               faults in the code that tests must notice
    python -m tests.campaigns soak --hours 2         jobs and readers that run for hours

Each says more with --help, prints a table at its end, and exits with 1 if it found a fault.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from tests.campaigns.tally import Tally

NAMES = ("kills", "simulation", "histories", "fuzz", "damage", "mutation", "soak")


def main(arguments: Sequence[str]) -> int:
    """Runs the campaign that the first argument names; returns the exit code."""
    if not arguments or arguments[0] not in NAMES:
        print(__doc__, end="", file=sys.stderr)
        return 2
    name, *flags = arguments
    campaign = importlib.import_module(f"tests.campaigns.{name}.__main__")
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.campaigns {name}",
        description=campaign.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="a line of JSON for each case")
    campaign.add_flags(parser)
    given = parser.parse_args(flags)
    tally = Tally(given.log)
    # Readers keep indexes there.
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, XDG_CACHE_HOME=cache):
        campaign.run(given, tally)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
