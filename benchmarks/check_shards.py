"""Counts the planted faults that checks find: this project, CleanVision, Datalab, fastdup, ydata-profiling, TFDV.

    python benchmarks/check_shards.py --json results.json
    python benchmarks/check_shards.py --datasets pictures --contenders ours,cleanvision,fastdup

All contenders get the same pictures, texts, rows and recordings, which are made once from real photographs, sentences
and measurements, with known faults of each kind; this project gets shards of them. Each rival runs with its defaults
in a separate environment and process. A cell shows how many of the planted faults a contender names, and how many of
its names are false alarms, without this fault. A dash is a kind of fault that it does not look for. Seconds are from
the start of the process to its end; those of the page are in addition, but ours is a separate command that checks again.
"""

from __future__ import annotations

import re
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from planted.table import NUMBERS
from planted.truth import Truth, score

COUNTS = {"pictures": 3000, "texts": 10_000, "table": 20_000, "recordings": 1000}
QUICK_COUNTS = {"pictures": 400, "texts": 400, "table": 1000, "recordings": 200}

# The modes are the datasets that a contender can look at.
_ALL = tuple(COUNTS)
_FINDERS = "rivals.planted."
CONTENDERS = {
    "ours": Contender("ours", modes=_ALL),
    "cleanvision": Contender("datalab", _FINDERS + "cleanvision_finder", ("pictures",)),
    "datalab": Contender("datalab", _FINDERS + "datalab_finder", _ALL),
    "fastdup": Contender("fastdup", _FINDERS + "fastdup_finder", ("pictures",)),
    "datasketch": Contender("datasketch", _FINDERS + "datasketch_finder", ("texts",)),
    "profiling": Contender("profiling", _FINDERS + "profiling_finder", ("texts", "table")),
    "tfdv": Contender("tfdv", _FINDERS + "tfdv_finder", ("texts", "table")),
}
_TITLES = {
    "ours": "readers",
    "cleanvision": "CleanVision",
    "datalab": "cleanlab Datalab",
    "profiling": "ydata-profiling",
    "tfdv": "TFDV",
}

_FEATURES = ",".join(["patient:string", *(f"{name}:float32" for name in NUMBERS)])

# What differs between the datasets; all have keys and splits in columns of the same names.
_JOBS: dict[str, Sequence[str]] = {
    "pictures": ("images", "--table", "{}", "--label", "column:label", "--encoding", "source"),
    "texts": ("text", "--input", "{}", "--label_field", "label"),
    "table": (
        *("text", "--input", "{}", "--label_field", "label"),
        *("--text_field", "site", "--extra_features", _FEATURES),
    ),
    "recordings": ("sensors", "--table", "{}", "--label", "column:label"),
}

# What a page loads from elsewhere: scripts, styles and pictures, not links that a reader may follow.
_FROM_NETWORK = re.compile(
    rb"<(?:script|img|iframe|source)\b[^>]{0,2000}?\bsrc=[\"']?(?:https?:)?//"
    rb"|<link\b[^>]{0,2000}?\bhref=[\"']?(?:https?:)?//"
    rb"|@import\s+(?:url\()?[\"']?(?:https?:)?//",
    re.IGNORECASE,
)


class Bench:
    """Runs the contenders on a dataset.

    Args:
        harness: Runs the contenders.
        dataset: The name of the dataset.
        count: The number of its records.
    """

    def __init__(self, harness: Harness, dataset: str, count: int) -> None:
        self._harness, self._dataset, self._count = harness, dataset, count
        self._folder = harness.data / "planted" / str(count) / dataset
        self._shards = str(self._folder / "shards")

    def make(self) -> Truth:
        """Makes the dataset and its shards, unless they exist, and returns its planted faults.

        Raises:
            BenchmarkError: A package cannot be installed, or a job failed.
        """

        def make(folder: Path) -> None:
            arguments = {"dataset": self._dataset, "folder": str(folder), "count": self._count}
            self._harness.call("planted", f"makes {self._dataset}", "planted.calls:make", arguments)

        def write(shards: Path) -> None:
            job = ["-m", "beam_jobs", *job_of(self._dataset, self._folder, shards)]
            self._harness.run("ours", f"writes {self._dataset}", job)

        self._harness.once(self._folder, make)
        self._harness.once(Path(self._shards), write)
        return Truth.read(self._folder)

    def measure(self, result: Result) -> dict[str, Any]:
        """Returns the names that a contender gives for each kind of fault, and the cost of the run.

        Raises:
            BenchmarkError: It failed.
        """
        pages = self._harness.data / "planted-pages"
        shutil.rmtree(pages, ignore_errors=True)
        pages.mkdir()
        found = (self._ours if result.contender == "ours" else self._rival)(result, pages)
        written = [page.read_bytes() for page in pages.glob("*.html")]
        if found["page_seconds"] is not None:
            found["page_bytes"] = sum(map(len, written))
            found["needs_network"] = any(map(loads_from_network, written))
        return found

    def _rival(self, result: Result, pages: Path) -> dict[str, Any]:
        arguments = {"module": CONTENDERS[result.contender].module, "dataset": self._dataset}
        arguments |= {"folder": str(self._folder), "pages": str(pages)}
        call = self._harness.call
        found = call(result.contender, self._dataset, "planted.calls:find", arguments)
        found["seconds"] -= found["page_seconds"] or 0.0
        return found

    def _ours(self, result: Result, pages: Path) -> dict[str, Any]:
        call, records = self._harness.call, 2 * self._count
        shards = {"shards": self._shards}
        found = call("ours", self._dataset, "planted.ours:check", {**shards, "records": records})
        command = ["-m", "readers", "report", self._shards, "--records", str(records)]
        command += ["--output", str(pages / "report.html")]
        page = self._harness.run("ours", f"report of {self._dataset}", command)
        arguments = {**shards, "dataset": self._dataset}
        named = call("ours", f"names of {self._dataset}", "planted.ours:names", arguments)
        return {
            **found,
            "named": {kind: names for kind, names in named.items() if isinstance(names, list)},
            "page_seconds": page.seconds,
            "peak_bytes": max(found["peak_bytes"], page.peak_bytes),
        }


