"""How fast TFRecord files become a dataset: this project, a TensorFlow loop, and `cat`.

    python benchmarks/reshard.py --json results.json

All contenders read the shards that `read_shards.py` makes. This project verifies their records,
shuffles them to 16 shards, collects statistics, and writes indexes and a manifest; the loop distributes
them to 16 files round robin; `cat` copies them to one file. A run is timed from the start to the exit
of the process; the marginal rate, between a small and a large input, excludes imports and start-up.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import prepare
from figures import format_rows
from inputs import read_all
from measure import HERE, BenchmarkError, Run, median_run, run, shard_sizes
from read_bench import QUICK_RECORDS, Bench
from records import BATCH, KINDS, NUM_SHARDS, Kind

CONTENDERS = ("ours", "loop", "cat")
QUICK_SMALL = BATCH


@dataclass
class Result:
    """Measurements of one contender on one input.

    Attributes:
        dataset: The dataset's name in `KINDS`.
        records, bytes: The size of the input.
        runs: The timed runs.
    """

    dataset: str
    contender: str
    records: int
    bytes: int
    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> Run:
        """The median of each figure of the runs."""
        return median_run(self.runs)


def input_bytes(store: Path) -> int:
    """Returns the total size of the TFRecord files of a store."""
    return sum(path.stat().st_size for path in store.glob("*.tfrecord"))


def command_of(contender: str, python: str, store: Path, output: Path) -> list[str]:
    """Returns the command that a contender runs."""
    flags = ["--output", str(output), "--num_shards", str(NUM_SHARDS)]
    if contender == "ours":
        pattern = str(store / "*.tfrecord")
        return [python, "-m", "beam_jobs", "reshard", "--input", pattern, *flags]
    if contender == "loop":
        return [python, str(HERE / "rivals" / "reshard_loop.py"), "--input", str(store), *flags]
    folder, copy = shlex.quote(str(output)), shlex.quote(str(output / "all.tfrecord"))
    return ["sh", "-c", f"mkdir {folder} && cat {shlex.quote(str(store))}/*.tfrecord > {copy}"]


def time_once(result: Result, python: str, store: Path, data: Path, warm: bool) -> Run:
    """Runs a contender once, and counts the records that it wrote.

    Raises:
        BenchmarkError: The contender failed, or did not write all records.
    """
    label = f"{result.contender}, {result.records:,} records of {result.dataset}"
    output = data / "reshard_output"
    shutil.rmtree(output, ignore_errors=True)
    log = data / f"reshard-{result.contender}.log"
    found = run(label, command_of(result.contender, python, store, output), log, warm=warm)
    written = sum(shard_sizes(output))
    shutil.rmtree(output)
    if written != result.records:
        raise BenchmarkError(f"{label}: {written:,} records were written")
    return found


def measure(kind: Kind, contenders: Sequence[str], flags: argparse.Namespace) -> list[Result]:
    """Runs every contender on two inputs of a kind.

    Raises:
        BenchmarkError: A contender failed.
    """
    bench = Bench(flags.data, flags.python, flags.quick)
    sizes = (QUICK_SMALL, QUICK_RECORDS) if flags.quick else (QUICK_RECORDS, kind.records)
    stores = {size: bench.make_stores(kind, size, ["ours"]) / "ours" for size in sizes}
    results = [
        Result(kind.name, contender, size, input_bytes(stores[size]))
        for size in sizes
        for contender in contenders
    ]
    for number in range(flags.runs):
        print(f"{kind.name}: run {number + 1} of {flags.runs}", flush=True)
        start = len(results) * number // flags.runs
        for result in [*results[start:], *results[:start]]:
            store = stores[result.records]
            read_all(store)
            result.runs.append(
                time_once(result, flags.python, store, flags.data, warm=not flags.quick)
            )
    return results


@dataclass(frozen=True)
class Margin:
    """The differences between the larger and the smaller input of a contender.

    Attributes:
        records, bytes: Differences in size.
        seconds: Difference in wall-clock time; zero or negative if the inputs are tiny.
        cpu_seconds: Difference in processor time.
    """

    dataset: str
    contender: str
    records: int
    bytes: int
    seconds: float
    cpu_seconds: float


def margins(results: Sequence[Result]) -> list[Margin]:
    """Returns the margin between the two inputs of each contender."""
    small: dict[tuple[str, str], Result] = {}
    found = []
    for result in results:
        before = small.setdefault((result.dataset, result.contender), result)
        if before is not result:
            found.append(
                Margin(
                    result.dataset,
                    result.contender,
                    result.records - before.records,
                    result.bytes - before.bytes,
                    result.median.seconds - before.median.seconds,
                    result.median.cpu_seconds - before.median.cpu_seconds,
                )
            )
    return found


def format_margins(results: Sequence[Result]) -> str:
    """Formats a row for every dataset and contender."""
    rows = [
        [
            "contender",
            "dataset",
            "records",
            "seconds",
            "marginal records/s",
            "MB/s",
            "CPU µs/record",
            "peak MB",
            "our speed",
        ]
    ]
    larger = {(r.dataset, r.contender): r for r in results}
    found = margins(results)
    ours = {margin.dataset: margin.seconds for margin in found if margin.contender == "ours"}
    for margin in found:
        result = larger[margin.dataset, margin.contender]
        timed = margin.seconds > 0
        own = ours.get(margin.dataset, 0)
        rows.append(
            [
                margin.contender,
                margin.dataset,
                f"{result.records:,}",
                f"{result.median.seconds:.2f}",
                f"{margin.records / margin.seconds:,.0f}" if timed else "",
                f"{margin.bytes / margin.seconds / 1e6:,.0f}" if timed else "",
                f"{margin.cpu_seconds / margin.records * 1e6:,.1f}",
                f"{result.median.peak_bytes / 1e6:,.0f}",
                f"{margin.seconds / own:.2f}" if timed and own > 0 else "",
            ]
        )
    return format_rows(rows)


def main() -> None:
    """Measures, prints a table, and writes the JSON file.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    flags = parse_flags(build_parser(__doc__, "--datasets", list(KINDS), CONTENDERS))
    kinds = [KINDS[name] for name in parse_names(list(KINDS), flags.datasets)]
    contenders = parse_names(CONTENDERS, flags.contenders)
    figures = prepare(flags.data, flags.python)
    results: list[Result] = []
    for kind in kinds:
        results += measure(kind, contenders, flags)
        figures["results"] = [asdict(result) for result in results]
        figures["margins"] = [asdict(margin) for margin in margins(results)]
        save(flags.json, figures)  # after every dataset, in case a later one fails
    report(figures, [format_margins(results)], flags.quick)


if __name__ == "__main__":
    run_command(main)
