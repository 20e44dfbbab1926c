"""Runs the contenders that read pictures. One that cannot be installed or fails is a row that says so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from environment import make_environment, rival_python, rival_variables
from inputs import read_all
from measure import HERE, BenchmarkError, Run, run, warm_memory
from pictures.contender import ENTRIES, FILES
from pictures.kinds import PictureKind
from pictures.photographs import make_photographs
from pictures.table import Reading, Result

SECONDS = 5.0
QUICK_SECONDS = 0.1
Found = TypeVar("Found")

_LIMIT = 300.0  # seconds, after which a contender is held to hang


class PictureBench:
    """Runs the contenders.

    Args:
        data: The folder of datasets and environments.
        python: The interpreter of this project's environment.
        quick: Do not measure: only show that everything runs.
        count: The number of pictures.
        cores: The numbers of cores.
    """

    def __init__(
        self, data: Path, python: str, quick: bool, count: int, cores: Sequence[int]
    ) -> None:
        self._data, self._python, self._quick = data, python, quick
        self._count, self._cores = count, cores
        self._folder = data / "pictures" / str(count)

    def _start(
        self, label: str, contender: str, action: str, arguments: Sequence[str], cores: int | None
    ) -> Run:
        """Runs an action of `picture_process.py` in the environment of a contender.

        Raises:
            BenchmarkError: The action failed.
        """
        environment = ENTRIES[contender].environment
        if environment == "ours":
            python, env = self._python, None
        else:
            python, env = rival_python(self._data, environment), rival_variables()
        command = [python, str(HERE / "picture_process.py"), action, contender, str(self._folder)]
        log = self._data / f"pictures-{contender}.log"
        return run(label, [*command, *arguments], log, env, cores=cores, limit=_LIMIT)

    def _write(self, contender: str) -> None:
        """Makes a contender write its store, unless it exists.

        Raises:
            BenchmarkError: It failed.
        """
        done = self._folder / f"{contender}.done"
        if contender != FILES and not done.exists():
            shutil.rmtree(self._folder / contender, ignore_errors=True)
            self._start(
                f"{contender} writes {self._count:,} pictures", contender, "write", [], None
            )
            done.touch()

    def _check(self, result: Result) -> None:
        """Checks the results of one mode.

        Raises:
            BenchmarkError: They are not right.
        """
        label = f"check {result.way}, {result.dataset}, {result.dtype}"
        arguments = [result.way, result.dataset, result.dtype, "--cores", str(result.cores)]
        self._start(label, result.contender, "check", arguments, result.cores)

    def _time(self, result: Result) -> Reading:
        """Runs one mode once.

        Raises:
            BenchmarkError: The mode failed.
        """
        found = self._data / "pictures-result.json"
        found.unlink(missing_ok=True)
        label = f"{result.way}, {result.dataset}, {result.dtype}, cores: {result.cores}"
        arguments = [result.way, result.dataset, result.dtype, "--cores", str(result.cores)]
        seconds = QUICK_SECONDS if self._quick else SECONDS
        arguments += ["--seconds", str(seconds), "--result", str(found)]
        peak = self._start(label, result.contender, "time", arguments, result.cores).peak_bytes
        return Reading(peak_bytes=peak, **json.loads(found.read_text()))

    def _prepare(self, contender: str) -> str | None:
        """Makes the environment and the store of a contender; returns why it cannot.

        Raises:
            BenchmarkError: It is this project.
        """
        entry = ENTRIES[contender]
        try:
            if entry.environment != "ours":
                make_environment(self._data, entry.environment)
            self._write(entry.store)
        except BenchmarkError as error:
            if entry.environment == "ours":
                raise
            return str(error)
        return None

    def pythons(self, contenders: Sequence[str]) -> dict[str, str]:
        """Returns the interpreters of the environments of contenders, by name."""
        names = dict.fromkeys(ENTRIES[name].environment for name in contenders)
        pythons = {name: rival_python(self._data, name) for name in names if name != "ours"}
        return {name: python for name, python in pythons.items() if Path(python).exists()}

    def measure(
        self, kinds: Sequence[PictureKind], contenders: Sequence[str], runs: int
    ) -> Iterator[list[Result]]:
        """Yields the measurements of every mode of every contender, kind by kind.

        Raises:
            BenchmarkError: A mode of this project failed, or the photographs cannot be made.
        """
        make_photographs(self._folder, self._count)
        problems = {name: self._prepare(name) for name in contenders}
        for kind in kinds:
            for dtype in kind.dtypes:
                results = [
                    Result(kind.name, dtype, name, way, cores, problem=problems[name])
                    for cores in self._cores
                    for name in contenders
                    for way in ENTRIES[name].modes
                ]
                self._check_all(results)
                self._time_all(results, runs)
                yield results

    def _check_all(self, results: Sequence[Result]) -> None:
        """Checks every mode with the most cores; one that fails is not measured with any number."""
        for result in results:
            if result.cores == max(self._cores) and not result.problem:
                _try(self._check, result)
        problems = {result.way: result.problem for result in results if result.problem}
        for result in results:
            result.problem = problems.get(result.way)

    def _time_all(self, results: Sequence[Result], runs: int) -> None:
        """Adds runs to results; each run starts with another one."""
        for number in range(runs):
            print(f"{results[0].dataset}: run {number + 1} of {runs}", flush=True)
            read_all(self._folder)
            if not self._quick:
                warm_memory()
            start = len(results) * number // runs
            for result in [*results[start:], *results[:start]]:
                if not result.problem and (reading := _try(self._time, result)):
                    result.runs.append(reading)


def _try(measure: Callable[[Result], Found], result: Result) -> Found | None:
    """Returns a measurement, or None after it has noted why a rival failed.

    Raises:
        BenchmarkError: This project failed.
    """
    try:
        return measure(result)
    except BenchmarkError as error:
        if result.contender == "ours":
            raise
        result.problem = str(error)
        return None
