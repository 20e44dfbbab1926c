"""Jobs that are killed: `python -m tests.campaigns kills [--kills 1000] [--first 0] [--jobs text ...] [--stores disk ...]`."""

from __future__ import annotations

import argparse

from tests.campaigns.kills.campaign import JOBS, STORES, run_campaign
from tests.campaigns.tally import Tally


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first kill")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs the campaign."""
    run_campaign(range(flags.first, flags.first + flags.kills), flags.jobs, flags.stores, tally)