def job_of(dataset: str, folder: Path, output: Path) -> list[str]:
    """Returns the arguments of `python -m beam_jobs` that write a dataset."""
    records = str(folder / "records.parquet")
    command = [records if word == "{}" else word for word in _JOBS[dataset]]
    command += ["--key", "column:id", "--split_column", "split", "--splits", "train,val"]
    return [*command, "--num_shards", "4", "--output", str(output)]


def loads_from_network(page: bytes) -> bool:
    """Whether a page loads scripts, styles, pictures or other pages from elsewhere."""
    return bool(_FROM_NETWORK.search(page))


def scores_of(truth: Truth, named: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns the faults of each planted kind that were found."""
    return {
        kind: str(score(truth, kind, named[kind])) if kind in named else "-"
        for kind in truth.faults
    }


def format_results(dataset: str, truth: Truth, results: Sequence[Result]) -> str:
    """Returns the table of a dataset, and a line for each contender that has no column."""
    done = [result for result in results if result.is_measured]
    scores = [scores_of(truth, result.runs[-1]["named"]) for result in done]
    rows = [[dataset, *(_TITLES.get(result.contender, result.contender) for result in done)]]
    rows += [[kind, *(each[kind] for each in scores)] for kind in truth.faults]
    rows.append(["seconds", *(f"{result.median('seconds'):.1f}" for result in done)])
    rows.append(["peak GB", *(f"{result.median('peak_bytes') / 1e9:.2f}" for result in done)])
    pages = []
    for result in done:
        run = result.runs[-1]
        if run["page_seconds"] is None:
            pages.append(["no page"] * 3)
            continue
        seconds = statistics.median(run["page_seconds"] for run in result.runs)
        network = "yes" if run["needs_network"] else "no"
        pages.append([f"{seconds:.1f}", f"{run['page_bytes'] / 1e6:.2f}", network])
    names = ("page: seconds more", "page: MB", "page: needs the network")
    rows += [[name, *cells] for name, *cells in zip(names, *pages, strict=True)]
    problems = [f"- {result.contender}: {result.problem}" for result in results if result.problem]
    title = f"{truth.records:,} {dataset}"
    return "\n".join([title, "", format_markdown(rows), *([""] if problems else []), *problems])


def main() -> None:
    """Measures, prints the tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--datasets", list(COUNTS), list(CONTENDERS))
    parser.set_defaults(runs=1)
    flags = parse_flags(parser)
    contenders = parse_names(list(CONTENDERS), flags.contenders)
    # In quick runs the photographs are those of the packages that this project's environment has.
    makers = {"planted": Contender("ours" if flags.quick else "planted")}
    harness = Harness(flags.data, flags.python, CONTENDERS | makers, flags.quick)
    every: list[Result] = []
    tables = []
    for dataset in parse_names(list(COUNTS), flags.datasets):
        bench = Bench(harness, dataset, (QUICK_COUNTS if flags.quick else COUNTS)[dataset])
        truth = bench.make()
        results = [
            Result(dataset, name, "") for name in contenders if dataset in CONTENDERS[name].modes
        ]
        for result in results:
            for _ in range(flags.runs):
                if found := harness.attempt(result, partial(bench.measure, result)):
                    result.runs.append(found)
            every.append(result)
            figures = {**describe(harness.pythons()), "results": [asdict(each) for each in every]}
            save(flags.json, figures)  # after every contender, in case a later one hangs
        tables.append(format_results(dataset, truth, results))
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
