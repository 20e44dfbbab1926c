"""A campaign of kills: `python -m tests.campaigns kills --kills 1000 [--first 0] [--jobs text,…] [--stores disk,…] [--log FILE]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.campaigns.kills.campaign import JOBS, STORES, run_campaign


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first kill")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--log", type=Path, help="a file with every kill; stdout gets the rest")
    given = parser.parse_args(arguments)

    def say(text: str) -> None:
        if given.log:
            with given.log.open("a", encoding="utf-8") as log:
                print(text, file=log)
        if not given.log or not text[:1].isdigit() or "after" in text.split("\n")[0][:20]:
            print(text, flush=True)

    numbers = range(given.first, given.first + given.kills)
    table = run_campaign(numbers, given.jobs.split(","), given.stores.split(","), say)
    print("\n".join(["faults:", *(table.faults or ["none"])]))
    return bool(table.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
