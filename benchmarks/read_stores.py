"""How fast shards are read from a store: this project, LitData, MosaicML Streaming, WebDataset.

    python benchmarks/read_stores.py --latency 20 50 --json results.json

All contenders read the same 40,960 arrays of 64x64x3 uint8 (503 MB) from shards of 64 MB, shuffled,
in batches of 128, from a server on this machine that speaks S3's protocol and answers each request
after a latency. Each run is a new process with an empty cache, which reads two epochs: records per
second from the call that opens the dataset to the last batch, imports excluded; requests; and bytes.
Every epoch must return the same records. The server takes its share of the processors, for all alike;
the first line of the table is the rate at which curl fetches our shards, four at a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import make_environment, prepare, rival_python, rival_variables
from measure import HERE, BenchmarkError, run
from records import BATCH, KINDS, make_records
from store_process import READERS, WRITERS

RECORDS, QUICK_RECORDS = 320 * BATCH, 4 * BATCH
_ENVIRONMENTS = {"mds": "mds", "litdata": "litdata", "webdataset": "torch"}
_CURLS = 4

Epoch = dict[str, float]


@contextlib.contextmanager
def serving(folder: Path, latency: float, python: str) -> Iterator[str]:
    """Starts a server of the buckets in a folder, and yields its address."""
    command = [python, str(HERE / "store_server.py"), str(folder), "--latency", str(latency)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


class StoreBench:
    """Writes and reads the buckets of all contenders.

    Args:
        data: The folder of inputs.
        python: The interpreter of this project's environment.
        count: The number of records.
    """

    def __init__(self, data: Path, python: str, count: int) -> None:
        self._data, self._python = data, python
        self._folder = data / "stores" / str(count)

    def python(self, contender: str) -> tuple[str, dict[str, str]]:
        """Returns the interpreter of a contender and its environment variables."""
        if contender == "ours":
            return self._python, {**os.environ, "PYTHONPATH": str(HERE.parent)}
        return rival_python(self._data, _ENVIRONMENTS[contender]), rival_variables()

    def write(self, contenders: Sequence[str]) -> None:
        """Makes the contenders write their buckets, unless they exist.

        Raises:
            BenchmarkError: One of them failed.
        """
        records = self._folder / "records"
        if not records.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            make_records(self._folder / "unfinished", KINDS["images"], int(self._folder.name))
            (self._folder / "unfinished").rename(records)
        for name in contenders:
            if name != "ours":
                make_environment(self._data, _ENVIRONMENTS[name])
            bucket = self._folder / "buckets" / name
            if not bucket.exists():
                python, env = self.python(name)
                unfinished = self._folder / "unfinished" / name
                shutil.rmtree(unfinished, ignore_errors=True)
                command = [python, str(HERE / "store_process.py"), "write", name, str(records)]
                log = self._data / f"stores-{name}.log"
                run(f"{name} writes its shards", [*command, str(unfinished)], log, env)
                bucket.parent.mkdir(exist_ok=True)
                unfinished.rename(bucket)

    def curl(self, latency: float) -> float:
        """Returns the bytes per second at which curl fetches our shards, four at a time."""
        shards = sorted((self._folder / "buckets" / "ours").glob("*.tfrecord"))
        with serving(self._folder / "buckets", latency, self._python) as address:
            urls = [f"{address}/ours/{shard.name}" for shard in shards]
            command = [
                "curl",
                "-s",
                "-f",
                "--no-progress-meter",
                "-Z",
                "--parallel-max",
                str(_CURLS),
            ]
            command += [word for url in urls for word in ("-o", "/dev/null", url)]
            began = time.monotonic()
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            return sum(shard.stat().st_size for shard in shards) / (time.monotonic() - began)

    def read(self, reader: str, latency: float) -> list[Epoch]:
        """Returns the figures of two epochs.

        Raises:
            BenchmarkError: The reader failed.
        """
        contender = READERS[reader][0]
        python, env = self.python(contender)
        buckets = self._folder / "buckets"
        with (
            tempfile.TemporaryDirectory(dir=self._data) as scratch,
            serving(buckets, latency, self._python) as address,
        ):
            env |= {
                "AWS_ENDPOINT_URL": address,
                "S3_ENDPOINT_URL": address,
                "AWS_ACCESS_KEY_ID": "benchmark",
                "AWS_SECRET_ACCESS_KEY": "benchmark",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "STORE_TARS": str(len([*buckets.glob("webdataset/*.tar")])),
            }
            result = Path(scratch, "result.json")
            command = [python, str(HERE / "store_process.py"), "read", reader, f"s3://{contender}"]
            command += [str(Path(scratch, "cache")), "--result", str(result)]
            log = self._data / f"stores-{contender}.log"
            run(f"{reader}, {latency:g} ms", command, log, env, limit=300)
            epochs: list[Epoch] = json.loads(result.read_text())
            return epochs


def check(reader: str, epochs: Sequence[Epoch], results: dict[str, list[list[Epoch]]]) -> None:
    """Checks that all epochs of all readers return the same records.

    Raises:
        BenchmarkError: This one does not.
    """
    others = [epoch for runs in results.values() for found in runs for epoch in found]
    expected = {key: (others or epochs)[0][key] for key in ("records", "checksum")}
    for epoch in epochs:
        if epoch | expected != epoch:
            raise BenchmarkError(f"{reader}: expected {expected}, found {epoch}")


def table(results: dict[str, list[list[Epoch]]], latency: float, curl: float) -> str:
    """Returns the table of a latency: the median rates of both epochs, requests and megabytes."""
    lines = [
        f"{latency:g} ms a request; curl: {curl / 1e6:.0f} MB/s",
        "",
        "| | epoch 1: records/s | first batch ms | requests | MB | epoch 2: records/s | requests | MB |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for reader, runs in results.items():
        cells = [reader]
        for number in range(2):
            epochs = [epochs[number] for epochs in runs]
            cells.append(f"{statistics.median(e['records'] / e['seconds'] for e in epochs):,.0f}")
            if not number:
                cells.append(f"{1000 * statistics.median(e['first'] for e in epochs):,.0f}")
            cells.append(f"{statistics.median(e['requests'] for e in epochs):,.0f}")
            cells.append(f"{statistics.median(e['bytes'] for e in epochs) / 1e6:,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the tables, and writes the JSON file.

    Raises:
        BenchmarkError: A contender failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--readers", list(READERS), list(WRITERS))
    parser.add_argument("--latency", type=float, nargs="+", default=[20, 50], help="in ms")
    flags = parse_flags(parser)
    contenders = parse_names(list(WRITERS), flags.contenders)
    names = parse_names(list(READERS), flags.readers)
    names = [name for name in names if READERS[name][0] in contenders]
    bench = StoreBench(flags.data, flags.python, QUICK_RECORDS if flags.quick else RECORDS)
    figures: dict[str, Any] = prepare(flags.data, flags.python)
    bench.write(contenders)
    tables = []
    for latency in flags.latency:
        results: dict[str, list[list[Epoch]]] = {name: [] for name in names}
        curl = statistics.median(bench.curl(latency) for _ in range(3))
        for number in range(flags.runs):
            start = len(names) * number // flags.runs
            for name in [*names[start:], *names[:start]]:
                epochs = bench.read(name, latency)
                check(name, epochs, results)
                results[name].append(epochs)
        figures[f"{latency:g} ms"] = {"curl": curl, "results": results}
        save(flags.json, figures)
        tables.append(table(results, latency, curl))
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
