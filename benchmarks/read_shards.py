"""How fast shards are read: this project, tf.data, TensorFlow Datasets, Grain, WebDataset, PyTorch, FFCV and others.

    python benchmarks/read_shards.py --json results.json
    python benchmarks/read_shards.py --datasets jpeg,jpeg_train --cores 1 2 --contenders ours,tf_data,ffcv

All contenders read the same records, each in its own format: arrays in batches of 128, photographs in
batches of 64 on 1, 2, 4 ... cores (`pictures.py` says what is done with each). Each figure is measured in a new
process with a warm page cache: records per second after the start, the time from opening the reader to its
first batch, and peak memory, imports included. The upper bound for arrays is a bare loop over
`TFRecordDataset`, which returns batches of serialized records and decodes nothing.

Before that, every mode of every contender must return the same records, or pictures of the right number, shape,
dtype and mean. Each rival runs in an environment of its own, which is created once (PyTorch's takes 6 GB).
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
from records import make_records

FILES = "files"  # the store of contenders that read the photographs themselves

_OURS = ("load", "as_numpy", "RecordSource")
ARRAYS = {
    "ours": Contender("ours", "ours_arrays", _OURS),
    "bare": Contender(
        "ours", "rivals.arrays.bare", ("bare TFRecordDataset", "bare, shuffled"), "ours"
    ),
    "tf_data": Contender("ours", "rivals.arrays.per_record", ("tf.data by record",), "ours"),
    "tfds": Contender("rivals", "rivals.arrays.tfds_reader", ("TFDS",)),
    "grain": Contender(
        "rivals",
        "rivals.arrays.grain_reader",
        ("Grain", "Grain, no threads", "Grain, 2 workers"),
    ),
    "webdataset": Contender("rivals", "rivals.arrays.webdataset_reader", ("WebDataset",)),
}
PICTURES = {
    "ours": Contender("ours", "ours_pictures", _OURS),
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
# These have no type for ragged batches: they would return a list of arrays.
_NOT_RAGGED = {"RecordSource", "WebDataset", *ARRAYS["grain"].modes}

# With which the modes of a case are compared: the first of them that was measured.
_YARDSTICKS = ("tf.data", "bare TFRecordDataset", "bare, shuffled")

_SECONDS, _PICTURE_SECONDS, _QUICK_SECONDS = 1.5, 5.0, 0.1
_QUICK_BATCHES = 2


class Bench:
    """Measures the contenders of arrays, or those of photographs.

    Args:
        harness: It runs them.
        contenders: Those that are measured.
        cores: The numbers of cores for photographs.
    """

    def __init__(
        self, harness: Harness, contenders: dict[str, Contender], cores: list[int]
    ) -> None:
        self._harness, self._contenders, self._cores = harness, contenders, cores

    def _source(self, kind: Any, count: int) -> Path:
        """Returns a folder with records or photographs, which is made once."""
        if kind.name in records.KINDS:
            folder = self._harness.data / "read" / kind.name / str(count) / "records"
            return self._harness.once(folder, partial(make_records, kind=kind, records=count))
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
                for order in ("shuffled", "in order")[:few]:
                    how = {"batching": batching, "shuffle": order == "shuffled"}
                    yield f"{kind.name}, {batching}, {order}", how, None
            return
        for dtype in kind.dtypes:
            for cores in self._cores:
                title = f"{kind.name}, {dtype}, {cores} core{'s' if cores > 1 else ''}"
                yield title, {"dtype": dtype, "cores": cores}, cores

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
                    if _supports(name, mode, how)
                ]
        return results

    def measure(self, kind: Any, runs: int) -> list[Result]:
        """Returns the measurements of all modes.

        Raises:
            BenchmarkError: This project failed.
        """
        few = _QUICK_BATCHES * kind.batch
        count = few if self._harness.quick else kind.records
        # Arrays are compared value by value, which takes long; of pictures all are looked at.
        checked = few if kind.name in records.KINDS else count
        problems: dict[str, str] = {}
        for result in self._results(kind, checked, problems):
            if result.cores in (None, max(self._cores)):
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
            BenchmarkError: It is one of this project.
        """
        arguments = {**result.arguments, "folder": str(source)}
        label = f"check {result.mode}, {result.case}"
        call = self._harness.call
        self._harness.attempt(
            result, partial(call, result.contender, label, "reading:check", arguments)
        )


def _supports(name: str, mode: str, how: dict[str, Any]) -> bool:
    if name == "bare":
        return bool(how["shuffle"] == mode.endswith("shuffled"))
    return how.get("batching") != "ragged" or mode not in _NOT_RAGGED


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
        help="numbers of cores on which pictures are read (default: 1 2 4 ... all)",
    )
    flags = parse_flags(parser)
    cores, chosen = parse_cores(flags.cores), parse_names(names, flags.contenders)
    results: list[Result] = []
    pythons: dict[str, str] = {}
    for name in parse_names(list(kinds), flags.datasets):
        every = ARRAYS if name in records.KINDS else PICTURES
        contenders = {each: every[each] for each in chosen if each in every}
        harness = Harness(flags.data, flags.python, every, flags.quick)
        results += Bench(harness, contenders, cores).measure(kinds[name], flags.runs)
        pythons |= harness.pythons()
        figures = {**describe(pythons), "results": [asdict(result) for result in results]}
        save(flags.json, figures)  # after every dataset, in case a later one fails
    report(figures, [format_rates(results, _YARDSTICKS)], flags.quick)


if __name__ == "__main__":
    run_command(main)
