"""Jobs that are killed: `python -m tests.campaigns kills [--kills 1000] [--first 0] [--jobs text ...] [--stores disk ...]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.campaigns.kills.campaign import JOBS, STORES, run_campaign
from tests.campaigns.tally import Tally


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first kill")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--log", type=Path, help="a line of JSON for each kill")
    given = parser.parse_args(arguments)
    tally = Tally(given.log)
    run_campaign(range(given.first, given.first + given.kills), given.jobs, given.stores, tally)
    return tally.end()
