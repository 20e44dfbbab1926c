"""Measures what each of many hosts reads of a dataset with few shards, compared with one shard for each host.

    python benchmarks/few_shards.py --json results.json

100,000 rows of 100 numbers, and 20,000 arrays of 64x64x3 uint8, in 8 and in 64 shards, are read as 64 hosts, shuffled,
in batches of 32. Each run measures one of the hosts, each time in a new process, which has the machine to itself: from
a disk, after the pages of the dataset were dropped from memory; from a server on this machine that speaks S3's
protocol and answers each request after a latency; and from that server with an empty `readers.Cache` of the host.
Bytes and requests are those of the first epoch, the opening included, the rate that of the following ones. Before
that, all hosts are read: they must make the same number of steps, and no record may be read twice.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import describe
from harness import Contender, Harness, Result, format_markdown
from measure import BenchmarkError
from read_stores import serving
from stores import counts

SHARDS, HOSTS, BATCH = (8, 64), 64, 32
ORDERS = "global", "interleave"

# Name -> number of records, and the dtype and shape of an array.
KINDS: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "rows": (100_000, "float32", (100,)),
    "pictures": (20_000, "uint8", (64, 64, 3)),
}
_QUICK_RECORDS = HOSTS * BATCH

# Name -> its order, and where the shards are.
WAYS: dict[str, tuple[str, str]] = {
    f"{by} from {place}": (by, place) for place in ("disk", "store", "cache") for by in ORDERS
}
_SECONDS = 1.0  # in which the following epochs are read


def write(kind: str, records: int, shards: int, folder: str) -> None:
    """Writes a dataset; `number` is different in each record."""
    import numpy as np

    import beam_jobs
    import readers

    _, dtype, shape = KINDS[kind]
    random = np.random.default_rng(0)
    rows = (
        {"number": number, "value": random.integers(0, 256, shape).astype(dtype)}
        for number in range(records)
    )
    schema = readers.Schema({"number": ("int64", ()), "value": (dtype, shape)})
    beam_jobs.write(rows, folder, schema, num_shards=shards)


def check(path: str, by: Any) -> dict[str, int]:
    """Returns the number of steps of every host, the records that all read, and the mean bytes of a host's records.

    Raises:
        BenchmarkError: The steps differ, or a record was read twice.
    """
    import numpy as np

    import readers

    found, numbers = set[int](), list[np.ndarray]()
    for host in range(HOSTS):
        order, shard = readers.Order(by=by), (host, HOSTS)
        batches = readers.as_numpy(path, BATCH, columns=["number"], shuffle=order, shard=shard)
        read = [batch["number"] for batch in batches]
        numbers += read
        found.add(len(read))
    every = np.concatenate(numbers)
    if len(found) > 1 or len(np.unique(every)) < len(every):
        raise BenchmarkError(f"{path}: hosts make {found} steps, or read a record twice")
    shards = readers.Manifest.read(path).splits["train"].shards
    needs = sum(shard.bytes for shard in shards) // HOSTS
    return {"steps": found.pop(), "records": len(every), "needs": needs}


def read(path: str, by: Any, host: int, cache: str | None) -> dict[str, Any]:
    """Returns the figures of the first epoch of a host, and the rate of the following ones."""
    import readers

    is_local = not path.startswith("s3://")
    if is_local:
        _drop_pages(Path(path))
    else:
        import boto3  # noqa: F401

        counts("DELETE")
    order, kept = readers.Order(by=by), readers.Cache(cache) if cache else None
    before, began = _disk_bytes(), time.perf_counter()
    batches = readers.as_numpy(path, BATCH, shuffle=order, shard=(host, HOSTS), cache=kept)
    first, records = None, 0
    for batch in batches:
        first = first or time.perf_counter() - began
        records += len(batch["number"])
    found = {"requests": 0, "bytes": _disk_bytes() - before} if is_local else counts()
    began, cpu, more, seconds = time.perf_counter(), time.process_time(), 0, 0.0
    while seconds < _SECONDS:
        more += sum(len(batch["number"]) for batch in batches)
        seconds = time.perf_counter() - began
    cpu = time.process_time() - cpu
    rates = {"records_per_second": more / seconds, "cpu_per_record": cpu / more}
    return {**found, **rates, "first": first, "records": records}


def _drop_pages(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _disk_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


class Bench:
    """Writes and reads the datasets.

    Args:
        harness: Calls the functions of this module.
        records: The number of records; None for the default of each kind.
        latency: The milliseconds after which the store answers.
    """

    def __init__(self, harness: Harness, records: int | None, latency: float) -> None:
        self._harness, self._records, self._latency = harness, records, latency

    def dataset(self, kind: str, shards: int) -> Path:
        """Returns the folder of a dataset, which is written once."""
        records = self._records or KINDS[kind][0]
        arguments = {"kind": kind, "records": records, "shards": shards}

        def make(folder: Path) -> None:
            label = f"writes {records:,} {kind} in {shards} shards"
            self._call(label, "write", {**arguments, "folder": str(folder)})

        return self._harness.once(
            self._harness.data / f"few_shards/{records}/{kind}-{shards}", make
        )

    def check(self, dataset: Path, by: str) -> dict[str, int]:
        """Returns the number of steps of every host, the records that all read, and the bytes of a host's share.

        Raises:
            BenchmarkError: The steps differ, or a record was read twice.
        """
        label = f"counts the steps of {dataset.name}, {by}"
        found = self._call(label, "check", {"path": str(dataset), "by": by})
        return {name: found[name] for name in ("steps", "records", "needs")}

    def read(self, result: Result, dataset: Path, host: int) -> None:
        """Adds the figures of a host to a result."""
        by, place = WAYS[result.mode]
        with (
            tempfile.TemporaryDirectory(dir=self._harness.data) as scratch,
            serving(dataset.parent, self._latency) as variables,
        ):
            path = str(dataset) if place == "disk" else f"s3://{dataset.name}"
            cache = f"{scratch}/cache" if place == "cache" else None
            arguments = {"path": path, "by": by, "host": host, "cache": cache}
            label = f"{result.mode}, {result.case}, host {host}"
            kept = {"XDG_CACHE_HOME": scratch}  # indexes
            result.runs.append(self._call(label, "read", arguments, variables | kept))

    def _call(self, label: str, function: str, arguments: Any, variables: Any = None) -> Any:
        call = self._harness.call
        return call("ours", label, f"few_shards:{function}", arguments, variables=variables)


def format_kind(kind: str, share: Mapping[str, int], results: Sequence[Result]) -> str:
    """Returns the table of a kind: the medians of all runs."""
    head = ["shards", "MB read", "times its share", "requests", "first batch ms"]
    many = f"records/s, of {SHARDS[-1]} shards"
    rows = [["", *head, many, "CPU µs/record"]]
    rates = {(r.mode, r.arguments["shards"]): r.median("records_per_second") for r in results}
    for result in results:
        shards, found = result.arguments["shards"], result.median("bytes")
        rows.append(
            [
                result.mode,
                str(shards),
                f"{found / 1e6:,.2f}",
                f"{found / share['needs']:,.1f}",
                f"{result.median('requests'):,.0f}",
                f"{result.median('first') * 1e3:,.0f}",
                f"{rates[result.mode, shards] / rates[result.mode, SHARDS[-1]]:.2f}",
                f"{result.median('cpu_per_record') * 1e6:,.1f}",
            ]
        )
    title = (
        f"**{kind}: {HOSTS} hosts, each {share['steps']} steps and {share['needs'] / 1e6:,.2f} MB, "
        f"together {share['records']:,} records**"
    )
    return f"{title}\n\n{format_markdown(rows)}"


def main() -> None:
    """Measures, prints the tables, and writes the JSON file.

    Raises:
        BenchmarkError: This project failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--datasets", list(KINDS), list(WAYS))
    parser.add_argument("--latency", type=float, default=20, help="in ms (default: 20)")
    flags = parse_flags(parser)
    ways = parse_names(list(WAYS), flags.contenders)
    harness = Harness(flags.data, flags.python, {"ours": Contender("ours")}, flags.quick)
    bench = Bench(harness, _QUICK_RECORDS if flags.quick else None, flags.latency)
    every: list[Result] = []
    tables = []
    for kind in parse_names(list(KINDS), flags.datasets):
        datasets = {shards: bench.dataset(kind, shards) for shards in SHARDS}
        shares = [bench.check(d, by) for d in datasets.values() for by in ORDERS]
        if shares != shares[:1] * len(shares):
            raise BenchmarkError(f"{kind}: hosts have different shares: {shares}")
        results = [Result(kind, "ours", way, {"shards": n}) for way in ways for n in datasets]
        for run in range(flags.runs):
            host = (HOSTS - 1) * run // max(flags.runs - 1, 1)
            for result in results:
                bench.read(result, datasets[result.arguments["shards"]], host)
        every += results
        tables.append(format_kind(kind, shares[0], results))
        figures = {**describe(harness.pythons()), "results": [asdict(each) for each in every]}
        save(flags.json, figures)
    report(figures, tables, flags.quick)


if __name__ == "__main__":
    run_command(main)
