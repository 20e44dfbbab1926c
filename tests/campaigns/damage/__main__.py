"""The campaign: `python -m tests.campaigns damage [--kinds NAME ...] [--every N] [--load] [--log FILE]`."""

from __future__ import annotations

import argparse
import itertools
import logging
import tempfile
from pathlib import Path

from tests.campaigns.damage.cases import cases
from tests.campaigns.damage.kinds import kinds
from tests.campaigns.damage.oracle import Oracle
from tests.campaigns.tally import Tally

# Files in memory are written and read without waiting for a disk.
_MEMORY = Path("/dev/shm")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("--kinds", nargs="+", choices=list(kinds()), default=list(kinds()))
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--load", action="store_true", help="with TensorFlow, too")


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs the campaign."""
    logging.getLogger("readers").setLevel(logging.ERROR)
    for name in flags.kinds:
        print(name, flush=True)
        with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            oracle = Oracle(kinds()[name], Path(folder), flags.load)
            for case in itertools.islice(cases(kinds()[name]), 0, None, flags.every):
                outcomes, faults = oracle.judge(case)
                row = f"{name}: {case.damage} of {case.what}"
                tally.add({"cases": 1, **outcomes}, row, "all", kind=name, case=case)
                for fault in faults:
                    tally.fault(f"{name}: {case}: {fault}")
