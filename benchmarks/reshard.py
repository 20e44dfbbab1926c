"""How fast TFRecord files become a dataset: this project, a loop of TensorFlow, and `cat`.

    python benchmarks/reshard.py --json results.json

All read the shards that `read_shards.py` makes. This project shuffles their records to 16 shards,
verifies them, learns their statistics, and writes indexes and a manifest; the loop deals them out to
16 files round robin; `cat` copies all to one. The time of a run is that of the whole process; the rate
at the margin, between a small and a large input, is free of imports and start-up.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from environment import HERE, machine, parse_names, versions
from figures import format_rows
from inputs import read_all
from measure import BenchmarkError, Run, median_run, run, shard_sizes
from read_shards import QUICK_RECORDS, Bench
from records import BATCH, KINDS, NUM_SHARDS, Kind

CONTENDERS = ("ours", "loop", "cat")
QUICK_SMALL = BATCH


@dataclass
class Result:
    """What was found of one contender on one input.

    Attributes:
        dataset: Of `KINDS`.
        records, bytes: In the input.
        runs: The timed ones.
    """

    dataset: str
    contender: str
    records: int
    bytes: int
    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> Run:
        """Of each figure of the runs."""
        return median_run(self.runs)


def input_bytes(store: Path) -> int:
    """Bytes of the TFRecord files of a store."""
    return sum(path.stat().st_size for path in store.glob("*.tfrecord"))


def command(contender: str, python: str, store: Path, output: Path) -> list[str]:
    """What a contender runs."""
    flags = ["--output", str(output), "--num_shards", str(NUM_SHARDS)]
    if contender == "ours":
        pattern = str(store / "*.tfrecord")
        return [python, "-m", "beam_jobs", "reshard", "--input", pattern, *flags]
    if contender == "loop":
        return [python, str(HERE / "rivals" / "reshard_loop.py"), "--input", str(store), *flags]
    folder, copy = shlex.quote(str(output)), shlex.quote(str(output / "all.tfrecord"))
    return ["sh", "-c", f"mkdir {folder} && cat {shlex.quote(str(store))}/*.tfrecord > {copy}"]


def time_once(result: Result, python: str, store: Path, data: Path, warm: bool) -> Run:
    """Runs a contender once, and counts what it wrote.

    Raises:
        BenchmarkError: It failed, or did not write all records.
    """
    what = f"{result.contender}, {result.records:,} records of {result.dataset}"
    print(f"  {what}", flush=True)
    output = data / "reshard_output"
    shutil.rmtree(output, ignore_errors=True)
    log = data / f"reshard-{result.contender}.log"
    try:
        found = run(command(result.contender, python, store, output), log, HERE.parent, warm=warm)
    except BenchmarkError as error:
        raise BenchmarkError(f"{what}: {error}") from None
    written = sum(shard_sizes(output))
    shutil.rmtree(output)
    if written != result.records:
        raise BenchmarkError(f"{what}: {written:,} were written")
    return found


def measure(
    bench: Bench, kind: Kind, contenders: Sequence[str], runs: int, python: str, data: Path
) -> list[Result]:
    """Every contender on two inputs of a kind.

    Args:
        bench: Makes the inputs.
        runs: 0 for one run on tiny inputs.

    Raises:
        BenchmarkError: One failed.
    """
    sizes = (QUICK_RECORDS, kind.records) if runs else (QUICK_SMALL, QUICK_RECORDS)
    stores = {size: bench.make_stores(kind, size, ["ours"]) / "ours" for size in sizes}
    results = [
        Result(kind.name, contender, size, input_bytes(stores[size]))
        for size in sizes
        for contender in contenders
    ]
    for number in range(max(runs, 1)):
        print(f"{kind.name}: run {number + 1} of {max(runs, 1)}", flush=True)
        turn = len(results) * number // max(runs, 1)
        for result in [*results[turn:], *results[:turn]]:
            read_all(stores[result.records])
            result.runs.append(
                time_once(result, python, stores[result.records], data, warm=bool(runs))
            )
    return results


@dataclass(frozen=True)
class Margin:
    """What the larger input of a contender costs beyond the smaller one.

    Attributes:
        seconds: Not a rate where it took no longer, which happens with tiny inputs.
        cpu_seconds: Of all cores.
    """

    dataset: str
    contender: str
    records: int
    bytes: int
    seconds: float
    cpu_seconds: float


def margins(results: Sequence[Result]) -> list[Margin]:
    """From the smaller input of each contender to the larger one."""
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
    """A row for every dataset and contender."""
    rows = [
        [
            "contender",
            "dataset",
            "records",
            "seconds",
            "records/s at the margin",
            "MB/s",
            "CPU µs/record",
            "peak MB",
            "ours/it",
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


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", default="benchmark_data", help="datasets, made once (default: %(default)s)"
    )
    parser.add_argument("--python", default=sys.executable, help="this project's interpreter")
    parser.add_argument("--datasets", default=",".join(KINDS), help="(default: %(default)s)")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny inputs, one run: a smoke test")
    parser.add_argument("--json", metavar="PATH", help="every figure of every run")
    return parser


def main() -> None:
    """Measures, prints, and writes the figures.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    flags = build_parser().parse_args()
    kinds = [KINDS[name] for name in parse_names(list(KINDS), flags.datasets)]
    contenders = parse_names(CONTENDERS, flags.contenders)
    if flags.runs < 1:
        raise BenchmarkError(f"--runs {flags.runs}: expected at least 1")
    data = Path(flags.data).resolve()
    data.mkdir(parents=True, exist_ok=True)
    bench = Bench(data, flags.python, flags.quick)
    figures: dict = {"machine": machine(), "versions": versions({"ours": flags.python})}
    results: list[Result] = []
    for kind in kinds:
        runs = 0 if flags.quick else flags.runs
        results += measure(bench, kind, contenders, runs, flags.python, data)
        figures["results"] = [asdict(result) for result in results]
        figures["margins"] = [asdict(margin) for margin in margins(results)]
        # Written after every kind: a failure of a later one does not cost what is measured.
        if flags.json:
            Path(flags.json).write_text(json.dumps(figures, indent=1) + "\n")
    hardware = figures["machine"]
    print(f"\n{hardware['cpu']}, {hardware['cores']} cores\n\n{format_margins(results)}")
    if flags.quick:
        print("\nInputs as tiny as these say that it runs, not how fast.")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
