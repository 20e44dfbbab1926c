"""Measures how fast shards are read from a store: this project, LitData, MosaicML Streaming, WebDataset.

    python benchmarks/read_stores.py --latency 20 50 --json results.json

All contenders read the same 40,960 arrays of 64x64x3 uint8 (503 MB) from shards of 64 MB, shuffled,
in batches of 128, from a server on this machine that speaks S3's protocol and answers each request
after a latency. Each run is a new process with an empty cache, which reads two epochs: records per
second from the call that opens the dataset to the last batch, imports excluded; requests; and bytes.
Every epoch must return the same records. The server uses the same processors as the readers.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from measure import HERE, BenchmarkError
from records import BATCH
from stores import READERS, WRITERS

RECORDS, QUICK_RECORDS = 320 * BATCH, 4 * BATCH
CONTENDERS = {
    "ours": Contender("ours"),
    "mds": Contender("mds"),
    "litdata": Contender("litdata"),
    "webdataset": Contender("torch"),
}


@contextlib.contextmanager
def serving(folder: Path, latency: float) -> Iterator[dict[str, str]]:
    """Starts a server of the buckets in a folder, and yields the variables of its clients."""
    command = [sys.executable, str(HERE / "store_server.py"), str(folder)]
    command += ["--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            address = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield {
                "AWS_ENDPOINT_URL": address,
                "S3_ENDPOINT_URL": address,
                "AWS_ACCESS_KEY_ID": "benchmark",
                "AWS_SECRET_ACCESS_KEY": "benchmark",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
        finally:
            process.kill()


class Bench:
    """Writes and reads the buckets of all contenders.

    Args:
        harness: Runs the contenders.
        count: The number of records.
    """

    def __init__(self, harness: Harness, count: int) -> None:
        self._harness, self._folder = harness, harness.data / "stores" / str(count)
        self._expected: dict[str, float] = {}

    def write(self, contender: str) -> None:
        """Makes a contender write its bucket, unless it exists.

        Raises:
            BenchmarkError: It failed.
        """
        arguments = {"kind": "pixels", "records": int(self._folder.name)}

        def make(folder: Path) -> None:
            call, label = self._harness.call, "makes the records"
            call("ours", label, "records:make_records", {**arguments, "folder": str(folder)})

        records = self._harness.once(self._folder / "records", make)

        def write(store: Path) -> None:
            arguments = {"contender": contender, "records": str(records), "store": str(store)}
            self._harness.call(contender, "writes its shards", "stores:write", arguments)

        self._harness.once(self._folder / "buckets" / contender, write)

    def read(self, result: Result, latency: float) -> dict[str, Any]:
        """Returns the figures of two epochs.

        Raises:
            BenchmarkError: The reader failed, or did not return all records.
        """
        buckets = self._folder / "buckets"
        tars = {"STORE_TARS": str(len([*buckets.glob("webdataset/*.tar")]))}
        with (
            tempfile.TemporaryDirectory(dir=self._harness.data) as scratch,
            serving(buckets, latency) as variables,
        ):
            arguments = {"name": result.mode, "url": f"s3://{result.contender}"}
            arguments["cache"] = str(Path(scratch, "cache"))
            label = f"{result.mode}, {result.case}"
            found = self._harness.call(
                result.contender, label, "stores:read", arguments, variables=variables | tars
            )
        for epoch in found["epochs"]:
            same = {key: epoch[key] for key in ("records", "checksum")}
            self._expected = self._expected or same
            if same != self._expected:
                raise BenchmarkError(f"{label}: found {same}, expected {self._expected}")
        return found


def format_case(results: Sequence[Result]) -> str:
    """Returns the table of a latency: the medians of both epochs."""
    head = ["epoch 1: records/s", "first batch ms", "requests", "MB"]
    rows = [[results[0].case, *head, "epoch 2: records/s", "requests", "MB"]]
    for result in results:
        cells = [result.mode]
        for number in range(2 if result.is_measured else 0):
            epochs = [run["epochs"][number] for run in result.runs]
            cells.append(f"{statistics.median(e['records'] / e['seconds'] for e in epochs):,.0f}")
            if not number:
                cells.append(f"{1000 * statistics.median(e['first'] for e in epochs):,.0f}")
            cells.append(f"{statistics.median(e['requests'] for e in epochs):,.0f}")
            cells.append(f"{statistics.median(e['bytes'] for e in epochs) / 1e6:,.0f}")
        rows.append([*cells, *["does not run"] * (len(cells) == 1), *[""] * 7][:8])
    problems = [f"- {result.mode}: {result.problem}" for result in results if result.problem]
    return "\n".join([format_markdown(rows), *problems])


def main() -> None:
    """Measures, prints the tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--readers", list(READERS), list(WRITERS))
    parser.add_argument("--latency", type=float, nargs="+", default=[20, 50], help="in ms")
    flags = parse_flags(parser)
    contenders = parse_names(list(WRITERS), flags.contenders)
    names = parse_names(list(READERS), flags.readers)
    harness = Harness(flags.data, flags.python, CONTENDERS, flags.quick)
    bench = Bench(harness, QUICK_RECORDS if flags.quick else RECORDS)
    every: list[Result] = []
    tables = []
    for latency in flags.latency:
        results = [
            Result(f"{latency:g} ms a request", READERS[name][0], name)
            for name in names
            if READERS[name][0] in contenders
        ]
        for number in range(flags.runs):
            start = len(results) * number // flags.runs
            for result in [*results[start:], *results[:start]]:
                harness.attempt(result, partial(bench.write, result.contender))
                if found := harness.attempt(result, partial(bench.read, result, latency)):
                    result.runs.append(found)
        every += results
        tables.append(format_case(results))
        figures = {**describe(harness.pythons()), "results": [asdict(each) for each in every]}
        save(flags.json, figures)
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
