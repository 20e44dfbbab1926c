"""A soak: jobs and readers work for hours on a faulty store, and their memory is measured.

    python -m tests.campaigns soak --hours 2 --folder soak
    python -m tests.campaigns soak --judge soak

One process runs job after job, one reads epoch after epoch, both through a proxy that makes 1 % of the requests
to a server of S3 on this machine fail. SIGINT or SIGTERM ends it early, with its verdict. The exit code is 1 if
memory grows, descriptors grow, an epoch is not whole, a job fails, or a process makes no progress.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.campaigns.soak.verdict import PROCESSES, judge, lines_of
from tests.campaigns.soak.weather import Weather
from tests.campaigns.tally import Tally
from tests.support.object_stores import SIGNED, s3_running

_BUCKET = "soak"
_SHARE_OF_FAULTS = 0.01
# How many times as long as they work the processes rest.
_RESTS = {"reader": 4.0, "writer": 5.0}
_FIRST_STEP_SECONDS = 300


def _problem(process: str, started: subprocess.Popen[bytes], folder: Path, patience: float) -> str:
    """Why a process must end: it has ended, or a step takes too long; empty if all is well."""
    if started.poll() is not None:
        said = (folder / f"{process}.log").read_text()[-3000:]
        return f"ended with exit code {started.returncode}: {said}"
    steps = (folder / f"{process}.jsonl").stat()
    patience = patience if steps.st_size else _FIRST_STEP_SECONDS
    if time.time() - steps.st_mtime < patience:
        return ""
    os.kill(started.pid, signal.SIGUSR1)
    time.sleep(2)  # faulthandler writes meanwhile.
    stacks = (folder / f"{process}.stacks").read_text()
    return f"no progress in {patience:.0f} s: {stacks[-8000:]}"


def _end(started: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def _start(process: str, rest: float, folder: Path, url: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.campaigns.soak.worker"]
    command += [process, str(folder), _BUCKET, str(_RESTS[process] * rest)]
    environment = os.environ | {"AWS_ENDPOINT_URL": url}
    steps, said = (folder / f"{process}{suffix}" for suffix in (".jsonl", ".log"))
    with steps.open("w") as out, said.open("w") as errors:
        # The processes that it starts end with it.
        return subprocess.Popen(
            command, stdout=out, stderr=errors, env=environment, start_new_session=True
        )


def soak(flags: argparse.Namespace) -> None:
    """Runs writer and reader until the time or something else ends them; their steps are in the folder."""
    flags.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        s3_running(Path(name) / "s3") as server,
        (flags.folder / "soak.jsonl").open("w") as log,
        contextlib.ExitStack() as stack,
    ):
        url = f"http://127.0.0.1:{server.port}/{_BUCKET}"
        request = urllib.request.Request(url, b"", {"Authorization": SIGNED}, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
        weather = Weather(server.port, _SHARE_OF_FAULTS)
        stack.callback(weather.close)
        stack.callback(lambda: print(json.dumps({"counts": weather.counts}), file=log))
        os.environ.update(server.environment)
        started = {p: _start(p, flags.rest, flags.folder, weather.url) for p in PROCESSES}
        for each in started.values():
            stack.callback(_end, each)
        end = time.monotonic() + flags.hours * 3600
        while time.monotonic() < end:
            done = [(flags.folder / f"{p}.jsonl").read_bytes().count(b"\n") for p in PROCESSES]
            if flags.steps and min(done) >= flags.steps:
                return
            for process in PROCESSES:
                if failure := _problem(process, started[process], flags.folder, flags.patience):
                    print(json.dumps({"process": process, "failure": failure}), file=log)
                    return
            time.sleep(0.5)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the campaign."""
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--folder", type=Path, default=Path("soak"), help="of the steps")
    parser.add_argument("--judge", type=Path, help="a folder that exists; nothing else is run")
    parser.add_argument("--rest", type=float, default=1, help="times the usual rest")
    parser.add_argument("--patience", type=float, default=120, help="seconds without progress")
    parser.add_argument("--steps", type=int, help="end when each process has done this many")


def run(flags: argparse.Namespace, tally: Tally) -> None:
    """Runs a soak or judges an old one."""
    if not flags.judge:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            soak(flags)
    judge(lines_of(flags.judge or flags.folder), tally)
