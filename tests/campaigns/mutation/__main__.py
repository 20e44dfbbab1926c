"""A campaign over targets: `python -m tests.campaigns mutation [TARGETS] [--log FILE]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.campaigns.mutation.equivalent import equivalents
from tests.campaigns.mutation.mutants import Mutant, mutants_of
from tests.campaigns.mutation.session import KILLED, SURVIVED, TIMEOUT, UNREACHED, Session
from tests.campaigns.mutation.targets import TARGETS
from tests.conftest import TIERS
from tests.support.checkout import ROOT

_EQUIVALENT = "equivalent"

# The share of the mutants that are no equivalents which tests must kill.
_WANTED = 0.9


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutation", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument(
        "--log",
        type=Path,
        help="append a line for every mutant; those that are killed in it are not tried again",
    )
    asked = parser.parse_args(arguments)
    if unknown := set(asked.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(TARGETS)}")
    tables = [_run(name, asked.log) for name in asked.targets or TARGETS]
    print(
        "\n| module | mutants | killed | by time | survived | equivalent | killed of the others |"
    )
    print("|---|---|---|---|---|---|---|")
    total = Counter[str]()
    for table in tables:
        for module, counts in table.items():
            print(_row(module, counts))
            total += counts
    print(_row("all", total))
    return _share(total) < _WANTED


def _last_outcomes(log: Path | None) -> dict[str, str]:
    """The key of each mutant in a log and what came of it the last time."""
    outcomes = {}
    if log and log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            outcome, _, _, _, key = line.split("\t")
            outcomes[key] = outcome
    return outcomes


def _run(name: str, log: Path | None) -> dict[str, Counter[str]]:
    """Tries the mutants of a target; returns how many ended how in each module."""
    target, known, began = TARGETS[name], equivalents(), time.monotonic()
    mutants = {module: mutants_of(ROOT / module, module) for module in target.modules}
    counts = {module: Counter[str]() for module in target.modules}
    wanted, before = [], _last_outcomes(log)
    stale = {key for key in known if key.split(" ")[0] in counts}
    for module, found in mutants.items():
        for mutant in found:
            stale.discard(mutant.key)
            if mutant.key in known:
                counts[module][_EQUIVALENT] += 1
            elif before.get(mutant.key) in (KILLED, TIMEOUT):
                counts[module][before[mutant.key]] += 1
            else:
                wanted.append(mutant)
    if stale:
        raise SystemExit(f"equivalent.txt lists what is no mutant (any more): {sorted(stale)}")
    shown = os.fdopen(os.dup(1), "w", encoding="utf-8")
    lines = log.open("a", encoding="utf-8") if log else None

    def report(mutant: Mutant, outcome: str, seconds: float, tests: int) -> None:
        module = mutant.key.split(" ")[0]
        counts[module][outcome] += 1
        line = f"{outcome}\t{seconds:.2f}\t{tests}\t{mutant.line}\t{mutant.key}"
        if lines:
            print(line, file=lines, flush=True)
        if outcome in (SURVIVED, UNREACHED):
            print(f"{outcome}: line {mutant.line} of {mutant.key}", file=shown, flush=True)

    with contextlib.closing(shown), lines or contextlib.nullcontext():
        if wanted:
            code = pytest.main(
                [
                    *(str(ROOT / test) for test in target.tests),
                    *("-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"),
                    *("-m", f"not ({' or '.join(sorted(TIERS))})"),
                ],
                plugins=[Session(wanted, report)],
            )
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                raise SystemExit(f"{name}: pytest ended with {code!r}")
        print(f"{name}: {len(wanted)} mutants in {time.monotonic() - began:.0f} s", file=shown)
    return counts


def _share(counts: Counter[str]) -> float:
    tried = counts.total() - counts[_EQUIVALENT]
    return (counts[KILLED] + counts[TIMEOUT]) / tried if tried else 1.0


def _row(name: str, counts: Counter[str]) -> str:
    survived = counts[SURVIVED] + counts[UNREACHED]
    return (
        f"| {name} | {counts.total()} | {counts[KILLED]} | {counts[TIMEOUT]} | {survived} "
        f"| {counts[_EQUIVALENT]} | {_share(counts):.1%} |"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
