"""Checks inputs again without Atheris, and makes those that fail smaller."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.target import signature
from tests.support.checkout import ROOT as CHECKOUT

# In seconds: of a processor, after which an input hangs; and of the clock, on a machine that is busy.
_PROCESSOR, _CLOCK = 40, 1200


def replay(name: str, files: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Prints the inputs that fail as JSON, and yields each with its message."""
    target = registry.find(name)
    for file in files:
        used = int(time.process_time())
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (used + _PROCESSOR, hard))
        try:
            target.check(file.read_bytes())
        except AssertionError as error:
            note = {"file": str(file), "signature": signature(error), "message": str(error)[:2000]}
            print(json.dumps(note), flush=True)
            yield file, str(error)


def in_a_process(name: str, file: Path) -> tuple[str, str] | None:
    """The signature and the message of an input that fails, from a process that may crash or hang; None if it passes."""
    command = [sys.executable, "-m", "tests.campaigns", "fuzz", name, "--replay", str(file)]
    try:
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, timeout=_CLOCK)
    except subprocess.TimeoutExpired:
        return "timeout", f"it takes longer than {_CLOCK} s"
    if done.returncode == -signal.SIGXCPU:
        return "timeout", f"it takes a processor longer than {_PROCESSOR} s"
    if done.returncode < 0:
        return f"signal {-done.returncode}", done.stderr.decode(errors="replace")[-500:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    if done.returncode == 0 or not lines:
        return None
    found = json.loads(lines[-1])
    return found["signature"], found["message"]


def smaller(data: bytes, fails: Callable[[bytes], bool], seconds: float = 20) -> bytes:
    """An input that still fails, from which pieces were removed."""
    end = time.monotonic() + seconds
    size = len(data) // 2
    while size >= 1:
        at = 0
        while at < len(data) and time.monotonic() < end:
            without = data[:at] + data[at + size :]
            if fails(without):
                data = without
            else:
                at += size
        size //= 2
    return data
