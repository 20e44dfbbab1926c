"""The campaign: every case of every kind, and a table of what became of them.

`python -m tests.damage [--kinds NAME ...] [--every N] [--load N] [--log FILE]`
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.damage.cases import cases
from tests.damage.kinds import kinds
from tests.damage.oracle import Oracle, Verdict, quickly

_COLUMNS = ("cases", "named", "not named", "raised", "exact", "harmless", "elsewhere", "faults")

# The cards of all datasets are written and checked by the same functions: one is damaged everywhere.
_WITH_WHOLE_CARD = "text_raw"

# Files in memory are written and read without waiting for a disk.
_MEMORY = Path("/dev/shm")


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.damage", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(kinds()), default=list(kinds()))
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--card", type=int, default=25, help="only every Nth byte of a card")
    parser.add_argument("--load", type=int, default=100, help="every Nth case with TensorFlow")
    parser.add_argument("--log", type=Path, help="where every fault and unnamed damage is listed")
    options = parser.parse_args(arguments)
    table: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    memory = _MEMORY if _MEMORY.is_dir() else None
    listed, began = list[str](), time.monotonic()
    for name in options.kinds:
        kind = kinds()[name]
        step = 1 if name == _WITH_WHOLE_CARD else options.card
        chosen = itertools.islice(cases(kind, step), 0, None, options.every)
        with tempfile.TemporaryDirectory(dir=memory) as folder, quickly():
            oracle = Oracle(kind, Path(folder))
            for number, case in enumerate(chosen):
                verdict = oracle.judge(case, with_load=number % options.load == 0)
                table[name, case.what, case.damage] += _counts(verdict)
                listed += [f"{name}: {case}: FAULT: {fault}" for fault in verdict.faults]
                if verdict.named is False:
                    listed.append(f"{name}: {case}: not named by verify")
        done = sum(row["cases"] for row in table.values())
        print(f"{name}: {done:,} cases after {time.monotonic() - began:.0f} s", flush=True)
        if options.log:
            options.log.write_text("".join(f"{line}\n" for line in listed), encoding="utf-8")
    _print(table)
    return any(row["faults"] for row in table.values())


def _counts(verdict: Verdict) -> Counter[str]:
    return Counter(
        {
            "cases": 1,
            "named": verdict.named is True,
            "not named": verdict.named is False,
            "raised": verdict.raised > 0,
            "exact": verdict.exact > 0,
            "harmless": verdict.is_harmless,
            "elsewhere": verdict.elsewhere > 0,
            "faults": bool(verdict.faults),
        }
    )


def _print(table: dict[tuple[str, str, str], Counter[str]]) -> None:
    print(f"{'kind':18}{'file':20}{'damage':42}" + "".join(f"{c:>11}" for c in _COLUMNS))
    total: Counter[str] = Counter()
    for (kind, what, damage), row in sorted(table.items()):
        total += row
        print(f"{kind:18}{what:20}{damage:42}" + "".join(f"{row[c]:11,}" for c in _COLUMNS))
    print(f"{'all':80}" + "".join(f"{total[c]:11,}" for c in _COLUMNS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
