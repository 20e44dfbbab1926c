"""Runs the contenders of `read_shards.py` that read records of arrays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from contender import FIRST_BATCH, MODES, writer_of
from environment import rival_python, rival_variables
from inputs import read_all
from measure import HERE, Run, run, warm_memory
from read_figures import Reading, Result, empty_results
from records import BATCH, NUM_SHARDS, TINY, Kind, Records, make_records

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
