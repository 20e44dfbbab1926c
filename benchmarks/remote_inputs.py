"""How fast jobs read inputs from a store, beside the same inputs on a disk.

    python benchmarks/remote_inputs.py --latency 20 50 --json results.json

`images`: 2,000 JPEGs, each an object, become 64x64 pixels. `zip`: the same, as members of an archive.
`recordings`: 2,000 `.npy` files of 7 KB. `text`: 50,000 lines of 200 characters, in two files.
`list`: 100,000 empty objects are listed, by the function that jobs use.

The store is a server on this machine that answers each request after a latency, and takes its share of
the processors. Every job writes its shards to the disk, and they must have the same bytes. Seconds are
those of the command, start included; the largest number of requests at the same time is that of all
processes together.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import time
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command import build_parser, parse_flags, parse_names, report, run_command, save
from environment import prepare
from inputs import make_inputs, read_all
from measure import HERE, BenchmarkError, run
from read_stores import serving

SIZES = {"images": 2_000, "zip": 2_000, "recordings": 2_000, "text": 50_000, "list": 100_000}
QUICK_SIZES = {"images": 40, "zip": 40, "recordings": 40, "text": 500, "list": 2_500}

_JOBS = {
    "images": ["images", "--image_size", "64x64"],
    "zip": ["images", "--image_size", "64x64"],
    "recordings": ["sensors"],
    "text": ["text", "--text_field", "text", "--label", "none", "--tokens", "words"],
}
_LIST = (
    "import sys; from beam_jobs.storage.listing import match; "
    "print(sum(1 for _ in match(sys.argv[1])))"
)
_DISK = "disk"

Result = dict[str, float]


def make_archive(data: Path, size: int) -> Path:
    """Returns a folder with a zip of images, stored."""
    folder = data / "zip" / str(size)
    if not folder.exists():
        images = make_inputs(data, "images", size)
        unfinished = folder.with_name(f".{size}")
        unfinished.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(unfinished / "images.zip", "w") as archive:
            for path in sorted(images.rglob("*.jpg")):
                archive.write(path, path.relative_to(images))
        unfinished.rename(folder)
    return folder


def make_names(data: Path, size: int) -> Path:
    """Returns a folder with empty files in ten folders."""
    folder = data / "list" / str(size)
    if not folder.exists():
        unfinished = folder.with_name(f".{size}")
        shutil.rmtree(unfinished, ignore_errors=True)
        for label in range(10):
            (unfinished / f"class-{label}").mkdir(parents=True)
        for number in range(size):
            (unfinished / f"class-{number % 10}" / f"{number:07d}.jpg").touch()
        unfinished.rename(folder)
    return folder


def make(data: Path, kind: str, size: int) -> Path:
    """Returns the folder with the inputs of a kind, which is created if it does not exist."""
    if kind == "zip":
        return make_archive(data, size)
    if kind == "list":
        return make_names(data, size)
    return make_inputs(data, "sensors" if kind == "recordings" else kind, size)


def command_of(python: str, kind: str, inputs: str, out: Path) -> list[str]:
    """Returns the command that reads the inputs of a kind."""
    if kind == "list":
        return [python, "-c", _LIST, f"{inputs}/**"]
    pattern = f"{inputs}/*.zip" if kind == "zip" else inputs
    return [python, "-m", "beam_jobs", *_JOBS[kind], "--input", pattern, "--output", str(out)]


def digest_of(out: Path) -> str:
    """Returns a digest of all shards."""
    shards = sorted(out.rglob("*.tfrecord"))
    return hashlib.sha256(b"".join(shard.read_bytes() for shard in shards)).hexdigest()


class RemoteBench:
    """Runs the jobs.

    Args:
        data: The folder of inputs.
        python: The interpreter of this project's environment.
    """

    def __init__(self, data: Path, python: str) -> None:
        self._data, self._python = data, python
        self._digests: dict[str, str] = {}

    def _run(self, kind: str, inputs: str, place: str, env: dict[str, str]) -> Result:
        """Runs a job, and checks that it writes what the others of its kind have written.

        Raises:
            BenchmarkError: The job failed, or wrote other bytes.
        """
        out = self._data / "remote-out"
        shutil.rmtree(out, ignore_errors=True)
        log = self._data / f"remote-{kind}.log"
        done = run(f"{kind}, {place}", command_of(self._python, kind, inputs, out), log, env)
        found = log.read_text().strip() if kind == "list" else digest_of(out)
        if found != self._digests.setdefault(kind, found):
            raise BenchmarkError(f"{kind}, {place}: {found}, expected {self._digests[kind]}")
        return {"seconds": done.seconds, "cpu": done.cpu_seconds, "peak": done.peak_bytes}

    def on_disk(self, kind: str, folder: Path) -> Result:
        """Runs a job on files."""
        read_all(folder)
        return self._run(kind, str(folder), _DISK, self._environment())

    def in_store(self, kind: str, folder: Path, latency: float) -> Result:
        """Runs a job on objects."""
        with serving(folder.parent, latency, self._python) as address:
            env = self._environment() | {
                "AWS_ENDPOINT_URL": address,
                "AWS_ACCESS_KEY_ID": "benchmark",
                "AWS_SECRET_ACCESS_KEY": "benchmark",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
            }
            done = self._run(kind, f"s3://{folder.name}", f"{latency:g} ms", env)
            with urllib.request.urlopen(address) as answer:
                counts = json.load(answer)
        return done | counts

    def measure(
        self, kind: str, folder: Path, latencies: Sequence[float], runs: int
    ) -> dict[str, Result]:
        """Returns the medians of all runs of a kind, by the place of its inputs."""
        found: dict[str, list[Result]] = {}
        for _ in range(runs):
            found.setdefault(_DISK, []).append(self.on_disk(kind, folder))
            for latency in latencies:
                place = f"{latency:g} ms"
                found.setdefault(place, []).append(self.in_store(kind, folder, latency))
        return {place: medians(each) for place, each in found.items()}

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(HERE.parent)}

    def start_seconds(self) -> float:
        """Returns the seconds in which the command starts and ends."""
        began = time.monotonic()
        command = [self._python, "-m", "beam_jobs", "images", "--help"]
        run("start", command, self._data / "remote-start.log", self._environment())
        return time.monotonic() - began


def medians(runs: Sequence[Result]) -> Result:
    """Returns the median of each figure."""
    return {name: statistics.median(each[name] for each in runs) for name in runs[0]}


def table(results: dict[str, dict[str, Result]]) -> str:
    """Returns the table: a row for each kind and place."""
    lines = [
        "| inputs | from | s | times disk | CPU s | peak MB | requests | at once | MB read |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for kind, places in results.items():
        for place, figures in places.items():
            cells = [kind, place, f"{figures['seconds']:.1f}"]
            disk = places.get(_DISK)
            cells.append(f"{figures['seconds'] / disk['seconds']:.2f}" if disk else "")
            cells += [f"{figures['cpu']:.1f}", f"{figures['peak'] / 1e6:,.0f}"]
            if place == _DISK:
                cells += ["", "", ""]
            else:
                cells += [f"{figures['requests']:,.0f}", f"{figures['at once']:.0f}"]
                cells.append(f"{figures['bytes'] / 1e6:,.1f}")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measures, prints the table, and writes the JSON file.

    Raises:
        BenchmarkError: A job failed, or a flag is wrong.
    """
    parser = build_parser(__doc__, "--kinds", list(SIZES), [])
    parser.add_argument("--latency", type=float, nargs="+", default=[0, 20, 50], help="in ms")
    flags = parse_flags(parser)
    kinds = parse_names(list(SIZES), flags.kinds)
    bench = RemoteBench(flags.data, flags.python)
    figures: dict[str, Any] = prepare(flags.data, flags.python)
    figures["start"] = bench.start_seconds()
    results: dict[str, dict[str, Result]] = {}
    for kind in kinds:
        folder = make(flags.data, kind, (QUICK_SIZES if flags.quick else SIZES)[kind])
        results[kind] = bench.measure(kind, folder, flags.latency, flags.runs)
        figures["results"] = results
        save(flags.json, figures)
    report(figures, [table(results), f"start: {figures['start']:.1f} s"], flags.quick)


if __name__ == "__main__":
    run_command(main)
