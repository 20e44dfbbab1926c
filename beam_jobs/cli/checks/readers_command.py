"""The commands of the readers, each in a process of its own: jobs know the format that they write, and no reader."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from beam_jobs.errors import DataError


def run_readers(*arguments: str) -> dict[str, Any]:
    """The JSON object that `python -m readers` prints.

    Args:
        arguments: A command with its flags, without `--json`.

    Raises:
        DataError: The command could not do its work.
    """
    command = [sys.executable, "-m", "readers", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        ending = (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]
        raise DataError(f"python -m readers {arguments[0]}: {ending}") from None
    if "error" in found:
        raise DataError(found["error"])
    return found
