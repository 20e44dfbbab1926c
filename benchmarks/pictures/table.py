"""Measurements of contenders that read pictures, and their tables in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

YARDSTICK = "tf.data"


@dataclass(frozen=True)
class Reading:
    """Measurements of one process.

    Attributes:
        first_seconds: Time from opening the reader to its first batch.
        pictures_per_second: Rate after the start.
        cpu_seconds_per_picture: Processor time, user and system, of all processes.
        peak_bytes: Peak memory of all processes, imports included: the sum of their proportional set
            sizes, or of their resident sets where the kernel hides those.
    """

    first_seconds: float
    pictures_per_second: float
    cpu_seconds_per_picture: float
    peak_bytes: int


@dataclass
class Result:
    """Measurements of one mode.

    Attributes:
        dataset, dtype: What was read.
        contender, way: The contender and the name of its mode.
        cores: The cores that it was allowed.
        runs: One reading for each run.
        problem: Why there are no readings, or fewer.
    """

    dataset: str
    dtype: str
    contender: str
    way: str
    cores: int
    runs: list[Reading] = field(default_factory=list)
    problem: str | None = None

    @property
    def median(self) -> Reading | None:
        """The median of each figure of the runs; None if the mode does not run."""
        if self.problem or not self.runs:
            return None
        return Reading(
            statistics.median(run.first_seconds for run in self.runs),
            statistics.median(run.pictures_per_second for run in self.runs),
            statistics.median(run.cpu_seconds_per_picture for run in self.runs),
            int(statistics.median(run.peak_bytes for run in self.runs)),
        )

    @property
    def rate(self) -> float:
        """Pictures per second, the median of the runs; 0 if the mode does not run."""
        median = self.median
        return median.pictures_per_second if median else 0.0


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats a table whose first column is left-aligned, and the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def _format_rows(results: Sequence[Result]) -> str:
    """Formats a row for every mode, the fastest first; those that do not run say why below."""
    yardstick = next((result.rate for result in results if result.way == YARDSTICK), 0.0)
    rows = [["", "pictures/s", f"of {YARDSTICK}", "CPU ms/picture", "peak MB", "first batch ms"]]
    problems = []
    for result in sorted(results, key=lambda result: -result.rate):
        if median := result.median:
            cells = [
                f"{result.rate:,.0f}",
                f"{result.rate / yardstick:.2f}" if yardstick else "",
                f"{median.cpu_seconds_per_picture * 1e3:.2f}",
                f"{median.peak_bytes / 1e6:,.0f}",
                f"{median.first_seconds * 1e3:,.0f}",
            ]
        else:
            cells = ["does not run", "", "", "", ""]
            problems.append(f"- {result.way}: {result.problem}")
        rows.append([result.way, *cells])
    return "\n".join([_markdown(rows), *(["", *problems] if problems else [])])


def format_results(results: Sequence[Result]) -> list[str]:
    """Returns a table for every dataset, dtype and number of cores."""
    tables = []
    groups = dict.fromkeys((result.dataset, result.dtype, result.cores) for result in results)
    for dataset, dtype, cores in groups:
        rows = [r for r in results if (r.dataset, r.dtype, r.cores) == (dataset, dtype, cores)]
        title = f"{dataset}, {dtype}, {cores} core{'s' if cores > 1 else ''}"
        tables.append(f"**{title}**\n\n{_format_rows(rows)}")
    return tables


def to_json(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Returns the fields of results and their medians."""
    return [
        {**asdict(result), "median": asdict(result.median) if result.median else None}
        for result in results
    ]
