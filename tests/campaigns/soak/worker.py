"""A process under watch, which reads or writes until its parent ends: `python -m tests.campaigns.soak.worker reader …`."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np

import readers
from beam_jobs.__main__ import main as run_job
from tests.campaigns.soak.inputs import KINDS, checksum, write_inputs

_BATCH, _EPOCHS = 16, 4
# Less than the datasets: shards are evicted all the time.
_CACHE_SIZE = "300KB"
_VALUES = {"images": "image", "text": "text", "sensors": "signal"}

# As options of records differ from job to job, so do the readers' ways through them.
_OPTIONS = {
    "images": (["--encoding", "tensor"], ["--encoding", "raw", "--image_size", "24x24"]),
    "text": ([], ["--tokens", "words"]),
    "sensors": (["--encoding", "tensor"], ["--encoding", "list"]),
}
_SPLITS = ("--splits", "train=0.8,val=0.2", "--num_shards", "train=3,val=1")
_EVERY_WITH_TWO = 5
_PASSES_OF_A_DATASET = 8

# Lines of Linux's account of this process's memory -> their names.
_MEMORY = {"Rss": "rss", "Anonymous": "anonymous"}

# The value of a record and its key.
Epoch = list[tuple[bytes | np.ndarray, str]]


def command_of(kind: str, number: int, inputs: Path, url: str) -> list[str]:
    """The command of a job that replaces a dataset; one in five has processes of its own."""
    workers = "2" if number % _EVERY_WITH_TWO == _EVERY_WITH_TWO - 1 else "1"
    command = [kind, "--input", str(inputs), "--output", url, "--overwrite", *_SPLITS]
    command += ["--seed", str(number), "--direct_num_workers", workers]
    command += _OPTIONS[kind][number // len(KINDS) % 2]
    return command if kind == "text" else [*command, "--label", "none"]


def _rows(batch: Mapping[str, np.ndarray], name: str) -> Iterator[tuple[np.ndarray, str]]:
    """The records of a batch, without their padding."""
    lengths = batch.get(f"{name}_length")
    for row, (key, value) in enumerate(zip(batch["key"], batch[name], strict=True)):
        yield value if lengths is None else value[: lengths[row]], key.decode()


def _options(kind: str, split: str, cache: Mapping[str, Any]) -> dict[str, Any]:
    padded = {"batching": readers.Padded(lengths=True)} if kind == "sensors" else {}
    options = {"split": split, "columns": [_VALUES[kind], "key"], "batch_size": _BATCH}
    return {**options, "shuffle": True, **padded, **cache}


def _as_numpy(
    url: str, kind: str, split: str, cache: Mapping[str, Any], seed: int
) -> Iterator[Epoch]:
    order = ("global", "interleave")[seed % 2]
    for epoch in range(_EPOCHS):
        more = {"shuffle": readers.Order(by=order), "seed": seed + epoch}
        batches = readers.as_numpy(url, **_options(kind, split, cache) | more)
        yield [row for batch in batches for row in _rows(batch, _VALUES[kind])]


def _load(url: str, kind: str, split: str, cache: Mapping[str, Any], seed: int) -> Iterator[Epoch]:
    batches = readers.load(url, **_options(kind, split, cache), seed=seed)
    for _ in range(_EPOCHS):
        yield [row for batch in batches.as_numpy_iterator() for row in _rows(batch, _VALUES[kind])]


def _source(
    url: str, kind: str, split: str, cache: Mapping[str, Any], seed: int
) -> Iterator[Epoch]:
    name = _VALUES[kind]
    source = readers.RecordSource(url, split, [name, "key"], **cache)
    for epoch in range(_EPOCHS):
        order = np.random.default_rng(seed + epoch).permutation(len(source)).tolist()
        one_by_one, at_once = order[: len(order) // 4], order[len(order) // 4 :]
        records = [source[at] for at in one_by_one] + source.__getitems__(at_once)
        yield [(record[name], record["key"].decode()) for record in records]


_WAYS: tuple[Callable[..., Iterator[Epoch]], ...] = (_as_numpy, _source, _load)


def _difference(records: Epoch, expected: Mapping[str, int]) -> str:
    """How an epoch differs from the records that were written; empty if it does not."""
    epoch = Counter((key, checksum(value)) for value, key in records)
    more, less = epoch - Counter(expected.items()), Counter(expected.items()) - epoch
    if not (more or less):
        return ""
    return f"{len(records)} records: {sorted(less)[:3]} are missing, {sorted(more)[:3]} are not of the dataset"


def _epochs(
    url: str, kind: str, expected: Mapping[str, int], cache: str, number: int
) -> dict[str, Any]:
    """Reads some epochs of both splits in one of the ways, and returns what was read."""
    way = _WAYS[number % len(_WAYS)]
    # The ways and the cache take all turns with each other.
    has_cache = number // len(_WAYS) % 2 == 1
    kept = {"cache": readers.Cache(cache, _CACHE_SIZE)} if has_cache else {}
    done = {"what": way.__name__.lstrip("_") + (", cache" if has_cache else "")}
    splits = [way(url, kind, split, kept, number * _EPOCHS) for split in ("train", "val")]
    for parts in zip(*splits, strict=True):
        if wrong := _difference([record for part in parts for record in part], expected):
            return {**done, "failure": f"{way.__name__} of {url}: {wrong}"}
    return {**done, "epochs": _EPOCHS, "records": _EPOCHS * len(expected)}


class Reader:
    """Reads datasets that jobs in other processes replace now and then."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self._folder, self._bucket = folder, bucket
        self._expected: dict[str, dict[str, int]] = {}

    def __call__(self, number: int) -> dict[str, Any]:
        """Reads some epochs of the next dataset."""
        kind = KINDS[number % len(KINDS)]
        url = f"s3://{self._bucket}/read-{kind}"
        if number // len(KINDS) % _PASSES_OF_A_DATASET == 0:
            self._expected[kind] = write_inputs(kind, number, self._folder / "read")
            command = [sys.executable, "-m", "beam_jobs"]
            command += command_of(kind, number, self._folder / "read", url)
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return {"failure": f"exit code {done.returncode}: {done.stderr}"}
        turn = number // len(KINDS)
        return _epochs(url, kind, self._expected[kind], str(self._folder / "cache"), turn)


