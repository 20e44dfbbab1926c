"""Campaigns: `python -m tests.campaigns fuzz all --hours 1`, `python -m tests.campaigns fuzz NAME --seconds 60`; README.md says more."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.replay import replay
from tests.campaigns.fuzz.running import confirmed, keep, run
from tests.campaigns.tally import Tally


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns fuzz", description=__doc__)
    parser.add_argument("names", nargs="+", help="targets, `all`, or `list`")
    parser.add_argument("--hours", type=float, default=0.0, help="of all targets together")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each, without --hours")
    parser.add_argument("--processes", type=int, default=1, help="targets at the same time")
    parser.add_argument("--log", type=Path, help="a line of JSON for each target")
    parser.add_argument(
        "--work", type=Path, default=Path(".fuzz"), help="a folder for growing corpora"
    )
    parser.add_argument("--keep", action="store_true", help="choose the corpora of the tests")
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="check some inputs")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs a campaign; returns 1 if it found anything."""
    options = _parser().parse_args(arguments)
    if options.names == ["list"]:
        print("\n".join(registry.NAMES))
        return 0
    names = registry.NAMES if options.names == ["all"] else options.names
    if unknown := [name for name in names if name not in registry.NAMES]:
        expected = ", ".join(registry.NAMES)
        print(f"error: no target {unknown[0]!r}: expected all, list or {expected}", file=sys.stderr)
        return 2
    if options.replay:
        return max(replay(name, options.replay) for name in names)
    work, tally = options.work.absolute(), Tally(options.log)
    if options.keep:
        for name in names:
            tally.add({"kept": keep(name, work)}, name, "all")
        return tally.end()
    seconds = options.seconds
    if options.hours:
        seconds = options.hours * 3600 * options.processes / len(names)

    def campaign(name: str) -> None:
        began = time.monotonic()
        result = run(name, seconds, work)
        counts = {"executions": result.executions, "new": result.new}
        tally.add({**counts, "seconds": time.monotonic() - began}, name, "all", target=name)
        print(name, counts, flush=True)
        for text in [*confirmed(name, work), *filter(None, [result.failed])]:
            tally.fault(f"{name}: {text}")

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(campaign, names))
    return tally.end()
