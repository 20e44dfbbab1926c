"""What a process holds: memory, descriptors, threads and processes that it has started. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

_MEMORY = {"Rss": "rss", "Pss": "pss", "Anonymous": "anonymous"}
_TICKS = os.sysconf("SC_CLK_TCK")


def resources(process: int | str = "self") -> dict[str, float]:
    """Memory in MB, CPU in seconds with that of ended children, and counts of all else.

    Raises:
        OSError: There is no such process.
    """
    proc = Path("/proc") / str(process)
    found: dict[str, float] = {}
    for line in (proc / "smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in _MEMORY:
            found[_MEMORY[name]] = round(int(rest.split()[0]) / 1024, 3)
    found["descriptors"] = sum(1 for _ in (proc / "fd").iterdir())
    found["threads"] = sum(1 for _ in (proc / "task").iterdir())
    found["children"] = sum(
        len((task / "children").read_text().split()) for task in (proc / "task").iterdir()
    )
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    found["cpu"] = sum(map(int, fields[11:15])) / _TICKS
    return found
