"""Measured times of `write_shards.py`, the rates computed from them, and their tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from measure import Run, median_run

CONTENDERS = ("ours", "tfds", "floor")


@dataclass
class Result:
    """Measurements of one contender on one input.

    Attributes:
        records: Number of records in the input.
        shuffle_bytes: Bytes that Beam grouped by key; None without Beam.
        shards: Number of records in each shard.
        runs: The timed runs.
    """

    kind: str
    contender: str
    records: int
    shuffle_bytes: int | None = None
    shards: list[int] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> Run:
        """The median of each figure of the runs."""
        return median_run(self.runs)


@dataclass(frozen=True)
class Margin:
    """Marginal cost of a record: the differences between two inputs, divided by the added records.

    Attributes:
        records: Number of records in the larger input.
        seconds_per_record: Wall-clock time; with tiny inputs noise, or even negative.
        cpu_seconds_per_record: Processor time, which other programs on the machine disturb less.
        bytes_per_record: Growth of peak memory.
    """

    kind: str
    contender: str
    records: int
    seconds_per_record: float
    cpu_seconds_per_record: float
    bytes_per_record: float

    @property
    def records_per_second(self) -> float:
        """The marginal rate; NaN if the larger input took no longer."""
        return 1 / self.seconds_per_record if self.seconds_per_record > 0 else math.nan


def margins(results: Sequence[Result]) -> list[Margin]:
    """Returns the margins between each size of a contender and the next."""
    last: dict[str, Result] = {}
    found = []
    for result in results:
        small = last.get(result.contender)
        last[result.contender] = result
        if small:
            added, after, before = result.records - small.records, result.median, small.median
            found.append(
                Margin(
                    result.kind,
                    result.contender,
                    result.records,
                    (after.seconds - before.seconds) / added,
                    (after.cpu_seconds - before.cpu_seconds) / added,
                    (after.peak_bytes - before.peak_bytes) / added,
                )
            )
    return found


def ratios(found: Sequence[Margin]) -> dict[str, float]:
    """Returns the ratios of this project's marginal rate to the others', at the largest size."""
    largest = {margin.contender: margin for margin in found}
    ours = largest.pop("ours", None)
    return {
        f"ours/{rival}": margin.seconds_per_record / ours.seconds_per_record
        for rival, margin in largest.items()
        if ours and min(margin.seconds_per_record, ours.seconds_per_record) > 0
    }


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Formats a table whose first column is left-aligned, and the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def format_table(results: Sequence[Result]) -> str:
    """Formats a row for every contender and size.

    Marginal rate, processor time and growth of memory are relative to the size in the row above.
    """
    by_size = {(margin.contender, margin.records): margin for margin in margins(results)}
    rows = [
        [
            "contender",
            "records",
            "seconds",
            "records/s",
            "marginal records/s",
            "CPU µs/record",
            "peak MB",
            "growth B/record",
            "shuffle MB",
            "records/shard",
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
    """Formats a row for every size of one contender; constant columns mean constant cost per record."""
    by_size = {margin.records: margin for margin in margins(results)}
    rows = [
        [
            "records",
            "seconds",
            "µs/record",
            "marginal µs/record",
            "CPU µs/record",
            "peak MB",
            "growth B/record",
            "shuffle B/record",
            "records/shard",
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


def to_json(results: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the fields of results, dataclasses with a `median`, and their medians."""
    return [
        {**dataclasses.asdict(result), "median": dataclasses.asdict(result.median)}
        for result in results
    ]