class Writer:
    """Runs job after job in its own process."""

    def __init__(self, folder: Path, bucket: str) -> None:
        self._inputs, self._bucket = folder / "written", bucket

    def __call__(self, number: int) -> dict[str, Any]:
        """Replaces the next dataset, and verifies it."""
        kind = KINDS[number % len(KINDS)]
        url = f"s3://{self._bucket}/written-{kind}"
        expected = write_inputs(kind, number, self._inputs)
        with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(said):
            code = run_job(command_of(kind, number, self._inputs, url))
        if code:
            return {"failure": f"exit code {code}: {said.getvalue()}"}
        report = readers.verify(url)
        if report.problems or report.records != len(expected):
            return {"failure": f"{url}: {report}"}
        return {"what": kind, "records": len(expected)}


def resources() -> dict[str, float]:
    """What this process has: memory in MB, and counts of descriptors, threads and processes that it has started."""
    proc = Path("/proc/self")
    found: dict[str, float] = {}
    for line in (proc / "smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in _MEMORY:
            found[_MEMORY[name]] = round(int(rest.split()[0]) / 1024, 3)
    tasks = list((proc / "task").iterdir())
    found["descriptors"], found["threads"] = sum(1 for _ in (proc / "fd").iterdir()), len(tasks)
    found["children"] = sum(len((task / "children").read_text().split()) for task in tasks)
    return found


def main(process: str, folder: Path, bucket: str, rest: float) -> None:
    """Works until the parent has ended, and prints a line of JSON for each step.

    Args:
        process: "reader" or "writer".
        folder: SIGUSR1 writes the stacks of all threads to a file there.
        bucket: Of S3.
        rest: How many times as long as it worked the process sleeps.
    """
    faulthandler.register(
        signal.SIGUSR1, (folder / f"{process}.stacks").open("w"), all_threads=True
    )
    step = {"reader": Reader, "writer": Writer}[process](folder, bucket)
    number, parent = 0, os.getppid()
    start = time.monotonic()
    answers, sys.stdout = sys.stdout, sys.stderr  # stdout is for the lines of JSON.
    while os.getppid() == parent:
        began = time.monotonic()
        try:
            done = step(number)
        except Exception:
            done = {"failure": traceback.format_exc()}
        seconds = time.monotonic() - began
        # With TensorFlow there are 440,000 objects, and Python looks through all of them for cycles when there
        # are a quarter more: after a hundred datasets, an hour. What waits for that is not kept.
        gc.collect()
        line = {"hours": round((time.monotonic() - start) / 3600, 6), **done, **resources()}
        print(json.dumps(line), file=answers, flush=True)
        number += 1
        time.sleep(min(max(seconds * rest, 0.2), 30))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
