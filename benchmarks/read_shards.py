"""Measures how fast shards are read: this project, tf.data, ArrayRecord, Grain, LitData, MDS, PyTorch and others.

    python benchmarks/read_shards.py --json results.json
    python benchmarks/read_shards.py --datasets jpeg,jpeg_train --cores 1 2 --contenders ours,tf_data,ffcv

All contenders read the same records, shuffled, each in its own format: records that this project's jobs write from
pictures, recordings and texts, in batches of 128, with all their features (including `key` and `label`) or only two;
and photographs in batches of 64 on 1, 2, 4 ... cores (`pictures.py` describes the work on each). Each figure is
measured in a new process with a warm page cache: records per second after the start, the time from opening the reader
to its first batch, and peak memory, imports included. A Python loop and, as in Keras, a `tf.function` consume the
batches of tf.data; the same loops over one repeated batch measure the cost of TensorFlow itself.

Before that, every mode of every contender must return the same records, or pictures of the right number, shape,
dtype and mean. Each rival runs in a separate environment, which is created once (PyTorch's takes 6 GB).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pictures
import records
from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_rates
from inputs import read_all
from measure import BenchmarkError

FILES = "files"  # the store of contenders that read the photographs themselves

_READERS = (
    "load, loop",
    "load, graph",
    "load, graph, interleave",
    "as_numpy",
    "as_numpy, interleave",
)
ARRAYS = {
    "ours": Contender("ours", "ours_arrays", (*_READERS, "RecordSource")),
    "bare": Contender(
        "ours", "rivals.arrays.bare", ("one batch, loop", "one batch, graph"), "ours"
    ),
    "tf_data": Contender(
        "ours", "rivals.arrays.tf_data", ("tf.data, loop", "tf.data, graph"), "ours"
    ),
    "grain": Contender(
        "rivals",
        "rivals.arrays.grain_reader",
        ("ArrayRecord, batch call", "Grain", "Grain, no threads", "Grain, 2 workers"),
    ),
    "litdata": Contender("litdata", "rivals.arrays.litdata_reader", ("LitData",)),
    "mds": Contender("mds", "rivals.arrays.mds", ("MosaicML Streaming",)),
}
PICTURES = {
    "ours": Contender("ours", "ours_pictures", ("load", "as_numpy", "RecordSource")),
    "tf_data": Contender("ours", "rivals.pictures.tf_data", ("tf.data",), "ours"),
    "pytorch": Contender("torch", "rivals.pictures.pytorch", ("PyTorch, torchvision",), FILES),
    "litdata": Contender("litdata", "rivals.pictures.litdata_reader", ("LitData",)),
    "mds": Contender("mds", "rivals.pictures.mds", ("MosaicML Streaming",)),
    "datasets": Contender("datasets", "rivals.pictures.hugging_face", ("HF datasets",)),
    "webdataset": Contender("torch", "rivals.pictures.webdataset_reader", ("WebDataset",)),
    "grain": Contender(
        "rivals", "rivals.pictures.grain_reader", ("Grain, threads", "Grain, processes")
    ),
    "ffcv": Contender("ffcv", "rivals.pictures.ffcv_reader", ("FFCV",)),
    "dali": Contender("dali", "rivals.pictures.dali", ("DALI on the CPU",), FILES),
}
# These have a type for ragged batches; others would return a list of arrays.
_RAGGED = {*_READERS, *ARRAYS["bare"].modes, *ARRAYS["tf_data"].modes}

# The modes of a case are compared with the first of these that was measured.
_YARDSTICKS = ("as_numpy", "tf.data")

_SECONDS, _PICTURE_SECONDS, _QUICK_SECONDS = 1.5, 5.0, 0.1
_QUICK_BATCHES = 2


class Bench:
    """Measures the contenders of arrays, or those of photographs.

    Args:
        harness: Runs the contenders.
        contenders: The measured contenders.
        cores: The numbers of cores for photographs.
    """

    def __init__(
        self, harness: Harness, contenders: dict[str, Contender], cores: list[int]
    ) -> None:
        self._harness, self._contenders, self._cores = harness, contenders, cores

    def _source(self, kind: Any, count: int) -> Path:
        """Returns a folder with records or photographs, which is created once."""
        if kind.name in records.KINDS:
            folder = self._harness.data / "read" / kind.name / str(count) / "records"
            arguments = {"kind": kind.name, "records": count}

            def make(new: Path) -> None:
                label = f"makes {count:,} records of {kind.name}"
                call = self._harness.call
                call("ours", label, "records:make_records", {**arguments, "folder": str(new)})

            return self._harness.once(folder, make)
        folder = self._harness.data / "read" / "photographs" / str(count) / "photographs"
        pictures.make_photographs(folder, count)
        return folder

    def _store(self, name: str, kind: Any, source: Path) -> Path:
        """Returns the store that a contender reads, which is written once.

        Raises:
            BenchmarkError: It cannot be written.
        """
        writer = self._contenders[name].store or name
        if writer == FILES:
            return source
        every = ARRAYS if kind.name in records.KINDS else PICTURES
        arguments = {"module": every[writer].module, "kind": kind.name, "folder": str(source)}

        def write(store: Path) -> None:
            label = f"writes {int(source.parent.name):,} records of {kind.name}"
            self._harness.call(writer, label, "reading:write", {**arguments, "store": str(store)})

        return self._harness.once(source.parent / writer, write)

    def _cases(self, kind: Any) -> Iterator[tuple[str, dict[str, Any], int | None]]:
        """Yields the title of a case, how records are read, and the number of cores."""
        if kind.name in records.KINDS:
            few = 1 if self._harness.quick else None
            for batching in kind.batchings[:few]:
                for columns in ("all", "chosen"):
                    for cores in self._cores:
                        title = f"{kind.name}, {batching}, {columns} columns{_on(cores)}"
                        yield (
                            title,
                            {"batching": batching, "columns": columns, "cores": cores},
                            cores,
                        )
            return
        for dtype in kind.dtypes:
            for cores in self._cores:
                yield f"{kind.name}, {dtype}{_on(cores)}", {"dtype": dtype, "cores": cores}, cores

    def _results(self, kind: Any, count: int, problems: dict[str, str]) -> list[Result]:
        """Returns a result without runs for each mode that supports a case, and writes all stores."""
        source, stores = self._source(kind, count), {}
        for name in self._contenders:
            trial = Result("", name, "", problem=problems.get(name, ""))
            stores[name] = self._harness.attempt(trial, partial(self._store, name, kind, source))
            problems[name] = trial.problem
        results = []
        for case, how, cores in self._cases(kind):
            for name, contender in self._contenders.items():
                arguments = {"module": contender.module, "kind": kind.name, **how}
                arguments["store"] = str(stores[name])
                results += [
                    Result(case, name, mode, {**arguments, "mode": mode}, cores, [], problems[name])
                    for mode in contender.modes
                    if _supports(mode, how)
                ]
        return results

    def measure(self, kind: Any, runs: int) -> list[Result]:
        """Returns the measurements of all modes.

        Raises:
            BenchmarkError: This project failed.
        """
        few = _QUICK_BATCHES * kind.batch
        count = few if self._harness.quick else kind.records
        # Arrays are compared value by value, which takes long; of pictures every one.
        checked = few if kind.name in records.KINDS else count
        problems: dict[str, str] = {}
        for result in self._results(kind, checked, problems):
            if result.cores == max(self._cores) and not _is_same(result.mode):
                self._check(result, self._source(kind, checked))
                problems[result.contender] = problems[result.contender] or result.problem
        results = self._results(kind, count, problems)
        seconds = _SECONDS if kind.name in records.KINDS else _PICTURE_SECONDS
        for result in results:
            result.arguments["seconds"] = _QUICK_SECONDS if self._harness.quick else seconds
        read_all(self._source(kind, count).parent)
        self._harness.measure(results, "reading:time_batches", runs)
        return results

    def _check(self, result: Result, source: Path) -> None:
        """Checks that a mode returns all records; notes it if it does not.

        Raises:
            BenchmarkError: The mode is one of this project.
        """
        arguments = {**result.arguments, "folder": str(source)}
        label = f"check {result.mode}, {result.case}"
        call = self._harness.call
        self._harness.attempt(
            result, partial(call, result.contender, label, "reading:check", arguments)
        )


def _on(cores: int) -> str:
    return f", {cores} core{'s' if cores > 1 else ''}"


def _is_same(mode: str) -> bool:
    """Whether another mode has the same batches, so that its check is enough."""
    return "graph" in mode or mode in ARRAYS["bare"].modes


def _supports(mode: str, how: dict[str, Any]) -> bool:
    return how.get("batching") != "ragged" or mode in _RAGGED


def parse_cores(cores: list[int] | None) -> list[int]:
    """Returns numbers of cores: 1, 2, 4 ... all unless they are given.

    Raises:
        BenchmarkError: There are not as many cores.
    """
    available = len(os.sched_getaffinity(0))
    powers = [1 << power for power in range(available.bit_length()) if 1 << power < available]
    cores = sorted(set(cores or [*powers, available]))
    if not 1 <= cores[0] <= cores[-1] <= available:
        raise BenchmarkError(f"--cores {cores}: expected numbers from 1 to {available}")
    return cores


def main() -> None:
    """Measures, prints tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    kinds: dict[str, Any] = {**records.KINDS, **pictures.KINDS}
    names = list(dict.fromkeys([*ARRAYS, *PICTURES]))
    parser = build_parser(__doc__, "--datasets", list(kinds), names)
    parser.add_argument(
        "--cores",
        type=int,
        nargs="+",
        help="numbers of cores on which they are read (default: 1 2 4 ... all; arrays: all)",
    )
    flags = parse_flags(parser)
    cores, chosen = parse_cores(flags.cores), parse_names(names, flags.contenders)
    results: list[Result] = []
    pythons: dict[str, str] = {}
    for name in parse_names(list(kinds), flags.datasets):
        every = ARRAYS if name in records.KINDS else PICTURES
        contenders = {each: every[each] for each in chosen if each in every}
        used = cores if flags.cores or every is PICTURES else cores[-1:]
        harness = Harness(flags.data, flags.python, every, flags.quick)
        results += Bench(harness, contenders, used).measure(kinds[name], flags.runs)
        pythons |= harness.pythons()
        figures = {**describe(pythons), "results": [asdict(result) for result in results]}
        save(flags.json, figures)  # after every dataset, in case a later one fails
    report(figures, [format_rates(results, _YARDSTICKS)], flags.quick)


if __name__ == "__main__":
    run_command(main)
