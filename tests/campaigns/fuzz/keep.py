"""Keeps small corpora: `python -m tests.campaigns fuzz.keep [NAMES]` chooses from `.fuzz/corpora` what reaches new lines.

They are written to `fuzz/corpora`, whose files tests replay and campaigns begin with.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.findings import name_of
from tests.campaigns.fuzz.reduce import covering, read_all
from tests.campaigns.fuzz.replay import failure

# For each target; all targets together stay below 1 MB and some hundred files.
_MOST, _MOST_BYTES = 14, 24_000
_WORK = Path(".fuzz")
_TRIED = 1500


def _keep(name: str) -> None:
    folder = registry.CORPORA / name
    target = registry.find(name)
    inputs = [*target.seeds(), *read_all(folder), *read_all(_WORK / "corpora" / name)[:_TRIED]]
    passing = [data for data in dict.fromkeys(inputs) if failure(target, data) is None]
    chosen = covering(target, passing, _MOST, _MOST_BYTES)
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for data in chosen:
        (folder / name_of(data)).write_bytes(data)
    print(f"{name}: {len(chosen)} of {len(passing)}, {sum(map(len, chosen)):,} bytes", flush=True)


def main(names: Sequence[str]) -> int:
    """Keeps the corpora of some targets, or of all, each in a process of its own."""
    if len(names) == 1:
        _keep(names[0])
        return 0
    codes = [
        subprocess.run(
            [sys.executable, "-m", "tests.campaigns.fuzz.keep", name], check=False
        ).returncode
        for name in names or registry.NAMES
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
