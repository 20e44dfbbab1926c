"""One job of texts into a disk and into stores, on Flink and Spark: seconds, memory, requests, and bytes.

    python benchmarks/engine_stores.py --parallelism 1 2 4

The clusters and the servers of S3 and Google Cloud Storage are those of the tests, on this machine, and
take their share of its cores. All files of all runs must have the same SHA-256. `bytes` is how long the
servers take for the bytes of a run alone: the same objects written and read without an engine.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from command import parse_names, run_command
from environment import prepare
from measure import HERE, BenchmarkError, sample_session
from scale import make_lines, private_bytes, run_job

from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.objects import NewObject, store_of
from readers.format.display import format_bytes

sys.path.insert(0, str(HERE.parent))

from tests.engines.flink import Flink
from tests.engines.running import running
from tests.engines.services import pids
from tests.engines.spark import Spark
from tests.support.object_stores import Bucket, bucket_of, gcs_running, s3_running

ENGINES = {"flink": Flink, "spark": Spark}
SERVERS = {"s3": s3_running, "gcs": gcs_running}
STORES = ["disk", *SERVERS]

_SAMPLE_SECONDS = 0.5
_RUN_BYTES = 64 << 20
_RANGE_BYTES = 1 << 20


@dataclass
class Result:
    """One run.

    Attributes:
        engine, store, parallelism: Where it ran.
        seconds: Time from the command to its end.
        worker_bytes, java_bytes: The most private memory of a Python worker, and of a Java process.
        requests: The number of requests by method.
        byte_seconds: Time of the bytes through the server alone; 0 on a disk.
        dataset_bytes: The size of all files.
        sha256: Of the names and the SHA-256 of all files.
        problem: Why it failed; empty if it did not.
    """

    engine: str
    store: str
    parallelism: int
    seconds: float = 0.0
    worker_bytes: int = 0
    java_bytes: int = 0
    requests: dict[str, int] = dataclasses.field(default_factory=dict)
    byte_seconds: float = 0.0
    dataset_bytes: int = 0
    sha256: str = ""
    problem: str = ""


@contextlib.contextmanager
def watched(folder: Path, result: Result) -> Iterator[None]:
    """Samples the memory of an engine's processes during the context."""
    sessions, ended = list(pids(folder).values()), threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            for pid in [pid for session in sessions for pid in sample_session(session)[1]]:
                with contextlib.suppress(OSError):
                    is_java = Path("/proc", pid, "comm").read_text().strip() == "java"
                    kind = "java_bytes" if is_java else "worker_bytes"
                    setattr(result, kind, max(getattr(result, kind), private_bytes(pid)))

    thread = threading.Thread(target=sample)
    thread.start()
    began = time.monotonic()
    try:
        yield
    finally:
        result.seconds = time.monotonic() - began
        ended.set()
        thread.join()


def fingerprint(directory: str) -> tuple[int, str]:
    """Returns the size of all files of a dataset, and the SHA-256 of their names and hashes.

    Raises:
        BenchmarkError: Something is left in `.staging/`.
    """
    found, size = {}, 0
    for file in list_files(directory):
        name = file.path[len(directory) + 1 :]
        if name.startswith(".staging"):
            raise BenchmarkError(f"{file.path} was left behind")
        data = read_bytes(file.path)
        size += len(data)
        found[name] = hashlib.sha256(data).hexdigest()
    return size, hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()


