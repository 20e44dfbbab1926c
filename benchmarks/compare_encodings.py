"""How large each encoding makes a dataset, how fast this project writes it, and how fast it is read.

    python benchmarks/compare_encodings.py --json results.json
    python benchmarks/compare_encodings.py --datasets pictures --runs 1

The tables of docs/internals/figures.md. Each run writes every dataset with the command line, and reads it in a random order with
all columns: with `as_numpy`, and with `load` in a `tf.function`, on two cores with a warm page cache. The rate of writing
leaves out the start and the listing. The inputs are

    pictures     crops of 500x375 of scikit-learn's two photographs, JPEGs of quality 90 (pictures.py)
    recordings   random walks of 50 to 500 steps and six channels, float32 (inputs.py)
    counts       the same as an instrument's int16: hundredths, rounded
    texts        paragraphs of Python's own documentation (pydoc_data.topics), again and again
"""

from __future__ import annotations

import importlib
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from inputs import make_inputs, read_all
from measure import BenchmarkError
from pictures import HEIGHT, WIDTH, make_photographs

import readers

_CORES = 2
_MODES = ("as_numpy", "load")

# Phases of a job that do not grow with the records, or hardly.
_OVERHEAD = ("starting", "listing", "checking")

_WARM_SECONDS, _SECONDS = 0.2, 0.5


@dataclass(frozen=True)
class Dataset:
    """Records that are written in several encodings.

    Attributes:
        make: Writes so many inputs into a new folder.
        job: The arguments of `python -m beam_jobs`, but for the input and the output.
        rows: Name of a row -> further flags.
        records, quick: The number of records, and that of a smoke test.
        batch, batching: How they are read.
        together: Batches that one call of a `tf.function` takes.
    """

    make: Callable[[Path, int], object]
    job: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]
    records: int
    quick: int
    batch: int = 128
    batching: str = "padded"
    together: int = 20


def _make_counts(folder: Path, count: int) -> None:
    source = make_inputs(folder.parent, "sensors", count)
    for path in sorted(source.rglob("*.npy")):
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        counts = np.rint(np.load(path) * 100).astype(np.int16)
        np.save(folder / path.parent.name / path.name, counts)


def _make_texts(folder: Path, count: int) -> None:
    topics = importlib.import_module("pydoc_data.topics").topics
    parts = [" ".join(part.split()) for topic in topics.values() for part in topic.split("\n\n")]
    texts = itertools.islice(itertools.cycle([part for part in parts if part]), count)
    folder.mkdir()
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))


def _link_recordings(folder: Path, count: int) -> None:
    folder.symlink_to(make_inputs(folder.parent, "sensors", count))


def _sized(encoding: str, size: str) -> tuple[str, ...]:
    return "--encoding", encoding, "--image_size", size


_FULL, _SMALL = f"{HEIGHT}x{WIDTH}", "224x224"
_ARRAYS = {name: ("--encoding", name) for name in ("tensor", "raw", "list")}

DATASETS = {
    "pictures": Dataset(
        make_photographs,
        ("images", "--label", "none"),
        {
            "source": ("--encoding", "source"),
            **{name: _sized(name, _FULL) for name in ("jpeg", "png", "tensor")},
            **{
                f"{name}, {_SMALL}": _sized(name, _SMALL)
                for name in ("jpeg", "png", "tensor", "raw", "list")
            },
        },
        records=320,
        quick=64,
        batch=64,
        batching="dense",
        together=2,
    ),
    "recordings": Dataset(
        _link_recordings,
        ("sensors",),
        {**_ARRAYS, "tensor, float16": ("--dtype", "float16")},
        records=64 * 128,
        quick=256,
    ),
    "counts": Dataset(_make_counts, ("sensors",), _ARRAYS, records=64 * 128, quick=256),
    "texts": Dataset(
        _make_texts,
        ("text",),
        {
            "texts": (),
            "words": ("--tokens", "words"),
            "bytes": ("--tokens", "bytes"),
            "bpe": ("--tokens", "bpe", "--vocabulary_size", "8000"),
        },
        records=400 * 128,
        quick=256,
    ),
}


def time_reading(stores: Mapping[str, str], mode: str, dataset: str, seconds: float) -> Any:
    """Returns the records per second that a mode reads of each store.

    Args:
        stores: Row -> the folder of its shards.
        mode: One of `_MODES`.
        dataset: The name of the dataset.
        seconds: How long each is read.
    """
    rates = {}
    for row, store in stores.items():
        counts = _counts(mode, DATASETS[dataset], store)
        next(counts)
        warm = time.perf_counter() + seconds * _WARM_SECONDS / _SECONDS
        while time.perf_counter() < warm:
            next(counts)
        read, began = 0, time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            read += next(counts)
        rates[row] = read / (now - began)
    return rates


