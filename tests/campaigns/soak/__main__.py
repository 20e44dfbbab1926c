"""A soak: jobs and readers work for hours on a faulty store, and their memory is measured.

    python -m tests.campaigns soak --hours 2 --log soak.jsonl
    python -m tests.campaigns soak --judge soak.jsonl

One process runs job after job, one reads epoch after epoch, both through a proxy that makes 1 % of the requests
to a server of S3 on this machine fail. SIGINT or SIGTERM ends it early, with its verdict. The exit code is 1 if
memory grows, descriptors grow, an epoch is not whole, a job fails, or a process makes no progress.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.campaigns.soak.resources import resources
from tests.campaigns.soak.verdict import MOST_MB_AN_HOUR, PROCESSES, lines_of, verdict
from tests.campaigns.soak.weather import Weather
from tests.support.object_stores import SIGNED, s3_running

_BUCKET = "soak"
_SHARE_OF_FAULTS = 0.01
# How many times as long as they work the processes rest.
_RESTS = {"reader": 4.0, "writer": 5.0}


@dataclass
class _Log:
    """The log of a soak: a line of JSON for all that happens."""

    file: IO[str]
    began: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def hours(self) -> float:
        return round((time.monotonic() - self.began) / 3600, 6)

    def note(self, kind: str, **values: Any) -> None:
        """Writes a line at once, which outlives a kill."""
        with self.lock:
            line = {"kind": kind, "hours": self.hours, "time": round(time.time(), 1), **values}
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


class _Watched:
    """A process under watch: its lines go to the log, and the time of the last one is kept."""

    def __init__(self, name: str, folder: Path, rest: str, environment: dict[str, str], log: _Log):
        command = [sys.executable, "-m", "tests.campaigns.soak.worker"]
        command += [name, str(folder), _BUCKET, rest]
        self.name, self._log, self._folder = name, log, folder
        self._errors = folder / f"{name}.log"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                # The processes that it starts end with it.
                start_new_session=True,
            )
        self.progress, self.steps = time.monotonic(), 0
        self._following = threading.Thread(target=self._follow, daemon=True)
        self._following.start()

    def _follow(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.progress, self.steps = time.monotonic(), self.steps + 1
            self._log.note("step", process=self.name, **json.loads(line))

    def sample(self) -> None:
        """Notes what the process holds at this moment."""
        try:
            self._log.note("sample", process=self.name, **resources(self.process.pid))
        except OSError:  # It has ended, which `problem` reports.
            pass

    def problem(self, patience: float, start: float) -> str:
        """Why the process must end: it has ended, or makes no progress; empty if all is well.

        Args:
            patience: Seconds that a step may take.
            start: Seconds that the first one may take.
        """
        patience = patience if self.steps else start
        if self.process.poll() is not None:
            said = self._errors.read_text()[-3000:]
            return f"ended with exit code {self.process.returncode}: {said}"
        if time.monotonic() - self.progress < patience:
            return ""
        os.kill(self.process.pid, signal.SIGUSR1)
        time.sleep(2)  # faulthandler writes meanwhile.
        stacks = (self._folder / f"stacks-{self.name}").read_text()
        return f"no progress in {patience:.0f} s: {stacks[-8000:]}"

    def end(self) -> None:
        """Ends the process and those that it has started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._following.join(5)


def _make_bucket(port: int) -> None:
    import urllib.request

    url = f"http://127.0.0.1:{port}/{_BUCKET}"
    request = urllib.request.Request(url, b"", {"Authorization": SIGNED}, method="PUT")
    urllib.request.urlopen(request, timeout=60).close()


def soak(flags: argparse.Namespace, file: IO[str], is_over: Callable[[], bool]) -> None:
    """Runs writer and reader until the time or something else ends them; all of it is in the log."""
    with (
        tempfile.TemporaryDirectory(prefix="soak-") as name,
        s3_running(Path(name) / "s3") as server,
    ):
        folder, log = Path(name), _Log(file)
        _make_bucket(server.port)
        weather = Weather(server.port, flags.share, seed=0)
        environment = os.environ | server.environment | {"AWS_ENDPOINT_URL": weather.url}
        log.note("start", flags={key: str(value) for key, value in vars(flags).items()})
        watched = [
            _Watched(name, folder, str(_RESTS[name] * flags.rest), environment, log)
            for name in PROCESSES
        ]
        problem = ""
        next_sample, end = log.began, log.began + flags.hours * 3600
        try:
            while time.monotonic() < end and not is_over() and not problem:
                if flags.steps and min(process.steps for process in watched) >= flags.steps:
                    break
                if time.monotonic() >= next_sample:
                    for process in watched:
                        process.sample()
                    log.note("weather", counts=dict(weather.counts), cpu=time.process_time())
                    next_sample += flags.every
                for process in watched:
                    problem = process.problem(flags.patience, flags.start)
                    if problem:
                        log.note("failure", process=process.name, failure=problem)
                        break
                time.sleep(0.2)
        finally:
            for process in watched:
                process.end()
        log.note("weather", counts=dict(weather.counts), cpu=time.process_time())
        weather.close()


def _flags(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m tests.campaigns.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hours", type=float, default=2)
    parser.add_argument("--log", type=Path, default=Path("soak.jsonl"))
    parser.add_argument("--judge", type=Path, help="a log that exists; nothing else is run")
    parser.add_argument("--limit", type=float, default=MOST_MB_AN_HOUR, help="MB an hour")
    parser.add_argument("--share", type=float, default=_SHARE_OF_FAULTS, help="of all requests")
    parser.add_argument("--rest", type=float, default=1, help="times the usual rest")
    parser.add_argument("--every", type=float, default=15, help="seconds between samples")
    parser.add_argument("--patience", type=float, default=120, help="seconds without progress")
    parser.add_argument("--start", type=float, default=300, help="the same, for the first step")
    parser.add_argument("--steps", type=int, help="end when each process has done this many")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Runs a soak or judges an old one; returns the exit code."""
    flags = _flags(arguments)
    log = flags.judge or flags.log
    if not flags.judge:
        over = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        with log.open("w") as file:
            soak(flags, file, over.is_set)
    lines = lines_of(log)
    said, wrong = verdict(lines, flags.limit)
    print("\n".join(said))
    print("\n".join(f"WRONG: {text}" for text in wrong) or "nothing was wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
