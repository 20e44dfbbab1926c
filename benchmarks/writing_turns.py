"""Writes datasets by turns, in the environment of a revision that `compare.py` measures.

    python writing_turns.py '["beam_jobs.__main__.main(arguments)"]'

It answers each line of its input, the arguments of the command line as JSON, with the exit code, the seconds that the
command took, and the processor seconds of all processes of this session. It calls the command line
with the first call that this revision knows. Imports of the first jobs do not count in later ones.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import beam_jobs.__main__


def cpu_of_session() -> float:
    """Returns the processor seconds of all processes of this session and of their ended children."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == os.getsid(0):
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def code_of(calls: list[str], arguments: list[str]) -> Any:
    """Returns the exit code of a command, by the first call that this revision knows."""
    for call in calls:
        try:
            return eval(call, {"beam_jobs": beam_jobs, "arguments": arguments})
        except AttributeError as error:
            print(f"{call}: {error}", file=sys.stderr)
        except SystemExit as end:
            return end.code
    sys.exit("none of these calls works with this revision")


def main() -> None:
    """Writes until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Jobs print to the log, not into the answers.
    print("writing", file=answers, flush=True)
    for line in sys.stdin:
        cpu, began = cpu_of_session(), time.perf_counter()
        code = code_of(json.loads(sys.argv[1]), json.loads(line))
        sys.stdout.flush()
        wall = time.perf_counter() - began
        print(json.dumps([code, wall, cpu_of_session() - cpu]), file=answers, flush=True)


if __name__ == "__main__":
    main()
