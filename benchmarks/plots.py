"""Draws the figures of `read_shards.py` as SVG files. Needs Matplotlib.

python plots.py RESULTS.json FOLDER

FOLDER/pictures_by_cores.svg   pictures per second over cores, for each kind of pictures
FOLDER/records_by_kind.svg     shuffled records per second, for each kind of records
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

_OURS, _OTHERS = "tab:blue", "0.55"
_MARKERS = "os^Dvphd<>*X8P"
# The same figures always give the same file.
matplotlib.rcParams["svg.hashsalt"] = "read_shards"
_METADATA = {"Date": None}

Row = dict[str, Any]


def _axes(count: int, height: float) -> list[Axes]:
    """Returns plots, up to three side by side."""
    columns, rows = min(count, 3), -(-count // 3)
    size = (5.5 * columns, height * rows)
    _, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
    for unused in axes.flat[count:]:
        unused.set_axis_off()
    return list(axes.flat[:count])


def _save(path: Path) -> None:
    pyplot.tight_layout()
    pyplot.savefig(path, metadata=_METADATA)
    pyplot.close()


def _draw_cores(axes: Axes, rows: Sequence[Row], numbers: dict[str, int]) -> None:
    """Draws a line for every mode, the fastest first in the legend; this project's are blue and thick.

    Args:
        numbers: The number of each mode, which gives it a colour and a marker.
    """
    fastest = sorted(rows, key=lambda row: (-row["cores"], -row["median"]["pictures_per_second"]))
    for way in dict.fromkeys(row["way"] for row in fastest):
        number = numbers[way]
        points = sorted((r for r in rows if r["way"] == way), key=lambda row: row["cores"])
        axes.plot(
            [row["cores"] for row in points],
            [row["median"]["pictures_per_second"] for row in points],
            marker=_MARKERS[number % len(_MARKERS)],
            color=_OURS if points[0]["contender"] == "ours" else f"C{1 + number % 9}",
            linewidth=2.5 if points[0]["contender"] == "ours" else 1,
            label=way,
        )
    cores = sorted({row["cores"] for row in rows})
    axes.set_xticks(cores, [str(number) for number in cores])
    axes.set_xlabel("cores")
    axes.set_ylabel("pictures per second")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def draw_pictures(results: Sequence[Row], path: Path) -> None:
    """Draws pictures per second over cores; modes that do not run are left out."""
    rows = [row for row in results if row["median"]]
    kinds = dict.fromkeys((row["dataset"], row["dtype"]) for row in rows)
    ways = dict.fromkeys(row["way"] for row in rows)
    numbers = {way: number for number, way in enumerate(ways)}
    for axes, (dataset, dtype) in zip(_axes(len(kinds), 6), kinds, strict=True):
        axes.set_title(f"{dataset}, {dtype}")
        of_kind = [r for r in rows if (r["dataset"], r["dtype"]) == (dataset, dtype)]
        _draw_cores(axes, of_kind, numbers)
    _save(path)


def _draw_bars(axes: Axes, rows: Sequence[Row]) -> None:
    """Draws a bar for every mode, the fastest on top; this project's are blue."""
    rows = sorted(rows, key=lambda row: row["median"]["records_per_second"])
    rates = [row["median"]["records_per_second"] / 1000 for row in rows]
    colors = [_OURS if row["contender"] == "ours" else _OTHERS for row in rows]
    bars = axes.barh([row["way"] for row in rows], rates, color=colors)
    axes.bar_label(bars, [f" {rate:,.0f}" for rate in rates], fontsize="small")
    axes.margins(x=0.2)
    axes.set_xlabel("thousands of records per second")


def draw_records(results: Sequence[Row], path: Path) -> None:
    """Draws shuffled records per second for each dataset and batching."""
    rows = [row for row in results if row["order"] == "shuffled"]
    kinds = dict.fromkeys((row["dataset"], row["batching"]) for row in rows)
    for axes, (dataset, batching) in zip(_axes(len(kinds), 4), kinds, strict=True):
        axes.set_title(f"{dataset}, {batching}")
        _draw_bars(axes, [r for r in rows if (r["dataset"], r["batching"]) == (dataset, batching)])
    _save(path)


def main() -> None:
    """Draws what the results have."""
    source, folder = map(Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    figures = json.loads(source.read_text())
    if any(row["median"] for row in figures.get("pictures", ())):
        draw_pictures(figures["pictures"], folder / "pictures_by_cores.svg")
    if figures.get("results"):
        draw_records(figures["results"], folder / "records_by_kind.svg")


if __name__ == "__main__":
    main()
