"""The harness of all benchmarks that compare: runs each contender in its environment and measures it.

A rival that cannot be installed or fails is a row that says why; this project must not fail.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from environment import make_environment, rival_python, rival_variables
from measure import HERE, BenchmarkError, Run, run, warm_memory

Found = TypeVar("Found")

_LIMIT = 600.0  # seconds until a contender counts as hanging


@dataclass(frozen=True)
class Contender:
    """A library's place in a benchmark, known without importing it.

    Attributes:
        environment: The name of its environment; `ours` is that of this project.
        module: Its module.
        modes: The names of its modes in the tables.
        store: The contender whose store it reads (default: itself).
    """

    environment: str
    module: str = ""
    modes: tuple[str, ...] = ()
    store: str = ""


@dataclass
class Result:
    """Measurements of a mode of a contender.

    Attributes:
        case: The measured case, the title of a table.
        contender, mode: The contender, and the mode's name.
        arguments: The arguments of the measuring function.
        cores: The number of cores that it might use; None is all.
        runs: The figures of each run by name.
        problem: Why there are none, or fewer.
    """

    case: str
    contender: str
    mode: str
    arguments: dict[str, Any] = field(default_factory=dict)
    cores: int | None = None
    runs: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether there are figures to show."""
        return bool(self.runs) and not self.problem

    def median(self, figure: str) -> float:
        """Returns the median of a figure over the runs."""
        return statistics.median(run[figure] for run in self.runs)


class Harness:
    """Runs contenders.

    Args:
        data: The folder of inputs and environments.
        python: The interpreter of this project's environment.
        contenders: The contenders by name.
        quick: Do not warm the memory.
    """

    def __init__(
        self, data: Path, python: str, contenders: Mapping[str, Contender], quick: bool
    ) -> None:
        self.data, self.quick = data, quick
        self._python, self._contenders = python, contenders

    def pythons(self) -> dict[str, str]:
        """Returns the interpreters of all environments that exist, by name."""
        names = {contender.environment for contender in self._contenders.values()} - {"ours"}
        found = {name: rival_python(self.data, name) for name in sorted(names)}
        exist = {name: python for name, python in found.items() if Path(python).exists()}
        return {"ours": self._python, **exist}

    def run(
        self,
        name: str,
        label: str,
        arguments: Sequence[str],
        cores: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Run:
        """Runs Python in the environment of a contender.

        Raises:
            BenchmarkError: It cannot be installed, failed, or took longer than ten minutes.
        """
        environment = self._contenders[name].environment
        if environment == "ours":
            python, env = self._python, {**os.environ, "PYTHONPATH": str(HERE.parent)}
        else:
            make_environment(self.data, environment)
            python, env = rival_python(self.data, environment), rival_variables()
        log = self.data / f"{name}.log"
        env |= variables or {}
        return run(f"{name}: {label}", [python, *arguments], log, env, cores=cores, limit=_LIMIT)

    def call(
        self,
        name: str,
        label: str,
        function: str,
        arguments: Mapping[str, Any],
        cores: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Calls a function in the environment of a contender.

        Args:
            name: The contender.
            label: The text that is printed.
            function: `module:function`.
            arguments: Its arguments by name, as JSON has them.
            cores: The number of cores that it may use (default: all).
            variables: Environment variables, in addition to those of the contender.

        Returns:
            The figures that it returned, if any, and those of `measure.Run` for the whole process.

        Raises:
            BenchmarkError: It failed, or took longer than ten minutes.
        """
        result = self.data / "result.json"
        result.unlink(missing_ok=True)
        command = [str(HERE / "call.py"), function, json.dumps(arguments), str(result)]
        done = self.run(name, label, command, cores, variables)
        return {**asdict(done), **(json.loads(result.read_text()) or {})}

    def once(self, folder: Path, make: Callable[[Path], object]) -> Path:
        """Returns a folder that is created once.

        Args:
            folder: Where it is.
            make: Makes it at another path, which does not exist.
        """
        if not folder.exists():
            unfinished = folder.with_name(f".{folder.name}")
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            unfinished.unlink(missing_ok=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            make(unfinished)
            unfinished.rename(folder)
        return folder

    def attempt(self, result: Result, work: Callable[[], Found]) -> Found | None:
        """Returns the result of a call, or None after it has noted why a rival failed.

        Raises:
            BenchmarkError: This project failed.
        """
        if result.problem:
            return None
        try:
            return work()
        except BenchmarkError as error:
            if result.contender == "ours":
                raise
            result.problem = str(error)
            return None

    def measure(self, results: Sequence[Result], function: str, runs: int) -> None:
        """Adds runs to results; each run starts with another result.

        Args:
            results: The results, with the arguments of the function.
            function: `module:function`.
            runs: How often.

        Raises:
            BenchmarkError: This project failed.
        """
        for number in range(runs):
            if not self.quick:
                warm_memory()
            start = len(results) * number // runs
            for result in [*results[start:], *results[:start]]:
                label = f"{result.mode}, {result.case}"
                call = partial(
                    self.call, result.contender, label, function, result.arguments, result.cores
                )
                if figures := self.attempt(result, call):
                    result.runs.append(figures)


def format_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Formats a table whose first column is left-aligned, and the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
    rule = "|".join(["-" * (widths[0] + 2), *("-" * (width + 1) + ":" for width in widths[1:])])
    return "\n".join([f"| {lines[0]} |", f"|{rule}|", *(f"| {line} |" for line in lines[1:])])


def format_rates(results: Sequence[Result], yardsticks: Sequence[str]) -> str:
    """Returns a table for every case: a row for each mode, the fastest first.

    Those that do not run say why below.

    Args:
        results: Results with `records_per_second`, `cpu_per_record`, `peak_bytes` and `first_seconds`.
        yardsticks: Modes; the others are compared with the one that was measured.
    """
    tables = []
    for case in dict.fromkeys(result.case for result in results):
        some = [result for result in results if result.case == case]
        rates = {r.mode: r.median("records_per_second") for r in some if r.is_measured}
        yardstick = next((name for name in yardsticks if name in rates), "")
        head = ["records/s", f"of {yardstick or 'none'}", "CPU µs/record", "peak MB"]
        rows = [["", *head, "first batch ms"]]
        for result in sorted(some, key=lambda result: -rates.get(result.mode, 0.0)):
            if not result.is_measured:
                rows.append([result.mode, "does not run", "", "", "", ""])
                continue
            rate = rates[result.mode]
            rows.append(
                [
                    result.mode,
                    f"{rate:,.0f}",
                    f"{rate / rates[yardstick]:.2f}" if yardstick else "",
                    f"{result.median('cpu_per_record') * 1e6:,.1f}",
                    f"{result.median('peak_bytes') / 1e6:,.0f}",
                    f"{result.median('first_seconds') * 1e3:,.0f}",
                ]
            )
        problems = [f"- {result.mode}: {result.problem}" for result in some if result.problem]
        table = "\n".join([format_markdown(rows), *(["", *problems] if problems else [])])
        tables.append(f"**{case}**\n\n{table}")
    return "\n\n".join(tables)
