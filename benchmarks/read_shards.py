"""How fast shards are read: this project, plain tf.data, TensorFlow Datasets, Grain, WebDataset.

    python benchmarks/read_shards.py --json results.json

All contenders read the same records, each in its own format, in batches of 128. Each figure is
measured in a new process with a warm page cache: records per second after the start, the time from
opening the reader to its first batch, and peak memory, imports included. The upper bound is a bare
loop over `TFRecordDataset`, which returns batches of serialized records and decodes nothing. Its
shuffled form only shows the cost of a buffer; no target refers to it. The last table is the time to
the first batch of ten million records.

Before that, every mode of every contender must return the same records from a tiny version of each
dataset. The rivals run in their own environment, which is created once, as are the datasets.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from command import build_parser, parse_flags, parse_names, report, run_command, save
from contender import FIRST_BATCH, MODES, MODULES, writer_of
from environment import prepare, rival_python, rival_variables
from figures import to_json
from inputs import read_all
from measure import HERE, Run, run, warm_memory
from read_figures import (
    Reading,
    Result,
    empty_results,
    format_first,
    format_outcomes,
    format_results,
    outcomes,
    outcomes_to_json,
)
from records import BATCH, KINDS, NUM_SHARDS, TINY, Kind, Records, make_records

SECONDS = 1.5
QUICK_SECONDS = 0.1
QUICK_RECORDS = 4 * BATCH
QUICK_TINY = 1000 * NUM_SHARDS


class Bench:
    """Runs the contenders.

    Args:
        data: The folder of datasets and the rivals' environment.
        python: The interpreter of this project's environment.
        quick: Use tiny inputs.
    """

    def __init__(self, data: Path, python: str, quick: bool) -> None:
        self._data, self._python, self._quick = data, python, quick

    def _start(self, label: str, contender: str, action: str, arguments: Sequence[str]) -> Run:
        """Runs an action of `contender_process.py` in the environment of a contender.

        Raises:
            BenchmarkError: The action failed.
        """
        if writer_of(contender) == "ours":
            python, env = self._python, None
        else:
            python, env = rival_python(self._data), rival_variables()
        command = [python, str(HERE / "contender_process.py"), action, contender, *arguments]
        return run(label, command, self._data / f"read-{contender}.log", env)

    def _folder(self, kind: Kind, records: int) -> Path:
        return self._data / "read" / kind.name / str(records)

    def _write(self, contender: str, kind: Kind, folder: Path) -> None:
        """Makes a contender write its store, unless it exists."""
        done = folder / f"{contender}.done"
        if not done.exists():
            shutil.rmtree(folder / contender, ignore_errors=True)
            label = f"{contender} writes {int(folder.name):,} records of {kind.name}"
            self._start(label, contender, "write", [kind.name, str(folder)])
            done.touch()

    def make_stores(self, kind: Kind, records: int, contenders: Sequence[str]) -> Path:
        """Returns the folder of a dataset, which has the store of each contender.

        Raises:
            BenchmarkError: A contender failed, or wrote wrong records.
        """
        folder = self._folder(kind, records)
        if not (folder / "records").exists():
            unfinished = folder / ".records"
            shutil.rmtree(unfinished, ignore_errors=True)
            make_records(unfinished, kind, records)
            unfinished.rename(folder / "records")
        for contender in sorted(set(map(writer_of, contenders))):
            self._write(contender, kind, folder)
        return folder

    def compare(self, kinds: Sequence[Kind], contenders: Sequence[str]) -> None:
        """Checks that all contenders return exactly the records of each dataset.

        Raises:
            BenchmarkError: A contender does not.
        """
        folders = [str(self.make_stores(kind, QUICK_RECORDS, contenders)) for kind in kinds]
        for contender in contenders:
            self._start(f"check the records of {contender}", contender, "compare", folders)

    def _time(self, result: Result, kind: Kind, folder: Path, seconds: float) -> Reading:
        """Runs one mode once.

        Raises:
            BenchmarkError: The mode failed.
        """
        found = self._data / "read-result.json"
        label = f"{result.way}, {result.dataset}, {result.batching}, {result.order}"
        arguments = [result.way, kind.name, str(folder), result.batching, result.order]
        arguments += ["--seconds", str(seconds), "--result", str(found)]
        peak = self._start(label, result.contender, "time", arguments).peak_bytes
        return Reading(peak_bytes=peak, **json.loads(found.read_text()))

    def time_all(
        self, results: Sequence[Result], kind: Kind, folder: Path, runs: int, seconds: float
    ) -> None:
        """Adds runs to the results of a dataset; each run starts with another result.

        Raises:
            BenchmarkError: A contender failed.
        """
        for number in range(runs):
            print(f"{kind.name}: run {number + 1} of {runs}", flush=True)
            read_all(folder)
            if not self._quick:
                warm_memory()
            start = len(results) * number // runs
            for result in [*results[start:], *results[:start]]:
                result.runs.append(self._time(result, kind, folder, seconds))

    def measure(self, kind: Kind, contenders: Sequence[str], runs: int) -> list[Result]:
        """Measures every mode of every contender on a dataset.

        Raises:
            BenchmarkError: A contender failed.
        """
        count = QUICK_RECORDS if self._quick else kind.records
        folder = self.make_stores(kind, count, contenders)
        size = Records(folder / "records").nbytes / count
        modes = [mode for mode in MODES if mode.contender in contenders]
        batchings = kind.batchings
        if self._quick:
            modes = [replace(mode, orders=mode.orders[-1:]) for mode in modes]
            batchings = batchings[:1]
        results = []
        for batching in batchings:
            results += empty_results(modes, kind.name, batching, size)
        # `bare` does the same work for every batching, so it is measured once.
        timed = [r for r in results if r.contender != "bare" or r.batching == batchings[0]]
        self.time_all(timed, kind, folder, runs, QUICK_SECONDS if self._quick else SECONDS)
        for result in results:
            if not result.runs:
                result.runs = next(r.runs for r in timed if r.way == result.way)
        return results

    def measure_first(self, runs: int) -> list[Result]:
        """Measures the first batch of a large dataset in each of our modes.

        Raises:
            BenchmarkError: A mode failed.
        """
        folder = self._folder(TINY, QUICK_TINY if self._quick else TINY.records)
        folder.mkdir(parents=True, exist_ok=True)
        self._write("ours", TINY, folder)
        results = empty_results(FIRST_BATCH, TINY.name, "dense", 16)
        self.time_all(results, TINY, folder, runs, 0)
        return results


def main() -> None:
    """Measures, prints tables, and writes the JSON file.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--datasets", list(KINDS), list(MODULES))
    parser.add_argument(
        "--first_batch",
        action="store_true",
        help="only time the first batch of ten million records",
    )
    flags = parse_flags(parser)
    kinds = [KINDS[name] for name in parse_names(list(KINDS), flags.datasets)]
    contenders = parse_names(list(MODULES), flags.contenders)
    if flags.first_batch:
        kinds, contenders = [], ["ours"]
    bench = Bench(flags.data, flags.python, flags.quick)
    figures = prepare(flags.data, flags.python, set(map(writer_of, contenders)) != {"ours"})
    results: list[Result] = []
    tables: list[str] = []
    if kinds:
        bench.compare(kinds, contenders)
    for kind in kinds:
        results += bench.measure(kind, contenders, flags.runs)
        figures["results"] = to_json(results)
        figures["targets"] = outcomes_to_json(outcomes(results))
        save(flags.json, figures)  # after every dataset, in case a later one fails
    for dataset, batching in dict.fromkeys((r.dataset, r.batching) for r in results):
        rows = [r for r in results if (r.dataset, r.batching) == (dataset, batching)]
        tables.append(f"{dataset}, {batching}\n{format_results(rows)}")
    if found := outcomes(results):
        tables.append(format_outcomes(found))
    if "ours" in contenders:
        first = bench.measure_first(flags.runs)
        figures["first_batch"] = to_json(first)
        save(flags.json, figures)
        count = QUICK_TINY if flags.quick else TINY.records
        tables.append(f"{count:,} records\n{format_first(first)}")
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
