"""What was measured, the rates that follow from it, and how they are printed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from measure import Run, median_run

CONTENDERS = ("ours", "tfds", "floor")


@dataclass
class Result:
    """What was found of one contender on one input.

    Attributes:
        records: In the input.
        shuffle_bytes: Grouped by Beam; None without Beam.
        shards: Records of each shard.
        runs: The timed ones.
    """

    kind: str
    contender: str
    records: int
    shuffle_bytes: int | None = None
    shards: list[int] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> Run:
        """Of each figure of the runs."""
        return median_run(self.runs)


@dataclass(frozen=True)
class Margin:
    """What the records cost that a larger input has more than a smaller one.

    Attributes:
        kind, contender: Of both.
        records: Of the larger one.
        seconds_per_record: Noise, or even negative, in tiny inputs.
        cpu_seconds_per_record: The same of all cores; other programs on the machine disturb it less.
        bytes_per_record: Growth of the peak of memory.
    """

    kind: str
    contender: str
    records: int
    seconds_per_record: float
    cpu_seconds_per_record: float
    bytes_per_record: float

    @property
    def records_per_second(self) -> float:
        """The rate; not a number where the larger input took no longer."""
        return 1 / self.seconds_per_record if self.seconds_per_record > 0 else math.nan


def margins(results: Sequence[Result]) -> list[Margin]:
    """From each size of a contender to the next."""
    last: dict[str, Result] = {}
    found = []
    for result in results:
        small = last.get(result.contender)
        last[result.contender] = result
        if small:
            more, after, before = result.records - small.records, result.median, small.median
            found.append(
                Margin(
                    result.kind,
                    result.contender,
                    result.records,
                    (after.seconds - before.seconds) / more,
                    (after.cpu_seconds - before.cpu_seconds) / more,
                    (after.peak_bytes - before.peak_bytes) / more,
                )
            )
    return found


def ratios(found: Sequence[Margin]) -> dict[str, float]:
    """Rates at the margin of this project, in those of the others, at the largest size."""
    largest = {margin.contender: margin for margin in found}
    ours = largest.pop("ours", None)
    return {
        f"ours/{rival}": margin.seconds_per_record / ours.seconds_per_record
        for rival, margin in largest.items()
        if ours and min(margin.seconds_per_record, ours.seconds_per_record) > 0
    }


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Columns; the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def format_table(results: Sequence[Result]) -> str:
    """A row for every contender and size.

    The rate and the processor time at the margin, and the growth of memory, are those from the size
    in the row above.
    """
    by_size = {(margin.contender, margin.records): margin for margin in margins(results)}
    rows = [
        [
            "contender",
            "records",
            "seconds",
            "records/s",
            "at the margin",
            "CPU µs/record",
            "peak MB",
            "growth B/record",
            "shuffle MB",
            "records a shard",
        ]
    ]
    for result in sorted(results, key=lambda result: CONTENDERS.index(result.contender)):
        median, margin = result.median, by_size.get((result.contender, result.records))
        rows.append(
            [
                result.contender,
                f"{result.records:,}",
                f"{median.seconds:.2f}",
                f"{result.records / median.seconds:,.0f}",
                f"{margin.records_per_second:,.0f}" if margin else "",
                f"{margin.cpu_seconds_per_record * 1e6:,.0f}" if margin else "",
                f"{median.peak_bytes / 1e6:,.0f}",
                f"{margin.bytes_per_record:,.0f}" if margin else "",
                "" if result.shuffle_bytes is None else f"{result.shuffle_bytes / 1e6:,.2f}",
                f"{min(result.shards):,}..{max(result.shards):,}",
            ]
        )
    return format_rows(rows)


def format_scaling(results: Sequence[Result]) -> str:
    """A row for every size of one contender; columns that stay flat show that nothing piles up."""
    by_size = {margin.records: margin for margin in margins(results)}
    rows = [
        [
            "records",
            "seconds",
            "µs/record",
            "at the margin",
            "CPU µs/record",
            "peak MB",
            "growth B/record",
            "shuffle B/record",
            "records a shard",
        ]
    ]
    for result in results:
        median, margin = result.median, by_size.get(result.records)
        rows.append(
            [
                f"{result.records:,}",
                f"{median.seconds:.2f}",
                f"{median.seconds / result.records * 1e6:,.1f}",
                f"{margin.seconds_per_record * 1e6:,.1f}" if margin else "",
                f"{margin.cpu_seconds_per_record * 1e6:,.1f}" if margin else "",
                f"{median.peak_bytes / 1e6:,.0f}",
                f"{margin.bytes_per_record:,.0f}" if margin else "",
                f"{(result.shuffle_bytes or 0) / result.records:,.1f}",
                f"{min(result.shards):,}..{max(result.shards):,}",
            ]
        )
    return format_rows(rows)


def to_json(results: Sequence[Result]) -> list[dict]:
    """Every figure of every run."""
    return [
        {**dataclasses.asdict(result), "median": dataclasses.asdict(result.median)}
        for result in results
    ]
