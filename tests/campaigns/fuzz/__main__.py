"""Foreign bytes: `python -m tests.campaigns fuzz all --hours 1`, `python -m tests.campaigns fuzz NAME --seconds 60`; README.md says more."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.replay import replay
from tests.campaigns.fuzz.running import confirmed, fuzz, keep
from tests.campaigns.tally import Tally


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    names = [*registry.NAMES, "all"]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--hours", type=float, default=0.0, help="of all targets together")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each, without --hours")
    parser.add_argument("--processes", type=int, default=1, help="targets at the same time")
    parser.add_argument(
        "--work", type=Path, default=Path(".fuzz"), help="a folder for growing corpora"
    )
    parser.add_argument("--keep", action="store_true", help="choose the corpora of the tests")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="check some inputs")


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs a campaign, chooses corpora, or checks inputs again."""
    names, work = registry.NAMES if flags.names == ["all"] else flags.names, flags.work.absolute()

    def campaign(name: str) -> None:
        began = time.monotonic()
        result = fuzz(name, seconds, work)
        counts = {"executions": result.executions, "new": result.new}
        tally.add({**counts, "seconds": time.monotonic() - began}, name, "all", target=name)
        print(name, counts, flush=True)
        for text in [*confirmed(name, work), *filter(None, [result.failed])]:
            tally.fault(f"{name}: {text}")

    if flags.replay:
        for name in names:
            for file, message in replay(name, flags.replay):
                tally.fault(f"{name}: {file}: {message}")
    elif flags.keep:
        for name in names:
            tally.add({"kept": keep(name, work)}, name, "all")
    else:
        seconds = flags.hours * 3600 * flags.processes / len(names) or flags.seconds
        with ThreadPoolExecutor(flags.processes) as pool:
            list(pool.map(campaign, names))
