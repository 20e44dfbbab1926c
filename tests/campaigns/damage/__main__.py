"""The campaign: every case of every kind, and a table of what became of them.

`python -m tests.campaigns damage [--kinds NAME ...] [--every N] [--load N] [--log FILE]`
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.campaigns.damage.cases import cases
from tests.campaigns.damage.kinds import kinds
from tests.campaigns.damage.oracle import Oracle, Verdict, quickly

_COLUMNS = (
    "cases",
    "named",
    "not named",
    "raised",
    "exact",
    "harmless",
    "elsewhere",
    "renamed",
    "faults",
)

# (kind, file, damage) -> the counts of a row.
Table = dict[tuple[str, str, str], Counter[str]]

# Files in memory are written and read without waiting for a disk.
_MEMORY = Path("/dev/shm")


def main(arguments: list[str]) -> int:
    """Runs the campaign; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.damage", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=list(kinds()), default=list(kinds()))
    parser.add_argument("--every", type=int, default=1, help="only every Nth case")
    parser.add_argument("--load", type=int, default=0, help="every Nth case with TensorFlow")
    parser.add_argument("--files", nargs="+", help="only such files: shard, index, manifest, ...")
    parser.add_argument("--log", type=Path, help="where every fault and unnamed damage is listed")
    options = parser.parse_args(arguments)
    table: Table = defaultdict(Counter)
    memory = _MEMORY if _MEMORY.is_dir() else None
    listed, began = list[str](), time.monotonic()
    for name in options.kinds:
        kind = kinds()[name]
        wanted = (case for case in cases(kind) if not options.files or case.what in options.files)
        chosen = itertools.islice(wanted, 0, None, options.every)
        with tempfile.TemporaryDirectory(dir=memory) as folder, quickly():
            oracle = Oracle(kind, Path(folder))
            for number, case in enumerate(chosen):
                verdict = oracle.judge(case, bool(options.load) and number % options.load == 0)
                table[name, case.what, case.damage].update(_counts(verdict))
                listed += [f"{name}: {case}: FAULT: {fault}" for fault in verdict.faults]
                if verdict.named is False:
                    listed.append(f"{name}: {case}: not named by verify")
        print(
            f"{name}: {_total(table)['cases']:,} cases, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if options.log:
            text = "".join(f"{line}\n" for line in (_table(table), *listed))
            options.log.write_text(text, encoding="utf-8")
    print(_table(table))
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
            "renamed": verdict.renamed > 0,
            "faults": bool(verdict.faults),
        }
    )


def _total(table: Table) -> Counter[str]:
    total: Counter[str] = Counter()
    for row in table.values():
        total.update(row)
    return total


def _table(table: Table) -> str:
    rows = [("kind", "file", "damage", _COLUMNS)]
    rows += [(*names, [f"{row[c]:,}" for c in _COLUMNS]) for names, row in sorted(table.items())]
    rows.append(("all", "", "", [f"{_total(table)[c]:,}" for c in _COLUMNS]))
    return "\n".join(
        f"{kind:18}{what:20}{damage:40}" + "".join(f"{value:>11}" for value in values)
        for kind, what, damage, values in rows
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
