"""How fast shards are read: this project, plain tf.data, TensorFlow Datasets, Grain, WebDataset.

    python benchmarks/read_shards.py --json results.json

All read the same records, each in its own format, as batches of 128. Every figure is of a process of
its own with a warm page cache: records a second once it runs, the time from the call that opens the
reader to its first batch, and the peak of memory, imports included. The ceiling is a bare loop over
`TFRecordDataset`, which hands over serialized records in batches and decodes nothing; no order of ours
is held against its shuffled form, which is there to see what a buffer costs. At last, how long the
first batch of ten million records takes.

On a tiny twin of each dataset, every way of every contender first has to give the same records. The
rivals run in an environment of their own, which is made once, as the datasets are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contender import FIRST_BATCH, MODULES, PLAIN_TENSORFLOW, WAYS
from environment import (
    HERE,
    machine,
    make_environment,
    parse_names,
    rival_python,
    rival_variables,
    versions,
)
from inputs import read_all
from measure import BenchmarkError, Run, run, warm_memory
from read_figures import (
    Reading,
    Result,
    format_first,
    format_outcomes,
    format_results,
    outcomes,
    outcomes_to_json,
    results_of,
    to_json,
)
from records import BATCH, KINDS, NUM_SHARDS, TINY, Kind, Records, make_records

SECONDS = 1.5
QUICK_SECONDS = 0.1
QUICK_RECORDS = 4 * BATCH
QUICK_TINY = 1000 * NUM_SHARDS


class Bench:
    """Starts the contenders.

    Args:
        data: The folder of datasets and the rivals' environment.
        python: The interpreter of this project's environment.
        quick: Whether it only has to run.
    """

    def __init__(self, data: Path, python: str, quick: bool) -> None:
        self._data, self._python, self._quick = data, python, quick

    def _start(self, contender: str, action: str, arguments: Sequence[str], what: str) -> Run:
        """Runs an action of `take_turn.py` in the environment of a contender.

        Raises:
            BenchmarkError: It failed.
        """
        print(f"  {what}", flush=True)
        env: dict[str, str] | None = None
        python = self._python
        if contender != "ours" and contender not in PLAIN_TENSORFLOW:
            python, env = rival_python(self._data), rival_variables()
        log = self._data / f"read-{contender}.log"
        command = [python, str(HERE / "take_turn.py"), action, contender, *arguments]
        try:
            return run(command, log, HERE.parent, env)
        except BenchmarkError as error:
            raise BenchmarkError(f"{what}: {error}") from None

    def _folder(self, kind: Kind, records: int) -> Path:
        return self._data / "read" / kind.name / str(records)

    def _write(self, contender: str, kind: Kind, folder: Path) -> None:
        """Has a contender write its store where it is not there yet."""
        done = folder / f"{contender}.done"
        if not done.exists():
            shutil.rmtree(folder / contender, ignore_errors=True)
            what = f"{contender} writes {int(folder.name):,} records of {kind.name}"
            self._start(contender, "write", [kind.name, str(folder)], what)
            done.touch()

    def make_stores(self, kind: Kind, records: int, contenders: Sequence[str]) -> Path:
        """The folder of a dataset, with what each contender reads.

        Raises:
            BenchmarkError: One could not be written, or is not what was to be written.
        """
        folder = self._folder(kind, records)
        if not (folder / "records").exists():
            unfinished = folder / ".records"
            shutil.rmtree(unfinished, ignore_errors=True)
            make_records(unfinished, kind, records)
            unfinished.rename(folder / "records")
        writers = {"ours" if name in PLAIN_TENSORFLOW else name for name in contenders}
        for contender in sorted(writers):
            self._write(contender, kind, folder)
        return folder

    def make_tiny(self, records: int) -> Path:
        """The folder of the dataset whose first batch is timed."""
        folder = self._folder(TINY, records)
        folder.mkdir(parents=True, exist_ok=True)
        self._write("ours", TINY, folder)
        return folder

    def compare(self, kinds: Sequence[Kind], contenders: Sequence[str]) -> None:
        """Checks that all contenders give all records, and no others.

        Raises:
            BenchmarkError: One does not.
        """
        folders = [str(self.make_stores(kind, QUICK_RECORDS, contenders)) for kind in kinds]
        for contender in contenders:
            self._start(contender, "compare", folders, f"{contender} gives the same records")

    def _time(self, result: Result, kind: Kind, folder: Path, seconds: float) -> Reading:
        """Runs one way once.

        Raises:
            BenchmarkError: It failed.
        """
        found = self._data / "read-result.json"
        what = f"{result.way}, {result.dataset}, {result.batching}, {result.order}"
        arguments = [result.way, kind.name, str(folder), result.batching, result.order]
        arguments += ["--seconds", str(seconds), "--result", str(found)]
        peak = self._start(result.contender, "time", arguments, what).peak_bytes
        return Reading(peak_bytes=peak, **json.loads(found.read_text()))

    def time_all(
        self, results: Sequence[Result], kind: Kind, folder: Path, runs: int, seconds: float
    ) -> None:
        """Fills results on a dataset, another one being the first in each run.

        Raises:
            BenchmarkError: A contender failed.
        """
        for number in range(runs):
            print(f"{kind.name}: run {number + 1} of {runs}", flush=True)
            read_all(folder)
            if not self._quick:
                warm_memory()
            turn = len(results) * number // runs
            for result in [*results[turn:], *results[:turn]]:
                result.runs.append(self._time(result, kind, folder, seconds))

    def measure(self, kind: Kind, contenders: Sequence[str], runs: int) -> list[Result]:
        """Every way of every contender on a dataset.

        Raises:
            BenchmarkError: One failed.
        """
        count = QUICK_RECORDS if self._quick else kind.records
        folder = self.make_stores(kind, count, contenders)
        size = Records(folder / "records").nbytes / count
        ways = [way for way in WAYS if way.contender in contenders]
        batchings = kind.batchings
        if self._quick:
            ways = [replace(way, orders=way.orders[-1:]) for way in ways]
            batchings = batchings[:1]
        results = []
        for batching in batchings:
            results += results_of(ways, kind.name, batching, size)
        # What bare gives is no batch of any kind: measured once.
        timed = [r for r in results if r.contender != "bare" or r.batching == batchings[0]]
        self.time_all(timed, kind, folder, runs, QUICK_SECONDS if self._quick else SECONDS)
        for result in results:
            if not result.runs:
                result.runs = next(r.runs for r in timed if r.way == result.way)
        return results

    def measure_first(self, runs: int) -> list[Result]:
        """The first batch of a large dataset, by every way of ours.

        Raises:
            BenchmarkError: One failed.
        """
        folder = self.make_tiny(QUICK_TINY if self._quick else TINY.records)
        results = results_of(FIRST_BATCH, TINY.name, "dense", 16)
        self.time_all(results, TINY, folder, runs, 0)
        return results


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
    parser.add_argument("--contenders", default=",".join(MODULES), help="(default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="tiny inputs, one run: a smoke test")
    parser.add_argument(
        "--first_batch", action="store_true", help="the first batch of ten million records alone"
    )
    parser.add_argument("--json", metavar="PATH", help="every figure of every run")
    return parser


def main() -> None:
    """Measures, prints, and writes the figures.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    flags = build_parser().parse_args()
    kinds = [KINDS[name] for name in parse_names(list(KINDS), flags.datasets)]
    contenders = parse_names(list(MODULES), flags.contenders)
    runs = 1 if flags.quick else flags.runs
    if runs < 1:
        raise BenchmarkError(f"--runs {runs}: expected at least 1")
    if flags.first_batch:
        kinds, contenders = [], ["ours"]
    data = Path(flags.data).resolve()
    data.mkdir(parents=True, exist_ok=True)
    bench = Bench(data, flags.python, flags.quick)
    pythons = {"ours": flags.python}
    if not {"ours", *PLAIN_TENSORFLOW}.issuperset(contenders):
        pythons["rivals"] = rival_python(data)
        make_environment(data)
    figures: dict = {"machine": machine(), "versions": versions(pythons)}
    results: list[Result] = []
    tables: list[str] = []

    def save() -> None:
        # After every dataset: a failure of a later one does not cost what is measured.
        if flags.json:
            Path(flags.json).write_text(json.dumps(figures, indent=1) + "\n")

    if kinds:
        bench.compare(kinds, contenders)
    for kind in kinds:
        results += bench.measure(kind, contenders, runs)
        figures["results"] = to_json(results)
        figures["targets"] = outcomes_to_json(outcomes(results))
        save()
    for dataset, batching in dict.fromkeys((r.dataset, r.batching) for r in results):
        rows = [r for r in results if (r.dataset, r.batching) == (dataset, batching)]
        tables.append(f"{dataset}, {batching}\n{format_results(rows)}")
    if found := outcomes(results):
        tables.append(format_outcomes(found))
    if "ours" in contenders:
        first = bench.measure_first(runs)
        figures["first_batch"] = to_json(first)
        save()
        count = QUICK_TINY if flags.quick else TINY.records
        tables.append(f"{count:,} records\n{format_first(first)}")
    hardware = figures["machine"]
    print(f"\n{hardware['cpu']}, {hardware['cores']} cores", *tables, sep="\n\n")
    if flags.quick:
        print("\nInputs as tiny as these say that it runs, not how fast.")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"error: {error}")
