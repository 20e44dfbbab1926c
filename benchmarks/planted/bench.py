"""Runs the contenders on the planted data. A rival that cannot be installed or fails is a row that says so."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environment import make_environment, rival_python, rival_variables
from measure import HERE, BenchmarkError, Run, median_run, run
from planted.contender import CONTENDERS
from planted.shards import job_of
from planted.truth import Score, Truth, score

_LIMIT = 600.0  # seconds, after which a contender is held to hang

# What a page loads from elsewhere: scripts, styles and pictures, not links that a reader may follow.
_FROM_NETWORK = re.compile(
    rb"<(?:script|img|iframe|source)\b[^>]{0,2000}?\bsrc=[\"']?(?:https?:)?//"
    rb"|<link\b[^>]{0,2000}?\bhref=[\"']?(?:https?:)?//"
    rb"|@import\s+(?:url\()?[\"']?(?:https?:)?//",
    re.IGNORECASE,
)


@dataclass
class Result:
    """What a contender found in a dataset, and what that took.

    Attributes:
        contender, dataset: Their names.
        scores: Kind of fault -> what it found; kinds that it does not look for are absent.
        seconds: From the start of the process to its end, without the page.
        page_seconds: What the page took; None without a page.
        peak_bytes: Peak memory of all processes.
        page_bytes: The size of all files of the page, without those in folders beside it; None without one.
        needs_network: Whether the page loads scripts, styles or pictures from elsewhere.
        problem: Why there is no result.
        page_problem: Why there is no page.
    """

    contender: str
    dataset: str
    scores: dict[str, Score] = field(default_factory=dict)
    seconds: float = 0.0
    page_seconds: float | None = None
    peak_bytes: int = 0
    page_bytes: int | None = None
    needs_network: bool = False
    problem: str = ""
    page_problem: str = ""


class PlantedBench:
    """Runs the contenders.

    Args:
        data: The folder of datasets and environments.
        python: The interpreter of this project's environment.
        counts: Dataset -> the number of its records.
        quick: Make the data with this project's interpreter, from the photographs that it has.
    """

    def __init__(self, data: Path, python: str, counts: Mapping[str, int], quick: bool) -> None:
        self._data, self._python, self._counts, self._quick = data, python, counts, quick

    def _folder(self, dataset: str) -> Path:
        return self._data / "planted" / str(self._counts[dataset]) / dataset

    def truth(self, dataset: str) -> Truth:
        """Returns what is wrong with a dataset."""
        return Truth.read(self._folder(dataset))

    def _variables(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(HERE.parent)}

    def make(self, datasets: Sequence[str]) -> None:
        """Makes the datasets and their shards, unless they exist.

        Raises:
            BenchmarkError: A package cannot be installed, or a job failed.
        """
        if self._quick:
            python, env = self._python, self._variables()
        else:
            make_environment(self._data, "planted")
            python, env = rival_python(self._data, "planted"), rival_variables()
        for name in datasets:
            folder = self._folder(name)
            if not (folder / "truth.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.parent.mkdir(parents=True, exist_ok=True)
                command = [python, str(HERE / "planted" / "make.py"), str(folder.parent)]
                label = f"make {self._counts[name]:,} {name}"
                run(label, [*command, f"{name}={self._counts[name]}"], self._log("make"), env)
            if not (folder / "shards" / "manifest.json").exists():
                command = [
                    self._python,
                    "-m",
                    "beam_jobs",
                    *job_of(name, folder, folder / "shards"),
                ]
                run(f"write shards of {name}", command, self._log("write"), self._variables())

    def _log(self, name: str) -> Path:
        return self._data / f"planted-{name}.log"

    def measure(self, dataset: str, contenders: Sequence[str], runs: int) -> Iterator[Result]:
        """Yields the result of each contender that can look at a dataset.

        Raises:
            BenchmarkError: This project failed.
        """
        truth = self.truth(dataset)
        for name in contenders:
            if dataset not in CONTENDERS[name].datasets:
                continue
            result = Result(name, dataset)
            try:
                measure = self._measure_ours if name == "ours" else self._measure_rival
                named = measure(result, runs)
                result.scores = {
                    kind: score(truth, kind, names)
                    for kind, names in named.items()
                    if kind in truth.faults
                }
            except BenchmarkError as error:
                if name == "ours":
                    raise
                result.problem = str(error)
            yield result

    def _measure_rival(self, result: Result, runs: int) -> dict[str, list[str]]:
        contender = CONTENDERS[result.contender]
        make_environment(self._data, contender.environment)
        python = rival_python(self._data, contender.environment)
        found, pages = self._data / "planted-result.json", self._data / "planted-pages"
        command = [python, str(HERE / "planted_process.py"), result.contender, result.dataset]
        command += [
            str(self._folder(result.dataset)),
            "--result",
            str(found),
            "--pages",
            str(pages),
        ]
        measured, page_seconds = [], []
        for _ in range(runs):
            found.unlink(missing_ok=True)
            shutil.rmtree(pages, ignore_errors=True)
            pages.mkdir()
            log = self._log(f"{result.contender}-{result.dataset}")
            label = f"{contender.title}, {result.dataset}"
            measured.append(run(label, command, log, rival_variables(), limit=_LIMIT))
            read: dict[str, Any] = json.loads(found.read_text())
            page_seconds.append(read["page_seconds"] or 0.0)
        self._note(result, median_run(measured))
        if read["page_seconds"] is not None:
            result.page_seconds = sorted(page_seconds)[runs // 2]
            result.seconds -= result.page_seconds
            self._weigh(result, [*pages.glob("*.html")])
        named: dict[str, list[str]] = read["named"]
        return named

    def _measure_ours(self, result: Result, runs: int) -> dict[str, list[str]]:
        shards = str(self._folder(result.dataset) / "shards")
        records = str(2 * self._counts[result.dataset])
        readers = [self._python, "-m", "readers"]
        # As the command does, which would exit with 1, as there are errors to find.
        command = [
            self._python,
            "-c",
            f"import readers; print(readers.check({shards!r}, records={records}))",
        ]
        log, env = self._log(f"ours-{result.dataset}"), self._variables()
        label = f"readers, {result.dataset}"
        self._note(result, median_run([run(label, command, log, env) for _ in range(runs)]))
        page = self._data / "planted-report.html"
        page.unlink(missing_ok=True)
        command = [*readers, "report", shards, "--output", str(page), "--records", records]
        try:
            made = median_run(
                [run(f"report, {result.dataset}", command, log, env) for _ in range(runs)]
            )
            result.page_seconds = made.seconds
            result.peak_bytes = max(result.peak_bytes, made.peak_bytes)
            self._weigh(result, [page])
        except BenchmarkError as error:
            if "invalid choice: 'report'" not in str(error):
                raise
            result.page_problem = "this commit has no command `python -m readers report`"
        found = self._data / "planted-result.json"
        command = [self._python, str(HERE / "planted" / "ours.py"), result.dataset, shards]
        run(f"names of {result.dataset}", [*command, str(found)], log, env)
        named: dict[str, list[str]] = json.loads(found.read_text())
        return named

    def _note(self, result: Result, measured: Run) -> None:
        result.seconds, result.peak_bytes = measured.seconds, measured.peak_bytes

    def _weigh(self, result: Result, pages: Sequence[Path]) -> None:
        data = [page.read_bytes() for page in pages]
        result.page_bytes = sum(map(len, data))
        result.needs_network = any(map(loads_from_network, data))


def loads_from_network(page: bytes) -> bool:
    """Whether a page loads scripts, styles, pictures or other pages from elsewhere."""
    return bool(_FROM_NETWORK.search(page))
