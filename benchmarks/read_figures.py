"""Measurements of `read_shards.py`, the targets for them, and the tables of both."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contender import IN_ORDER, ORDERS, SHUFFLED, Mode
from figures import format_rows

BARE = "bare TFRecordDataset"
_LOAD = ("load", "load, interleave")
_GRAIN = ("Grain", "Grain, no threads", "Grain, 2 workers")
_FIRST_SECONDS = 1.0


@dataclass(frozen=True)
class Reading:
    """Measurements of one process.

    Attributes:
        first_seconds: Time from opening the reader to its first batch.
        peak_bytes: Peak memory of all its processes together, imports included.
        records_per_second: Rate after the start; 0 if only the first batch was read.
    """

    first_seconds: float
    peak_bytes: int
    records_per_second: float = 0


@dataclass
class Result:
    """Measurements of one mode.

    Attributes:
        dataset: The dataset's name.
        batching: `dense`, `padded` or `ragged`.
        contender, way: The contender and the name of a `Mode`.
        order: One of `ORDERS`.
        record_bytes: Average size of a record's array.
        runs: One reading for each run.
    """

    dataset: str
    batching: str
    contender: str
    way: str
    order: str
    record_bytes: float
    runs: list[Reading] = field(default_factory=list)

    @property
    def median(self) -> Reading:
        """The median of each figure of the runs."""
        return Reading(
            statistics.median(run.first_seconds for run in self.runs),
            int(statistics.median(run.peak_bytes for run in self.runs)),
            statistics.median(run.records_per_second for run in self.runs),
        )

    @property
    def rate(self) -> float:
        """Records per second, the median of the runs."""
        return self.median.records_per_second


@dataclass(frozen=True)
class Target:
    """A target for the rate of our modes relative to rivals.

    Attributes:
        name: The target's name in the table.
        modes: Our modes, each of which has to reach the target in each order.
        rivals: Modes of rivals, the fastest of which counts; in the same order, if measured in it.
        wanted: Batching -> the smallest ratio of rates.
        exceptions: Dataset -> a different smallest ratio.
    """

    name: str
    modes: tuple[str, ...]
    rivals: tuple[str, ...]
    wanted: Mapping[str, float]
    exceptions: Mapping[str, float] = field(default_factory=dict)


def _all_batchings(ratio: float) -> dict[str, float]:
    return dict.fromkeys(("dense", "padded", "ragged"), ratio)


TARGETS = (
    Target("load / bare", _LOAD, (BARE,), {"dense": 0.6, "padded": 0.5, "ragged": 0.5}),
    Target("as_numpy / bare", ("as_numpy",), (BARE,), {"dense": 2}),
    Target("load / by record", _LOAD, ("tf.data by record",), _all_batchings(3), {"small": 8}),
    Target("load / TFDS", _LOAD, ("TFDS",), _all_batchings(4)),
    Target("ours / Grain by default", (*_LOAD, "as_numpy"), _GRAIN[:1], _all_batchings(10)),
    Target("ours / Grain at its fastest", (*_LOAD, "as_numpy"), _GRAIN, _all_batchings(10)),
)


@dataclass(frozen=True)
class Outcome:
    """The result of a target on a dataset.

    Attributes:
        target: The target's name.
        dataset: The name and the batching of the dataset.
        wanted: The smallest ratio.
        found: (mode, order) -> the measured ratio.
    """

    target: str
    dataset: str
    wanted: float
    found: dict[tuple[str, str], float]

    @property
    def missed(self) -> int:
        """The number of ratios that are too small."""
        return sum(ratio < self.wanted for ratio in self.found.values())


def outcomes(results: Sequence[Result]) -> list[Outcome]:
    """Returns the outcome of every target on every dataset for which both sides were measured."""
    datasets = list(dict.fromkeys((result.dataset, result.batching) for result in results))
    rates = {(r.dataset, r.batching, r.way, r.order): r.rate for r in results}
    found = []
    for target in TARGETS:
        for dataset, batching in datasets:
            ratios = {}
            for mode in target.modes:
                for order in ORDERS:
                    ours = rates.get((dataset, batching, mode, order))
                    theirs = [
                        rates.get((dataset, batching, rival, order))
                        or rates.get((dataset, batching, rival, IN_ORDER), 0)
                        for rival in target.rivals
                    ]
                    if ours and max(theirs):
                        ratios[mode, order] = ours / max(theirs)
            wanted = target.exceptions.get(dataset, target.wanted.get(batching))
            if ratios and wanted:
                found.append(Outcome(target.name, f"{dataset}, {batching}", wanted, ratios))
    return found


def format_results(results: Sequence[Result]) -> str:
    """Formats a row for every mode and order of one dataset in one batching."""
    bare = next((result.rate for result in results if result.way == BARE), 0)
    rows = [["", "order", "records/s", "MB/s", "ratio to bare", "first batch ms", "peak MB"]]
    for result in results:
        median = result.median
        rows.append(
            [
                result.way,
                result.order,
                f"{result.rate:,.0f}",
                f"{result.rate * result.record_bytes / 1e6:,.0f}",
                f"{result.rate / bare:.2f}" if bare else "",
                f"{median.first_seconds * 1e3:,.0f}",
                f"{median.peak_bytes / 1e6:,.0f}",
            ]
        )
    return format_rows(rows)


def format_outcomes(found: Sequence[Outcome]) -> str:
    """Formats a row for every target and dataset, with a column for each of our modes and orders."""
    columns = list(dict.fromkeys(key for outcome in found for key in outcome.found))
    names = [mode + (", shuffled" if order == SHUFFLED else "") for mode, order in columns]
    rows = [["target", "dataset", "wanted", *names, ""]]
    for outcome in found:
        cells = [f"{outcome.found[key]:.2f}" if key in outcome.found else "" for key in columns]
        missed = f"MISSED: {outcome.missed} of {len(outcome.found)}"
        verdict = missed if outcome.missed else "reached"
        rows.append([outcome.target, outcome.dataset, f"{outcome.wanted:g}", *cells, verdict])
    return format_rows(rows)


def format_first(results: Sequence[Result]) -> str:
    """Formats a row for every mode whose first batch was timed."""
    rows = [["first batch", "order", "ms", "peak MB", f"under {_FIRST_SECONDS:g} s"]]
    for result in results:
        median = result.median
        milliseconds = f"{median.first_seconds * 1e3:,.0f}"
        verdict = "reached" if median.first_seconds < _FIRST_SECONDS else "MISSED"
        rows.append(
            [result.way, result.order, milliseconds, f"{median.peak_bytes / 1e6:,.0f}", verdict]
        )
    return format_rows(rows)


def outcomes_to_json(found: Sequence[Outcome]) -> list[dict]:
    """Returns every ratio under the name of its mode and order."""
    return [
        {
            "target": outcome.target,
            "dataset": outcome.dataset,
            "wanted": outcome.wanted,
            "found": {f"{mode}, {order}": ratio for (mode, order), ratio in outcome.found.items()},
            "reached": not outcome.missed,
        }
        for outcome in found
    ]


def empty_results(
    modes: Sequence[Mode], dataset: str, batching: str, record_bytes: float
) -> list[Result]:
    """Returns a result without runs for each mode in each of its orders."""
    return [
        Result(dataset, batching, mode.contender, mode.name, order, record_bytes)
        for mode in modes
        if batching in mode.batchings
        for order in mode.orders
    ]
