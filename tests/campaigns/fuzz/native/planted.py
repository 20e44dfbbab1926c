#!/usr/bin/env python3
"""Plants faults in copies of kernel.c, and states how long the fuzz target takes to find each.

The exit code is 1 if one is not found. Faults that change nothing which can be seen are not here: a loop that reads one
byte more of the same record, for example, and then rejects it as before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
KERNEL = HERE.parents[3] / "readers" / "format" / "compiled" / "kernel.c"
SECONDS = 60

# What is replaced, and what by.
FAULTS = {
    "a length is not compared": ("length < 0 || length > end - *at ?", "length < 0 ?"),
    "a value of 127 ends no integer": ("count += *octet < 128;\n", "count += *octet < 127;\n"),
    "an integer runs on behind its field": ("if (at == end || bit > 63)", "if (bit > 63)"),
    "an integer may run on to the record's end": ("values + field->nbytes[row],", "stop,"),
    "the count of a fixed shape is ignored": ("if (field->expected >= 0 &&", "if (0 &&"),
    "signed integers have a bit more": ("(number >> (bits - 1)) !=", "(number >> bits) !="),
    "unsigned integers have a bit more": ("bits < 64 ? bits : 63)", "bits < 64 ? bits + 1 : 63)"),
    "a bool is 2": ("field->is_bool ? value > 1", "field->is_bool ? value > 2"),
    "no integers are taken": ("if (at == end || end[-1] >= 128)", "if (end[-1] >= 128)"),
    "the checksum of the values is ignored": (
        "return masked(crc_of(crc, at, stop - at)) == stored(stop);",
        "return 1;",
    ),
    "the checksum of the length is ignored": (
        "masked(crc_of(~0u, record, 8)) != stored(record + 8)",
        "0",
    ),
    "the length is ignored": ("(int64_t)word_at(record) != size - FRAME", "0"),
    "a checksum leaves out bytes": (
        "for (; size; data++, size--)",
        "for (; size > 1; data++, size--)",
    ),
    "the long shift is wrong": ("make_shift(shift_long, LONG)", "make_shift(shift_long, LONG + 8)"),
    "the short shift is wrong": ("(shift_short, SHORT)", "(shift_short, SHORT + 8)"),
    "a row is padded to more": ("length < 0 || length > width", "length < 0 || length > width + 1"),
    "a row has a negative length": ("if (length < 0 || length > width)", "if (length > width)"),
    "the filler is a byte longer": ("(size_t)(width - length)", "(size_t)(width - length + 1)"),
    "sizes go to another row": ("row * field->rank + axis", "row * (field->rank + 1) + axis"),
    "sizes are fetched behind the last": ("if (row >= task->end) return;", ""),
    "a part of a value is copied twice": ("at += part, left", "at += part - (left > BLOCK), left"),
    "a thread takes a row too many": ("n * (i + 1) / threads, -1", "n * (i + 1) / threads + 1, -1"),
    "a thread's first row is never bad": ("tasks[i].bad >= 0", "tasks[i].bad > 0"),
    "bytes behind the shape are skipped": ("return *at == shape_end &&", "*at = shape_end; return"),
    "lengths have ten bytes": ("bit < 63 &&", "bit < 70 &&"),
}


def seconds_to_find(old: str, new: str, folder: Path) -> float | None:
    """How long the fuzz target takes to find a fault; None if it does not."""
    source = KERNEL.read_text()
    if old not in source:
        raise SystemExit(f"kernel.c has no {old!r} any more: change planted.py")
    (folder / "kernel.c").write_text(source.replace(old, new, 1))
    clang = os.environ.get("CLANG", "clang-19")
    command = [clang, "-O1", "-w", f'-DKERNEL="{folder}/kernel.c"', "-DSELDOM=4"]
    command += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    command += [str(HERE / "kernel_fuzz.c"), "-o", str(folder / "fuzz"), "-lpthread"]
    subprocess.run(command, check=True)
    (folder / "found").mkdir(exist_ok=True)
    flags = [f"-max_total_time={SECONDS}", "-max_len=600", f"-artifact_prefix={folder}/"]
    began = time.monotonic()
    options = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0"}
    done = subprocess.run(
        [str(folder / "fuzz"), *flags, str(folder / "found"), str(HERE / "corpus")],
        env=os.environ | options,
        capture_output=True,
        check=False,
    )
    return time.monotonic() - began if done.returncode else None


def main() -> int:
    """Plants each fault; returns the exit code."""
    missed = 0
    for name, (old, new) in FAULTS.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds = seconds_to_find(old, new, Path(folder))
        missed += seconds is None
        print(f"{name}: {'NOT FOUND' if seconds is None else f'{seconds:.1f} s'}", flush=True)
    print(f"{len(FAULTS) - missed} of {len(FAULTS)} planted faults were found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
