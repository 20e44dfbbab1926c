"""Runs a program and counts the bytes that Beam's local runner groups by key.

    python shuffle_bytes.py FILE -m MODULE ARGUMENT...
    python shuffle_bytes.py FILE SCRIPT ARGUMENT...

FILE gets the sum, in bytes. It is what a cluster would send from worker to worker: every element
before every GroupByKey, Reshuffle and combination, in its encoded form.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from apache_beam.runners.portability.fn_api_runner import execution


def main() -> None:
    """Counts, and leaves with the program's own exit code."""
    total = Path(sys.argv[1])
    chunks: list[int] = []
    append = execution.GroupingBuffer.append

    def counting_append(buffer: execution.GroupingBuffer, elements_data: bytes) -> None:
        chunks.append(len(elements_data))  # several threads append at once
        append(buffer, elements_data)

    execution.GroupingBuffer.append = counting_append
    try:
        # The first entry of sys.path becomes what it is when Python starts the program itself.
        if sys.argv[2] == "-m":
            module, sys.argv = sys.argv[3], sys.argv[3:]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.argv = sys.argv[2:]
            sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        total.write_text(str(sum(chunks)))


if __name__ == "__main__":
    main()
