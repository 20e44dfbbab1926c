"""Compares the speed of two revisions, which take turns: each row is a ratio with its spread.

    python benchmarks/compare.py 717f97b --output ratios.json     # with the working tree
    python benchmarks/compare.py 717f97b 7506c1e                  # with another revision
    python benchmarks/compare.py 717f97b 7506c1e --prepare        # only makes environments and inputs

Each revision has a separate environment, with the package and its requirements, in ~/.cache/beam-shards-compare.
Both write the same inputs with their command line, and read their datasets. In each of five turns both revisions
are measured once, and they alternate in going first:

- *write*: a warm process of each revision runs the command line with two sizes of inputs; the difference counts, so
  that fixed costs of a job do not;
- *read*: warm processes, one for each row and revision, read for a few tenths of a second;
- *start*: the command line until it has printed its help, and imports, without the start of Python.

A ratio is the time before divided by the time now in the same turn: above 1 is faster. Every row has the median, the
smallest and the largest of the five, for the wall time and for the processor time of all processes, which other
programs on the machine disturb less. SLOWER marks a row whose largest ratio of either is below 0.97. It needs Linux,
and after the preparation less than 6 minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from command import run_command
from environment import describe_machine, rival_variables, versions
from harness import format_markdown
from inputs import make_inputs, read_all
from measure import HERE, BenchmarkError

TREE = "working tree"
SLOWER = 0.97

_CACHE = Path.home() / ".cache" / "beam-shards-compare"
_STAMPED = (
    "setup.py",
    "pyproject.toml",
    "readers/format/compiled/kernel.c",
    "readers/tfdata/operations.c",
)


@dataclass(frozen=True)
class Kind:
    """A kind of records.

    Attributes:
        job: The job that writes them.
        pattern: The files in a folder of inputs.
        flags: Flags of the job. The first list that a revision accepts is used.
        small, large: The numbers of records that are written.
        options: How they are read, in addition to `batch_size`, `shuffle`, `seed` and `repeat`.
        feature: The feature that is read with the label.
    """

    job: str
    pattern: str
    flags: tuple[tuple[str, ...], ...]
    small: int
    large: int
    options: dict[str, str]
    feature: str


KINDS = (
    Kind("sensors", "*/*.npy", ((),), 2_000, 30_000, {"batching": "padded"}, "signal"),
    Kind("images", "*/*.jpg", (("--image_size", "224x224"),), 100, 1_500, {}, "image"),
    Kind("text", "*.jsonl", (("--label_field", "label"),), 20_000, 350_000, {}, "text"),
)
# The first call that a revision knows is used.
WRITES = ("beam_jobs.__main__.main(arguments)",)
READS = {
    "as_numpy": ("readers.as_numpy(path, **options)",),
    "load": ("readers.load(path, **options)",),
}
IMPORTS = ("readers", "beam_jobs")
TINY = 40  # records of each kind, to see that a revision works

_DIFFERENT = {"sensors": 5_000, "images": 200, "text": None}
_PICTURE = 500, 375
_SHARDS, _BATCH = 8, 128
_READ_SECONDS, _QUICK_SECONDS = 0.3, 0.05
_IMPORTS = 2  # a turn has their mean

_IMPORT = """
import time
wall, cpu = time.perf_counter(), time.process_time()
import {}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


