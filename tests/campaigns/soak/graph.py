"""Draws the log of a soak: memory, descriptors and work over the hours. Needs Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import numpy as np
from matplotlib import pyplot

from tests.campaigns.soak.verdict import PROCESSES, WARM_UP, Line, points_of, slope_of, warm

_COLOURS = {"reader": "tab:blue", "writer": "tab:orange"}
# The same log always gives the same file.
matplotlib.rcParams["svg.hashsalt"] = "soak"


def draw(lines: Sequence[Line], file: Path) -> None:
    """Writes a graph as a file of the format that its name's ending says."""
    hours = max(line["hours"] for line in lines)
    figure, rows = pyplot.subplots(
        4, 1, figsize=(9, 10), sharex=True, height_ratios=(3, 3, 1.6, 1.6), layout="constrained"
    )
    for axes, process in zip(rows, PROCESSES, strict=False):
        colour = _COLOURS[process]
        at_work = points_of(lines, process, "rss", False)
        between = points_of(lines, process, "rss", True)
        private = points_of(lines, process, "anonymous", True)
        axes.plot(*at_work.T, color="0.8", linewidth=0.8, label="RSS, each 15 s")
        axes.plot(*between.T, ".", color=colour, markersize=2.5, label="RSS between steps")
        axes.plot(*private.T, ".", color="0.45", markersize=2, label="of it anonymous")
        slope = slope_of(warm(between, hours))
        title = f"{process}: memory (RSS)"
        if slope:
            found = warm(between, hours)
            middle = np.median(found, 0)
            ends = np.array([found[0, 0], found[-1, 0]])
            axes.plot(ends, middle[1] + slope.value * (ends - middle[0]), "k--", linewidth=1.2)
            title += (
                f" grows by {slope.value:+.2f} MB an hour ({slope.low:+.2f} to {slope.high:+.2f})"
            )
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set_ylabel("MB")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small", loc="lower right", ncols=3)
    for process in PROCESSES:
        counts = points_of(lines, process, "descriptors", True)
        rows[2].plot(
            *counts.T, drawstyle="steps-post", linewidth=1, color=_COLOURS[process], label=process
        )
    rows[2].set_title("open descriptors between steps", loc="left", fontsize="medium")
    rows[2].set_ylim(bottom=0)
    rows[2].legend(fontsize="small", loc="lower right", ncols=2)
    _draw_work(lines, rows[3])
    for axes in rows:
        axes.axvspan(0, WARM_UP * hours, color="0.95", zorder=0)
        axes.grid(color="0.9", linewidth=0.5)
    rows[-1].set_xlabel("hours; the grey fifth is warm-up, and not in the slopes")
    rows[-1].set_xlim(0, hours)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None, dpi=110)
    pyplot.close(figure)


def _draw_work(lines: Sequence[Line], axes: pyplot.Axes) -> None:
    """Draws how many epochs, jobs and faults there were until each time."""
    steps = [line for line in lines if line["kind"] == "step" and "failure" not in line]
    kinds = {"epochs": ("reader", _COLOURS["reader"]), "jobs": ("writer", _COLOURS["writer"])}
    for name, (process, colour) in kinds.items():
        times = [line["hours"] for line in steps if line["process"] == process]
        numbers = [line.get("epochs", 1) for line in steps if line["process"] == process]
        total = sum(numbers)
        axes.plot(times, np.cumsum(numbers), color=colour, label=f"{name}: {total:,}")
    weather = [line for line in lines if line["kind"] == "weather"]
    faults = [
        sum(n for name, n in line["counts"].items() if name.startswith("fault")) for line in weather
    ]
    label = f"faults of the store: {faults[-1] if faults else 0:,}"
    axes.plot([line["hours"] for line in weather], faults, color="tab:red", label=label)
    axes.set_title("done until then", loc="left", fontsize="medium")
    axes.set_yscale("symlog")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small", loc="lower right", ncols=3)
