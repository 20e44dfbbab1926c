"""Checks inputs again without Atheris: `python -m fuzz.replay NAME FILES` prints those that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fuzz import registry
from fuzz.findings import signature
from fuzz.target import Target


def failure(target: Target, data: bytes) -> tuple[str, str] | None:
    """The signature and the message of an input that fails; None if it does not."""
    try:
        target.check(data)
    except AssertionError as error:
        return signature(error), str(error)
    return None


def in_a_process(name: str, file: Path, seconds: float = 60) -> tuple[str, str] | None:
    """What `failure` returns, from a process that may crash or hang."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fuzz.replay", name, str(file)],
            cwd=registry.ROOT.parent,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout", f"it takes longer than {seconds:.0f} s"
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
        if found := failure(target, Path(file).read_bytes()):
            failed = True
            note = {"file": file, "signature": found[0], "message": found[1][:2000]}
            print(json.dumps(note), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
