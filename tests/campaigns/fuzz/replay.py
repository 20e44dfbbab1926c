"""Checks inputs again without Atheris: `python -m tests.campaigns fuzz.replay NAME FILES` prints those that fail."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.findings import signature
from tests.campaigns.fuzz.target import Target
from tests.support.checkout import ROOT as CHECKOUT


def failure(target: Target, data: bytes) -> tuple[str, str] | None:
    """The signature and the message of an input that fails; None if it does not."""
    try:
        target.check(data)
    except AssertionError as error:
        return signature(error), str(error)
    return None


# In seconds: of a processor, after which an input hangs; and of the clock, on a machine that is busy.
_PROCESSOR, _CLOCK = 40, 1200


def in_a_process(name: str, file: Path) -> tuple[str, str] | None:
    """What `failure` returns, from a process that may crash or hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.campaigns.fuzz.replay", name, str(file)],
            cwd=CHECKOUT,
            capture_output=True,
            timeout=_CLOCK,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout", f"it takes longer than {_CLOCK} s"
    if done.returncode == -signal.SIGXCPU:
        return "timeout", f"it takes a processor longer than {_PROCESSOR} s"
    if done.returncode < 0:
        return f"signal {-done.returncode}", done.stderr.decode(errors="replace")[-500:]
    lines = done.stdout.splitlines()
    if done.returncode == 0 or not lines:
        return None
    found = json.loads(lines[-1])
    return found["signature"], found["message"]


def main(name: str, files: Sequence[str]) -> int:
    """Prints the inputs that fail as JSON; returns 1 if there is one."""
    target, failed = registry.find(name), False
    for file in files:
        used = int(time.process_time())
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (used + _PROCESSOR, hard))
        if found := failure(target, Path(file).read_bytes()):
            failed = True
            note = {"file": file, "signature": found[0], "message": found[1][:2000]}
            print(json.dumps(note), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
