"""What the log of a soak proves: how fast memory grows, and whether all work was done and whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tests.campaigns.tally import Tally

MOST_MB_AN_HOUR = 1.0
PROCESSES = ("reader", "writer")

_WARM_UP = 0.2
_MEMORY = ("rss", "anonymous")
_COUNTS = ("descriptors", "threads", "children")

Line = dict[str, Any]


def lines_of(log: Path) -> list[Line]:
    """The lines in the files of a log's folder; a last one that was cut off is left out."""
    found = []
    for file in sorted(log.glob("*.jsonl")):
        whole, _, _ = file.read_text().rpartition("\n")
        found += [{"process": file.stem, **json.loads(line)} for line in whole.splitlines()]
    return found


def _points(lines: Iterable[Line], name: str) -> np.ndarray:
    """Hours and values after the steps of a process, float64 [n, 2], without the first fifth of the time."""
    found = [(line["hours"], line[name]) for line in lines if name in line]
    points = np.array(found, np.float64).reshape(-1, 2)
    return points[points[:, 0] >= _WARM_UP * points[:, 0].max(initial=0)]


def slope_of(points: np.ndarray) -> tuple[float, float, float] | None:
    """How fast a value grows in an hour, and its interval of 95 %; None with too few points to tell.

    By Theil and Sen: the median over all pairs of points.
    """
    if len(points) < 8:
        return None
    value, _, low, high = stats.theilslopes(points[:, 1], points[:, 0])
    return float(value), float(low), float(high)


def growth_of(points: np.ndarray) -> float:
    """By how much the least and the median of a count have both grown, from the first third to the last."""
    if len(points) < 4:
        return 0
    third = len(points) // 3
    first, last = points[:third, 1], points[-third:, 1]
    return float(min(last.min() - first.min(), np.median(last) - np.median(first)))


def judge(lines: Sequence[Line], tally: Tally) -> None:
    """Counts what a soak has done, prints how its memory went, and adds what is wrong to the faults."""
    for line in lines:
        if "failure" in line:
            tally.fault(f"{line['process']}: {line['failure']}")
        elif "what" in line:
            counts = {"steps": 1, "epochs": line.get("epochs", 0), "records": line["records"]}
            tally.add(counts, line["process"], f"{line['process']}: {line['what']}")
        else:
            for name, times in line["counts"].items():
                tally.add({"times": times}, f"store: {name}")
    for process in PROCESSES:
        if process not in tally.rows:
            tally.fault(f"{process}: no work in all the time")
        own = [line for line in lines if line["process"] == process]
        for name in _MEMORY:
            slope = slope_of(_points(own, name))
            if slope is None:
                continue
            value, low, high = slope
            print(f"{process}: {name} {value:+.2f} MB an hour ({low:+.2f} to {high:+.2f})")
            if value >= MOST_MB_AN_HOUR:
                tally.fault(f"{process}: {name} grows by {value:.2f} MB an hour")
        for name in _COUNTS:
            if (growth := growth_of(_points(own, name))) > 0:
                tally.fault(f"{process}: {name} have grown by {growth:.0f}")