def time_of_bytes(bucket: Bucket, size: int, parallelism: int) -> float:
    """Returns how long a server takes for runs and shards of this size, by a thread for each task."""
    data = bytes(_RANGE_BYTES)
    runs = range(-(-size // _RUN_BYTES))
    store = store_of(bucket.url)

    def write(path: str) -> None:
        file = NewObject(path)
        for _ in range(min(size, _RUN_BYTES) // _RANGE_BYTES):
            file.write(data)
        file.publish()

    def read(run: int) -> None:
        for start in range(0, min(size, _RUN_BYTES), _RANGE_BYTES):
            store.read(f"{bucket.url}/bytes/run{run}", start, _RANGE_BYTES)

    began = time.monotonic()
    with ThreadPoolExecutor(parallelism) as threads:
        list(threads.map(lambda run: write(f"{bucket.url}/bytes/run{run}"), runs))
        list(threads.map(read, runs))
        list(threads.map(lambda run: write(f"{bucket.url}/bytes/shard{run}"), runs))
    seconds = time.monotonic() - began
    for kind in ("run", "shard"):
        store.delete([f"{bucket.url}/bytes/{kind}{run}" for run in runs])
    return seconds


def measure(engine: Flink | Spark, lines: Path, result: Result, bucket: Bucket | None) -> None:
    """Runs the job, and collects its figures."""
    base = bucket.url if bucket else str(engine.folder)
    out = f"{base}/out"
    shutil.rmtree(out, ignore_errors=True)
    if bucket:
        bucket.proxy.forget()
    flags = ["text", "--input", f"{lines}/*.txt", "--tokens=words", "--output", out, *engine.flags]
    flags += ["--environment_cache_millis=20000"]
    flags += [f"--parallelism={result.parallelism}"] if isinstance(engine, Flink) else []
    try:
        with watched(engine.folder, result):
            run_job(*flags)
        if bucket:
            seen = bucket.proxy.seen(method=None)
            result.requests = dict(Counter(request.method for request in seen))
        result.dataset_bytes, result.sha256 = fingerprint(out)
    except BenchmarkError as error:
        result.problem = str(error)
    if bucket and not result.problem:
        result.byte_seconds = time_of_bytes(bucket, result.dataset_bytes, result.parallelism)
    if bucket:
        store_of(out).delete([file.path for file in list_files(out)])


def format_results(results: list[Result]) -> str:
    """Formats a row for each run, and whether all datasets are the same."""
    lines = [
        "| engine | tasks | into | s | bytes alone, s | of its limit | worker | JVM | requests |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    disks = {(r.engine, r.parallelism): r.seconds for r in results if r.store == "disk"}
    for r in results:
        disk = disks.get((r.engine, r.parallelism), 0.0)
        limit = 1.5 * disk + r.byte_seconds
        share = f"{r.seconds / limit:.2f}" if r.store != "disk" and disk else ""
        requests = ", ".join(f"{count:,} {name}" for name, count in sorted(r.requests.items()))
        row = [
            r.engine,
            str(r.parallelism),
            r.store,
            f"{r.seconds:.0f}" if not r.problem else f"{r.seconds:.0f}, failed: {r.problem}",
            f"{r.byte_seconds:.0f}" if r.byte_seconds else "",
            share,
            format_bytes(r.worker_bytes),
            format_bytes(r.java_bytes),
            requests,
        ]
        lines.append(f"| {' | '.join(row)} |")
    hashes = {r.sha256 for r in results if not r.problem}
    same = "the same" if len(hashes) == 1 else f"NOT the same: {len(hashes)} different"
    return "\n".join([*lines, "", f"The files of all runs are {same}: {', '.join(hashes)}"])


def main() -> None:
    """Measures, prints the table, and writes the JSON file.

    Raises:
        BenchmarkError: A flag is wrong, or files differ.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("benchmark_data"))
    parser.add_argument("--lines", type=int, default=9_400_000, help="of 12 words: 1.3 GiB")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--parallelism", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="smoke test: tiny inputs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    flags = parser.parse_args()
    data = flags.data.absolute() / "engine_stores"
    data.mkdir(parents=True, exist_ok=True)
    lines = make_lines(data, 2_000 if flags.quick else flags.lines)
    stores = parse_names(STORES, flags.stores)
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        # Before the clusters, whose workers have the environment of this process.
        buckets = {
            name: stack.enter_context(bucket_of(stack.enter_context(run(data / f"{name}.log"))))
            for name, run in SERVERS.items()
            if name in stores
        }
        for name in parse_names(list(ENGINES), flags.engines):
            for parallelism in flags.parallelism:
                folder = data / name
                shutil.rmtree(folder, ignore_errors=True)
                own = {"cores": parallelism} if name == "spark" else {}
                engine: Flink | Spark
                with running(ENGINES[name], folder, **own) as engine:
                    for store in stores:
                        result = Result(name, store, parallelism)
                        print(f"  {name}, {parallelism}, {store}", file=sys.stderr, flush=True)
                        measure(engine, lines, result, buckets.get(store))
                        results.append(result)
    print(format_results(results))
    if flags.json:
        found = {**prepare(data, sys.executable), "results": list(map(dataclasses.asdict, results))}
        flags.json.write_text(json.dumps(found, indent=1) + "\n")
    if len({result.sha256 for result in results}) > 1:
        raise BenchmarkError("a run failed, or the files of two runs differ")


if __name__ == "__main__":
    run_command(main)
