"""What the log of a soak proves: how fast memory grows, and whether all work was done and whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

MOST_MB_AN_HOUR = 1.0
WARM_UP = 0.2
PROCESSES = ("reader", "writer")
MEMORY = ("rss", "pss", "anonymous")
COUNTS = ("descriptors", "threads", "children")

# Shared pages count less in the PSS as other programs of the machine map them, so that it grows when these end.
_JUDGED = ("rss", "anonymous")

# The most points of a process that are compared: the time grows with the square of their number.
_MOST_POINTS = 1500

Line = dict[str, Any]


@dataclass(frozen=True)
class Slope:
    """How fast memory grows, in MB an hour.

    Attributes:
        value: By Theil and Sen: the median over all pairs of points.
        low, high: Its interval of 95 %.
        first, last: Medians of the first and the last tenth of the points, in MB.
        points: Their number.
    """

    value: float
    low: float
    high: float
    first: float
    last: float
    points: int


def lines_of(log: Path) -> list[Line]:
    """The lines of a log; a last one that was cut off is left out."""
    lines = log.read_text().splitlines()
    whole = lines[:-1] if lines and not lines[-1].endswith("}") else lines
    return [json.loads(line) for line in whole]


def points_of(lines: Iterable[Line], process: str, name: str, between: bool) -> np.ndarray:
    """Hours and values, float64 [n, 2].

    Args:
        between: The values after each step, where none is under way, or those of each 15 s.
    """
    kind = "step" if between else "sample"
    found = [
        (line["hours"], line[name])
        for line in lines
        if line["kind"] == kind and line["process"] == process and name in line
    ]
    return np.array(found, np.float64).reshape(-1, 2)


def warm(points: np.ndarray, hours: float) -> np.ndarray:
    """The points after the first fifth of the time, evenly thinned out."""
    points = points[points[:, 0] >= WARM_UP * hours]
    if len(points) > _MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int)]
    return points


def slope_of(points: np.ndarray) -> Slope | None:
    """How fast memory grows; None with too few points to tell."""
    if len(points) < 8:
        return None
    value, _, low, high = stats.theilslopes(points[:, 1], points[:, 0])
    tenth = max(len(points) // 10, 1)
    first, last = np.median(points[:tenth, 1]), np.median(points[-tenth:, 1])
    return Slope(*map(float, (value, low, high, first, last)), len(points))


def growth_of(points: np.ndarray) -> float:
    """By how much the least and the median of a count have both grown, from the first third to the last."""
    third = max(len(points) // 3, 1)
    first, last = points[:third, 1], points[-third:, 1]
    return float(min(last.min() - first.min(), np.median(last) - np.median(first)))


def counts_of(lines: Sequence[Line]) -> dict[str, Counter[str]]:
    """Jobs by kind, epochs by way of reading, records, and the store's requests and faults."""
    counts = {name: Counter[str]() for name in ("jobs", "epochs", "records")}
    for line in lines:
        if line["kind"] == "step" and "failure" not in line:
            if "job" in line:
                counts["jobs"][line["job"]] += 1
            else:
                counts["epochs"][line["way"]] += line["epochs"]
            counts["records"][line["process"]] += line["records"]
    weather: Mapping[str, int] = next(
        (line["counts"] for line in reversed(lines) if line["kind"] == "weather"), {}
    )
    for name in ("requests", "fault"):
        words = {k.removeprefix(f"{name} "): n for k, n in weather.items() if k.startswith(name)}
        counts["faults" if name == "fault" else name] = Counter(words)
    return counts


def _said(counts: Counter[str]) -> str:
    parts = ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items()))
    return f"{counts.total():,}" + (f" ({parts})" if parts else "")


def verdict(lines: Sequence[Line], limit: float = MOST_MB_AN_HOUR) -> tuple[list[str], list[str]]:
    """What a soak has shown, in lines of text, and what was wrong.

    Args:
        lines: The lines of its log.
        limit: From which growth of memory on, in MB an hour, something is wrong.
    """
    hours = max((line["hours"] for line in lines), default=0.0)
    counts = counts_of(lines)
    said = [f"ran {hours:.2f} hours, of which the first {WARM_UP:.0%} are warm-up"]
    said += [f"{name}: {_said(number)}" for name, number in counts.items()]
    wrong = [
        f"{line['process']} after {line['hours']:.2f} hours: {line['failure']}"
        for line in lines
        if "failure" in line
    ]
    wrong += [f"no {name} in all the time" for name in ("jobs", "epochs") if not counts[name]]
    for process in PROCESSES:
        for name in MEMORY:
            for between in (True, False):
                when = "between steps" if between else "each 15 s"
                slope = slope_of(warm(points_of(lines, process, name, between), hours))
                if slope is None:
                    said.append(f"{process} {name} {when}: too few points")
                    continue
                said.append(
                    f"{process} {name} {when}: {slope.value:+.2f} MB an hour "
                    f"({slope.low:+.2f} to {slope.high:+.2f}), from {slope.first:.1f} to {slope.last:.1f} MB, "
                    f"{slope.points} points"
                )
                if between and name in _JUDGED and slope.value >= limit:
                    wrong.append(f"{process}: {name} grows by {slope.value:.2f} MB an hour")
        for name in COUNTS:
            points = warm(points_of(lines, process, name, True), hours)
            if len(points) < 6:
                continue
            growth = growth_of(points)
            least, most = points[:, 1].min(), points[:, 1].max()
            said.append(
                f"{process} {name} between steps: {least:.0f} to {most:.0f}, "
                f"median {np.median(points[:, 1]):.0f}, grown by {growth:.0f}"
            )
            if growth > 0:
                wrong.append(f"{process}: {name} have grown by {growth:.0f}")
    return said, wrong
