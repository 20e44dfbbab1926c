"""What was measured of readers, what there is to reach, and how both are printed."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contender import IN_ORDER, ORDERS, SHUFFLED, Way
from figures import format_rows

BARE = "bare TFRecordDataset"
_LOAD = ("load", "load, interleave")
_GRAIN = ("Grain", "Grain, no threads", "Grain, 2 workers")
_FIRST_SECONDS = 1.0


@dataclass(frozen=True)
class Reading:
    """What one process found.

    Attributes:
        first_seconds: From the call that opens the reader to its first batch.
        peak_bytes: The most memory that all its processes had together, imports included.
        records_per_second: Once it runs; 0 where nothing but the first batch was read.
    """

    first_seconds: float
    peak_bytes: int
    records_per_second: float = 0


@dataclass
class Result:
    """What was found of one way to read.

    Attributes:
        dataset: Its name.
        batching: `dense`, `padded` or `ragged`.
        contender, way: As `contender.WAYS` has them.
        order: One of `ORDERS`.
        record_bytes: Of the array of a record, on average.
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
        """Of each figure of the runs."""
        return Reading(
            statistics.median(run.first_seconds for run in self.runs),
            int(statistics.median(run.peak_bytes for run in self.runs)),
            statistics.median(run.records_per_second for run in self.runs),
        )

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.median.records_per_second


@dataclass(frozen=True)
class Target:
    """How much faster our ways are to be than others.

    Attributes:
        name: What the table calls it.
        ways: Of ours, each of which has to reach it in each order.
        rivals: Held against the fastest of these, in the same order where it has several.
        wanted: Batching -> the ratio of rates.
        exceptions: Dataset -> another ratio.
    """

    name: str
    ways: tuple[str, ...]
    rivals: tuple[str, ...]
    wanted: Mapping[str, float]
    exceptions: Mapping[str, float] = field(default_factory=dict)


def _everywhere(ratio: float) -> dict[str, float]:
    return dict.fromkeys(("dense", "padded", "ragged"), ratio)


TARGETS = (
    Target("load / bare", _LOAD, (BARE,), {"dense": 0.6, "padded": 0.5, "ragged": 0.5}),
    Target("as_numpy / bare", ("as_numpy",), (BARE,), {"dense": 2}),
    Target("load / by record", _LOAD, ("tf.data by record",), _everywhere(3), {"small": 8}),
    Target("load / TFDS", _LOAD, ("TFDS",), _everywhere(4)),
    Target("ours / Grain as it comes", (*_LOAD, "as_numpy"), _GRAIN[:1], _everywhere(10)),
    Target("ours / Grain at its fastest", (*_LOAD, "as_numpy"), _GRAIN, _everywhere(10)),
)


@dataclass(frozen=True)
class Outcome:
    """Whether a target was reached on a dataset.

    Attributes:
        target: Its name.
        dataset: With the batching.
        wanted: The ratio.
        found: (way, order) -> the ratio found.
    """

    target: str
    dataset: str
    wanted: float
    found: dict[tuple[str, str], float]

    @property
    def missed(self) -> int:
        """How many ratios are less than what is wanted."""
        return sum(ratio < self.wanted for ratio in self.found.values())


def outcomes(results: Sequence[Result]) -> list[Outcome]:
    """Every target on every dataset for which both sides were measured."""
    places = list(dict.fromkeys((result.dataset, result.batching) for result in results))
    rates = {(r.dataset, r.batching, r.way, r.order): r.rate for r in results}
    found = []
    for target in TARGETS:
        for dataset, batching in places:
            ratios = {}
            for way in target.ways:
                for order in ORDERS:
                    ours = rates.get((dataset, batching, way, order))
                    theirs = [
                        rates.get((dataset, batching, rival, order))
                        or rates.get((dataset, batching, rival, IN_ORDER), 0)
                        for rival in target.rivals
                    ]
                    if ours and max(theirs):
                        ratios[way, order] = ours / max(theirs)
            wanted = target.exceptions.get(dataset, target.wanted.get(batching))
            if ratios and wanted:
                found.append(Outcome(target.name, f"{dataset}, {batching}", wanted, ratios))
    return found


def format_results(results: Sequence[Result]) -> str:
    """A row for every way and order of one dataset in one batching."""
    bare = next((result.rate for result in results if result.way == BARE), 0)
    header = ["", "order", "records/s", "MB/s", "of bare", "first batch ms", "peak MB"]
    rows = [header]
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
    """A row for every target and dataset, a column for every way and order of ours."""
    columns = list(dict.fromkeys(key for outcome in found for key in outcome.found))
    names = [way + (", shuffled" if order == SHUFFLED else "") for way, order in columns]
    rows = [["target", "dataset", "wanted", *names, ""]]
    for outcome in found:
        cells = [f"{outcome.found[key]:.2f}" if key in outcome.found else "" for key in columns]
        missed = f"MISSED: {outcome.missed} of {len(outcome.found)}"
        verdict = missed if outcome.missed else "reached"
        rows.append([outcome.target, outcome.dataset, f"{outcome.wanted:g}", *cells, verdict])
    return format_rows(rows)


def format_first(results: Sequence[Result]) -> str:
    """A row for every way to the first batch."""
    rows = [["first batch", "order", "ms", "peak MB", f"under {_FIRST_SECONDS:g} s"]]
    for result in results:
        median = result.median
        milliseconds = f"{median.first_seconds * 1e3:,.0f}"
        verdict = "reached" if median.first_seconds < _FIRST_SECONDS else "MISSED"
        rows.append(
            [result.way, result.order, milliseconds, f"{median.peak_bytes / 1e6:,.0f}", verdict]
        )
    return format_rows(rows)


def to_json(results: Sequence[Result]) -> list[dict]:
    """Every figure of every run."""
    return [
        {**dataclasses.asdict(result), "median": dataclasses.asdict(result.median)}
        for result in results
    ]


def outcomes_to_json(found: Sequence[Outcome]) -> list[dict]:
    """Every ratio, under the name of way and order."""
    return [
        {
            "target": outcome.target,
            "dataset": outcome.dataset,
            "wanted": outcome.wanted,
            "found": {f"{way}, {order}": ratio for (way, order), ratio in outcome.found.items()},
            "reached": not outcome.missed,
        }
        for outcome in found
    ]


def results_of(ways: Sequence[Way], dataset: str, batching: str, size: float) -> list[Result]:
    """The results to be filled, of each way in each of its orders."""
    return [
        Result(dataset, batching, way.contender, way.name, order, size)
        for way in ways
        if batching in way.batchings
        for order in way.orders
    ]