def _counts(mode: str, dataset: Dataset, store: str) -> Iterator[int]:
    """Yields numbers of records as they are read, without end."""
    schema = dict(readers.Manifest.read(store).schema)
    if (
        "image" in schema and None in schema["image"].shape
    ):  # All have one size, so batches are dense.
        feature = schema["image"]
        schema["image"] = readers.Feature(feature.dtype, (HEIGHT, WIDTH, 3), feature.encoding)
    read = getattr(readers, mode)
    how = {"batching": dataset.batching, "shuffle": True, "repeat": None, "schema": schema}
    batches = read(store, dataset.batch, **how)
    if mode == "load":
        from rivals.arrays.in_graph import read_in_graph  # imports TensorFlow

        return read_in_graph(batches, "key", dataset.together)
    return (len(batch["key"]) for batch in batches)


class Bench:
    """Writes and reads a dataset in all encodings.

    Args:
        harness: It runs the commands.
        name: The name of the dataset.
    """

    def __init__(self, harness: Harness, name: str) -> None:
        self._harness, self._name, self._dataset = harness, name, DATASETS[name]
        self._records = self._dataset.quick if harness.quick else self._dataset.records
        self._folder = harness.data / "encodings" / name

    def measure(self, runs: int) -> list[Result]:
        """Returns a result for each row, with the figures of each run.

        Raises:
            BenchmarkError: A command failed, or lost records.
        """

        def make(folder: Path) -> None:
            self._dataset.make(folder, self._records)

        inputs = self._harness.once(self._folder / f"inputs-{self._records}", make)
        if self._name == "pictures":
            inputs /= "files"
        read_all(inputs)
        size = sum(path.stat().st_size for path in inputs.rglob("*") if path.is_file())
        seconds = _SECONDS / 8 if self._harness.quick else _SECONDS
        results = [Result(self._name, "ours", row, {"inputs": size}) for row in self._dataset.rows]
        stores = {row: str(self._folder / row.replace(", ", "-")) for row in self._dataset.rows}
        for _ in range(runs):
            found = {row: self._write(row, inputs, Path(store)) for row, store in stores.items()}
            for mode in _MODES:
                arguments: dict[str, Any] = {"stores": stores, "mode": mode}
                arguments |= {"dataset": self._name, "seconds": seconds}
                label, function = f"reads {self._name}, {mode}", "compare_encodings:time_reading"
                rates = self._harness.call("ours", label, function, arguments, _CORES)
                for row in stores:
                    found[row][mode] = rates[row]
            for result in results:
                result.runs.append(found[result.mode])
        return results

    def _write(self, row: str, inputs: Path, store: Path) -> dict[str, Any]:
        """Writes the shards of a row, and returns their bytes and the records written per second."""
        shutil.rmtree(store, ignore_errors=True)
        command = ["-m", "beam_jobs", *self._dataset.job, "--input", str(inputs)]
        command += ["--output", str(store), "--num_shards", "4", "--json"]
        command += self._dataset.rows[row]
        self._harness.run("ours", f"writes {self._name}, {row}", command, _CORES)
        lines = (self._harness.data / "ours.log").read_text().splitlines()
        written = json.loads(next(line for line in lines if line.startswith("{")))
        (split,) = written["splits"].values()
        if split["records"] != self._records:
            raise BenchmarkError(f"{row}: {split['records']} of {self._records} were written")
        phases = written["phases"].items()
        seconds = sum(taken for phase, taken in phases if phase not in _OVERHEAD)
        return {"bytes": split["bytes"], "written": self._records / seconds}


def format_rows(results: Sequence[Result], records: int) -> str:
    """Returns the table of a dataset, and how far the runs of a row are apart."""
    first = results[0]
    head = ["bytes per record", "of the inputs", "written/s", "`as_numpy`/s", "`load`/s"]
    rows = [[f"{records:,} {first.case}", *head]]
    for result in results:
        size = result.median("bytes")
        share = f"{size / result.arguments['inputs']:.2f}"
        medians = (result.median(figure) for figure in ("written", *_MODES))
        rates = (f"{float(f'{median:.2g}'):,.0f}" for median in medians)
        rows.append([result.mode, f"{size / records:,.0f}", share, *rates])
    if len(first.runs) == 1:
        return f"{format_markdown(rows)}\n\nOne run: how far runs differ is not known."
    apart = {
        figure: max(_apart([run[figure] for run in result.runs]) for result in results)
        for figure in ("written", *_MODES)
    }
    noise = ", ".join(f"{figure} {most:.0%}" for figure, most in apart.items())
    return f"{format_markdown(rows)}\n\nThe runs of a row differ by up to: {noise}"


def _apart(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / min(values)


def main() -> None:
    """Measures, prints tables, and writes the JSON file.

    Raises:
        BenchmarkError: A command failed, or a flag is wrong.
    """
    flags = parse_flags(build_parser(__doc__, "--datasets", list(DATASETS), ["ours"]))
    harness = Harness(flags.data, flags.python, {"ours": Contender("ours")}, flags.quick)
    results: list[Result] = []
    tables = []
    for name in parse_names(list(DATASETS), flags.datasets):
        dataset = DATASETS[name]
        found = Bench(harness, name).measure(flags.runs)
        results += found
        tables.append(format_rows(found, dataset.quick if flags.quick else dataset.records))
        figures = {**describe(harness.pythons()), "results": [asdict(each) for each in results]}
        save(flags.json, figures)  # after every dataset, in case a later one fails
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
