"""What this process has: memory, descriptors, threads and processes that it has started. Linux only."""

from __future__ import annotations

from pathlib import Path

_MEMORY = {"Rss": "rss", "Anonymous": "anonymous"}


def resources() -> dict[str, float]:
    """Memory in MB, and counts of all else."""
    proc = Path("/proc/self")
    found: dict[str, float] = {}
    for line in (proc / "smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in _MEMORY:
            found[_MEMORY[name]] = round(int(rest.split()[0]) / 1024, 3)
    tasks = list((proc / "task").iterdir())
    found["descriptors"], found["threads"] = sum(1 for _ in (proc / "fd").iterdir()), len(tasks)
    found["children"] = sum(len((task / "children").read_text().split()) for task in tasks)
    return found
