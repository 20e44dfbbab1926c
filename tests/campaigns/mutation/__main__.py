"""Puts faults at random lines of the code: `python -m tests.campaigns mutation [--lines 60] [--seed 0]`.

Each fault is tried alone: the tests in the folder that mirrors its module's run, and end at the first failure.
Then all base tests run once with all faults that were not noticed, and each of these is tried alone again with the tests
that failed. A fault that no test notices is a test that is missing, or code that does the same with the fault.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.mutation.mutants import lines_of_mutants, mutated
from tests.campaigns.tally import Tally
from tests.conftest import TIERS
from tests.support.checkout import ROOT

_BASE = f"not ({' or '.join(sorted(TIERS))})"
_PACKAGES = ("beam_jobs", "readers")
# An endless loop is noticed, too.
_MOST_SECONDS, _MOST_SECONDS_OF_ALL = 600, 3600


@dataclass(frozen=True)
class Fault:
    """A fault in a module.

    Attributes:
        module: The module's path, relative to the checkout.
        line: The line of the fault.
        change: The fault in words.
        source: The source of the module with the fault.
    """

    module: str
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.change}"


def drawn(checkout: Path, lines: int, seed: int) -> list[Fault]:
    """Faults at different lines of both packages, each line as likely as another."""
    sources, mutants = dict[str, str](), dict[tuple[str, int], list[int]]()
    for path in sorted(path for name in _PACKAGES for path in (checkout / name).rglob("*.py")):
        module = str(path.relative_to(checkout))
        sources[module] = path.read_text(encoding="utf-8")
        for number, line in enumerate(lines_of_mutants(sources[module])):
            mutants.setdefault((module, line), []).append(number)
    chance, faults = random.Random(seed), []
    for module, line in chance.sample(sorted(mutants), lines):
        source = sources[module]
        faults.append(Fault(module, line, *mutated(source, chance.choice(mutants[module, line]))))
    return faults


def folder_beside(checkout: Path, module: str) -> str:
    """The deepest folder of tests that mirrors a module's folder."""
    folder = Path(module).parent
    while not (checkout / "tests" / folder).is_dir():
        folder = folder.parent
    return f"tests/{folder}"


@dataclass(frozen=True)
class Tree:
    """A copy of the checkout into which faults are put.

    Attributes:
        checkout: The checkout.
        folder: The copy.
    """

    checkout: Path
    folder: Path

    def copy(self) -> None:
        """Copies the files that git knows, and the compiled kernel."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=self.checkout, capture_output=True, check=True)
        compiled = [p.relative_to(self.checkout) for p in self.checkout.glob("readers/**/*.so")]
        for name in [*map(Path, names.stdout.decode().splitlines()), *compiled]:
            (self.folder / name.parent).mkdir(parents=True, exist_ok=True)
            if (self.checkout / name).is_file():
                shutil.copyfile(self.checkout / name, self.folder / name)

    def failing(
        self, faults: Iterable[Fault], tests: Sequence[str], *flags: str, seconds: int
    ) -> list[str] | None:
        """The tests that fail with some faults; None if pytest fails as a whole or does not end."""
        sources: dict[str, str] = {fault.module: fault.source for fault in faults}
        for module, source in sources.items():
            (self.folder / module).write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "-m", _BASE]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "CI": "true"}
        try:
            done = subprocess.run(
                [*command, "-p", "no:cacheprovider", *flags, *tests],
                cwd=self.folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return None
        finally:
            for module in sources:
                shutil.copyfile(self.checkout / module, self.folder / module)
        failed = re.findall(
            r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - |$)", done.stdout, re.M
        )
        return failed if done.returncode in (0, 1) and (failed or not done.returncode) else None


def unnoticed(checkout: Path, faults: Sequence[Fault], processes: int) -> list[Fault]:
    """The faults that no base test notices."""
    with tempfile.TemporaryDirectory(prefix="mutation-") as name:
        trees = [Tree(checkout, Path(name) / str(number)) for number in range(processes)]
        for tree in trees:
            tree.copy()

        def survives(fault: Fault, tests: Sequence[str]) -> bool:
            tree = trees.pop()
            failed = tree.failing([fault], tests, "-x", "-n0", seconds=_MOST_SECONDS)
            trees.append(tree)
            print(f"{'survives' if failed == [] else 'noticed'}: {fault}", flush=True)
            return failed == []

        def survivors(
            faults: Sequence[Fault], tests: Callable[[Fault], Sequence[str]]
        ) -> list[Fault]:
            with ThreadPoolExecutor(processes) as pool:
                left = list(pool.map(lambda fault: survives(fault, tests(fault)), faults))
            return [fault for fault, stays in zip(faults, left, strict=True) if stays]

        left = survivors(faults, lambda fault: [folder_beside(checkout, fault.module)])
        stay: list[Fault] = []
        while left:
            # Of two faults in one module, one must wait for another turn.
            together = list({fault.module: fault for fault in left}.values())
            left = [fault for fault in left if fault not in together]
            flags = ("-n", str(processes), "--dist", "worksteal")
            failed = trees[0].failing(together, ["tests"], *flags, seconds=_MOST_SECONDS_OF_ALL)
            if failed == []:
                stay += together
            else:
                stay += survivors(together, lambda _, tests=failed or ["tests"]: tests)  # type: ignore[misc]
        return stay


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("--lines", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--checkout", type=Path, default=ROOT, help="of another revision")


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs the campaign, whose faults are those that survive; one of these may change nothing."""
    checkout = flags.checkout.resolve()
    faults = drawn(checkout, flags.lines, flags.seed)
    left = unnoticed(checkout, faults, flags.processes)
    for fault in faults:
        package = fault.module.split("/")[0]
        tally.add({"faults": 1, "noticed": int(fault not in left)}, package, "all")
    for fault in left:
        tally.fault(f"no test notices {fault}")