@dataclass(frozen=True)
class Cost:
    """Wall seconds, and processor seconds of all processes, of a record or a start."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Side:
    """A revision in a separate environment.

    Attributes:
        name: The revision as it was given.
        python: The interpreter.
        outputs: A new folder for its datasets.
    """

    name: str
    python: str
    outputs: Path

    def run(self, *arguments: str) -> tuple[Cost, str]:
        """Runs Python to its end, and returns its cost and output.

        Raises:
            BenchmarkError: It failed.
        """
        before, began = _cpu_of_children(), time.perf_counter()
        done = subprocess.run(
            [self.python, *arguments],
            cwd=self.outputs,
            env=_variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wall = time.perf_counter() - began
        if done.returncode:
            problem = done.stdout.strip()[-500:]
            raise BenchmarkError(f"{self.name}: {' '.join(arguments)}: {problem}")
        return Cost(wall, _cpu_of_children() - before), done.stdout

    def help(self) -> Cost:
        """Starts the command line."""
        return self.run("-m", "beam_jobs", "--help")[0]

    def import_(self, package: str) -> Cost:
        """Imports a package."""
        printed = [self.run("-c", _IMPORT.format(package))[1] for _ in range(_IMPORTS)]
        return _mean([Cost(*map(float, each.split())) for each in printed])


@dataclass
class Row:
    """Costs of both sides in each turn.

    Attributes:
        name: The measured action: `start: …`, or an action on each record.
        before, now: The cost in each turn.
    """

    name: str
    before: list[Cost] = field(default_factory=list)
    now: list[Cost] = field(default_factory=list)

    def ratios(self, clock: str) -> list[float]:
        """Returns the time before divided by the time now, sorted; tiny inputs may have none.

        Args:
            clock: `wall` or `cpu`.
        """
        pairs = [
            (getattr(before, clock), getattr(now, clock))
            for before, now in zip(self.before, self.now, strict=True)
        ]
        return sorted(before / now for before, now in pairs if min(before, now) > 0)

    @property
    def is_slower(self) -> bool:
        """Whether all ratios of one clock are below the limit."""
        return any(max(self.ratios(clock), default=1) < SLOWER for clock in ("wall", "cpu"))


def _mean(costs: Sequence[Cost]) -> Cost:
    wall, cpu = (statistics.mean(clock) for clock in zip(*map(astuple, costs), strict=True))
    return Cost(wall, cpu)


def _variables() -> dict[str, str]:
    """Returns the variables without those that could name this project or stop it from compiling files."""
    return {k: v for k, v in rival_variables().items() if k != "PYTHONDONTWRITEBYTECODE"}


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def prepare_environment(revision: str, cache: Path) -> str:
    """Returns the interpreter of a revision's environment, which is created if it does not exist.

    The revision may also be an interpreter, of an environment that has the package.

    Raises:
        BenchmarkError: There is no such revision, or its package cannot be installed.
    """
    if Path(revision).is_file():
        return str(Path(revision).absolute())  # not resolved: the link makes it an environment
    if revision == TREE:
        root, folder = HERE.parent, cache / f"tree-{zlib.crc32(bytes(HERE)):08x}"
    else:
        folder = cache / _git("rev-parse", "--verify", f"{revision}^{{commit}}")[:12]
        root = folder / "source"
        if not root.exists():
            unfinished = folder / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            archive = folder / "source.tar"
            _git("archive", "--output", str(archive), revision)
            subprocess.run(["tar", "-xf", archive, "-C", unfinished], check=True)
            archive.unlink()
            unfinished.rename(root)
    python, stamp = folder / "venv" / "bin" / "python", folder / "installed"
    paths = [root / name for name in _STAMPED]
    wanted = "".join(path.read_text() for path in paths if path.exists()) + str(root)
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        print(f"installing {revision} in {folder}", file=sys.stderr, flush=True)
        _install(python, root)
        stamp.write_text(wanted)
    return str(python)


def _install(python: Path, root: Path) -> None:
    base = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    uv = [str(python.with_name("uv")), "pip", "install", "--quiet", "--compile-bytecode"]
    target = ["--editable", f"{root}[all]"]
    try:
        subprocess.run([base, "-m", "venv", "--clear", str(python.parents[1])], check=True)
        subprocess.run([*pip, "uv"], check=True)
        if subprocess.run([*uv, "--system-certs", "--python", str(python), *target]).returncode:
            subprocess.run([*pip, *target], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(f"cannot install {root}: {error}") from None


class Process:
    """A process of a side that answers each line of its input with a line.

    Args:
        side: The side.
        script: A file next to this one, which prints a line when it is ready.
        arguments: Its arguments, passed as JSON.
    """

    def __init__(self, side: Side, script: str, arguments: object) -> None:
        self._side, self._log = side, side.outputs / f"{script}.log"
        self._process = subprocess.Popen(
            [side.python, str(HERE / script), json.dumps(arguments)],
            cwd=side.outputs,
            env=_variables(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        # A fork server outlives the process that started it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def answer(self) -> str:
        """Returns the next line that it prints.

        Raises:
            BenchmarkError: It has ended.
        """
        assert self._process.stdout
        if line := self._process.stdout.readline():
            return line
        raise BenchmarkError(f"{self._side.name} failed: {self.said()}")

    def ask(self, question: object) -> Any:
        """Returns the answer to a line of JSON."""
        assert self._process.stdin
        self._process.stdin.write(f"{json.dumps(question)}\n")
        self._process.stdin.flush()
        return json.loads(self.answer())

    def said(self) -> str:
        """Returns the end of its log."""
        return self._log.read_text(errors="replace").strip()[-500:]


class Writer(Process):
    """Writes the datasets of a side."""

    def __init__(self, side: Side) -> None:
        super().__init__(side, "writing_turns.py", WRITES)

    def write(self, kind: Kind, flags: Sequence[str], folder: Path) -> Cost:
        """Writes the dataset of a kind, which replaces the one before.

        Raises:
            BenchmarkError: The job failed.
        """
        output = self._side.outputs / kind.job
        shutil.rmtree(output, ignore_errors=True)
        command = [kind.job, "--input", str(folder / kind.pattern), "--output", str(output)]
        command += ["--num_shards", str(_SHARDS), *flags]
        code, wall, cpu = self.ask(command)
        if code:
            raise BenchmarkError(f"{self._side.name}: {' '.join(command)}: {self.said()}")
        return Cost(wall, cpu)

    def accepted(self, kind: Kind, folder: Path) -> tuple[str, ...]:
        """Returns the flags of a kind that this revision accepts.

        Raises:
            BenchmarkError: It accepts none.
        """
        for flags in kind.flags:
            try:
                self.write(kind, flags, folder)
                return flags
            except BenchmarkError as error:
                problem = error
        raise problem


class Reader(Process):
    """Reads a dataset that a side wrote."""

    def __init__(self, side: Side, kind: Kind, way: str, columns: str) -> None:
        options: dict[str, object] = {"batch_size": _BATCH, "shuffle": True, "seed": 0}
        options |= {"repeat": None, **kind.options}
        if columns != "all":
            options["as_supervised"] = [kind.feature, "label"]
        call = {"calls": READS[way], "path": str(side.outputs / kind.job), "options": options}
        super().__init__(side, "reading_turns.py", call)

    def read(self, seconds: float) -> Cost:
        """Returns the cost of a record in a turn."""
        count, wall, cpu = self.ask(seconds)
        return Cost(wall / count, cpu / count)


P = TypeVar("P", bound=Process)


class Comparison:
    """Measures two sides.

    Args:
        before, now: The sides.
        inputs: The folder of inputs.
        turns: How often each side is measured.
        quick: Use tiny inputs of the first kind.
    """

    def __init__(self, before: Side, now: Side, inputs: Path, turns: int, quick: bool) -> None:
        self._before, self._now, self._inputs = before, now, inputs
        self._turns, self._quick = turns, quick

    def _started(self, stack: contextlib.ExitStack, make: Callable[[Side], P]) -> dict[Side, P]:
        """A process of each side that is ready, until the end of a context."""
        sides = self._before, self._now
        started: dict[Side, P] = {side: make(side) for side in sides}
        for process in started.values():
            stack.enter_context(process)
        for process in started.values():
            process.answer()
        return started

    def _measure(self, name: str, cost: Callable[[Side], Cost]) -> Row:
        print(f"  {name}", file=sys.stderr, flush=True)
        row = Row(name)
        for turn in range(self._turns):
            pair = [(self._before, row.before), (self._now, row.now)]
            for side, costs in reversed(pair) if turn % 2 else pair:
                costs.append(cost(side))
        return row

    def rows(self) -> Iterator[Row]:
        """Yields each row once it is measured.

        Raises:
            BenchmarkError: A side failed.
        """
        kinds = KINDS[:1] if self._quick else KINDS
        with contextlib.ExitStack() as stack:
            writers = self._started(stack, Writer)
            for kind in kinds:
                yield self._write(kind, writers)
        yield self._measure("start: `python -m beam_jobs --help`", Side.help)
        for package in IMPORTS:
            import_ = partial(Side.import_, package=package)
            yield self._measure(f"start: `import {package}`", import_)
        seconds = _QUICK_SECONDS if self._quick else _READ_SECONDS
        for way, kind in itertools.product(READS, kinds):
            for columns in ("all", f"{kind.feature}, label"):
                with contextlib.ExitStack() as stack:
                    make = partial(Reader, kind=kind, way=way, columns=columns)
                    name = f"read {kind.job} by `{way}`: {columns}"
                    yield self._read(name, self._started(stack, make), seconds)

    def _read(self, name: str, readers: Mapping[Side, Reader], seconds: float) -> Row:
        return self._measure(name, lambda side: readers[side].read(seconds))

    def _write(self, kind: Kind, writers: Mapping[Side, Writer]) -> Row:
        small, large = (TINY, 2 * TINY) if self._quick else (kind.small, kind.large)
        folders = {size: input_folder(self._inputs, kind, size) for size in (TINY, small, large)}
        flags = {side: each.accepted(kind, folders[TINY]) for side, each in writers.items()}
        read_all(folders[large])

        def margin(side: Side) -> Cost:
            less = writers[side].write(kind, flags[side], folders[small])
            more = writers[side].write(kind, flags[side], folders[large])
            added = large - small
            return Cost((more.wall - less.wall) / added, (more.cpu - less.cpu) / added)

        return self._measure(f"write {kind.job}", margin)


def input_folder(inputs: Path, kind: Kind, size: int) -> Path:
    """Returns a folder with inputs, which are created if they do not exist."""
    return make_inputs(inputs, kind.job, size, _DIFFERENT[kind.job], _PICTURE)


def format_rows(rows: Sequence[Row], names: Sequence[str]) -> str:
    """Returns the rows in Markdown."""
    lines = [["", *names, "wall: times as fast", "CPU: times as fast", ""]]
    for row in rows:
        cells = [row.name]
        for costs in (row.before, row.now):
            middle = statistics.median(cost.wall for cost in costs)
            rate = f"{1 / middle:,.0f}/s" if middle > 0 else ""
            cells.append(rate if not row.name.startswith("start") else f"{middle:.3f} s")
        for found in map(row.ratios, ("wall", "cpu")):
            spread = f"({found[0]:.2f} to {found[-1]:.2f})" if found else ""
            cells.append(f"{statistics.median(found):.2f} {spread}" if found else "")
        lines.append([*cells, "SLOWER" if row.is_slower else ""])
    return format_markdown(lines)


def different_versions(before: str, now: str) -> str:
    """Returns a line on the packages whose versions differ between two environments."""
    one, other = versions({"before": before, "now": now}).values()
    names = sorted(name for name in one if one[name] != other.get(name, one[name]))
    different = [f"{name} {one[name]} and {other[name]}" for name in names]
    return f"The environments differ: {', '.join(different)}" if different else ""


def main() -> None:
    """Measures, prints the table, and writes the JSON file.

    Raises:
        BenchmarkError: A flag is wrong, or a revision failed.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = "(default: %(default)s)"
    parser.add_argument("before", metavar="REV", help="a revision of git, or an interpreter")
    parser.add_argument("now", metavar="REV2", nargs="?", default=TREE, help=f"another {default}")
    parser.add_argument("--turns", type=int, default=5, help=default)
    parser.add_argument("--cache", type=Path, default=_CACHE, help=default)
    shm = Path("/dev/shm")
    parser.add_argument(
        "--outputs",
        type=Path,
        default=shm if shm.is_dir() else None,
        help=f"a folder with 2 GB for datasets, which are deleted {default}",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write all figures as JSON")
    parser.add_argument("--prepare", action="store_true", help="only make environments and inputs")
    parser.add_argument("--quick", action="store_true", help="smoke test: few rows, one turn")
    flags = parser.parse_args()
    names, turns = [flags.before, flags.now], 1 if flags.quick else flags.turns
    pythons = [prepare_environment(name, flags.cache) for name in names]
    inputs = flags.cache / "inputs"
    for kind in KINDS:
        for size in (TINY, 2 * TINY) if flags.quick else (kind.large, kind.small, TINY):
            input_folder(inputs, kind, size)
    if flags.prepare:
        return
    with tempfile.TemporaryDirectory(dir=flags.outputs, prefix="beam-shards-compare-") as outputs:
        sides = []
        for place, (name, python) in enumerate(zip(names, pythons, strict=True)):
            Path(outputs, str(place)).mkdir()
            sides.append(Side(name, python, Path(outputs, str(place))))
        rows = []
        for row in Comparison(sides[0], sides[1], inputs, turns, flags.quick).rows():
            rows.append(row)
            if flags.output:
                figures = {"revisions": names, "machine": describe_machine(), "turns": turns}
                figures["rows"] = [
                    asdict(each) | {f"{c} ratios": each.ratios(c) for c in ("wall", "cpu")}
                    for each in rows
                ]
                flags.output.write_text(json.dumps(figures, indent=1) + "\n")
    print(format_rows(rows, names), different_versions(*pythons), sep="\n\n")


if __name__ == "__main__":
    run_command(main)
