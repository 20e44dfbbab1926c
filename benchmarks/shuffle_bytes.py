"""Runs a program and counts the bytes that Beam's local runner groups by key.

    python shuffle_bytes.py FILE -m MODULE ARGUMENT...
    python shuffle_bytes.py FILE SCRIPT ARGUMENT...

FILE receives the sum, in bytes. These are the bytes that a cluster would send between workers: the
encoded elements before every GroupByKey, Reshuffle and combination.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from apache_beam.runners.portability.fn_api_runner import execution


def main() -> None:
    """Runs the program, writes the sum, and exits with the program's exit code."""
    total = Path(sys.argv[1])
    chunks: list[int] = []
    append = execution.GroupingBuffer.append

    def counting_append(buffer: execution.GroupingBuffer, elements_data: bytes) -> None:
        chunks.append(len(elements_data))  # several threads append at once
        append(buffer, elements_data)

    execution.GroupingBuffer.append = counting_append
    try:
        # sys.path[0] is set as if Python had started the program itself.
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
