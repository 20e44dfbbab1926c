"""Runs a command and says what it cost; looks at the shards it left. Needs Linux."""

from __future__ import annotations

import mmap
import os
import signal
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_SECONDS = 0.1

# What the hungriest contender takes, its output in the page cache included.
_WARM_BYTES = 4 << 30


class BenchmarkError(Exception):
    """A line for the user."""


@dataclass(frozen=True)
class Run:
    """What one run of a command cost.

    Attributes:
        seconds: From start to exit.
        cpu_seconds: Of the command and its descendants.
        peak_bytes: The most memory that all its processes had together.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def _session_and_cpu(pid: str) -> tuple[int, float]:
    """The session of a process and the seconds of processor time it took; (0, 0) where it is gone."""
    try:
        # The name, in parentheses, may hold spaces.
        fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0, 0.0
    return int(fields[3]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_of(pid: str) -> int:
    """Proportional set size of a process in bytes; the resident set where the kernel hides it."""
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            lines = Path("/proc", pid, name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def sample_session(session: int) -> tuple[int, dict[str, float]]:
    """Memory in bytes of the processes of a session, and the processor seconds of each.

    A session, not a tree of parents and children: it keeps a process whose parent has ended.
    Pages that processes share count once.
    """
    memory, cpu = 0, {}
    for pid in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        found, seconds = _session_and_cpu(pid)
        if found == session:
            memory += _memory_of(pid)
            cpu[pid] = seconds
    return memory, cpu


def warm_memory() -> None:
    """Touches free memory, so that no run pays for what another one has warmed.

    The host of a virtual machine takes back what is free, and hands it out again page by page:
    12 µs for each instead of 3, to whichever run comes first.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    megabyte = b"\1" * (1 << 20)
    with mmap.mmap(-1, min(_WARM_BYTES, available // 2)) as memory:
        for _ in range(len(memory) // len(megabyte)):
            memory.write(megabyte)


def run(
    command: Sequence[str],
    log: Path,
    cwd: Path,
    env: dict[str, str] | None = None,
    warm: bool = False,
) -> Run:
    """Runs a command to its end.

    Args:
        command: Program and arguments.
        log: Takes what it prints.
        cwd: Its working directory.
        env: Its environment (default: this one's).
        warm: Warm the machine's memory before, as a run that is timed needs it.

    Raises:
        BenchmarkError: It failed.
    """
    os.sync()  # so that nobody pays for what the run before has written
    if warm:
        warm_memory()
    with log.open("wb") as output:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ended = threading.Event()
    seconds = cpu_seconds = 0.0

    def wait() -> None:
        # In a thread of its own: the end is seen when it comes, not when the next sample is due.
        nonlocal seconds, cpu_seconds
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        cpu_seconds = usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    peak = 0
    # A fork server collects its children for itself, so what they took is only seen meanwhile.
    sampled: dict[str, float] = {}
    try:
        while not ended.is_set():
            before = time.monotonic()
            memory, cpu = sample_session(process.pid)
            peak = max(peak, memory)
            sampled |= cpu
            # The kernel walks all pages of a process for a sample: of gigabytes that takes long,
            # and must not slow the command down. A twentieth of a core is the most it gets.
            ended.wait(max(_SAMPLE_SECONDS, 20 * (time.monotonic() - before)))
    finally:
        if not ended.is_set():
            os.killpg(process.pid, signal.SIGKILL)
        waiter.join()
    if process.returncode:
        lines = log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        raise BenchmarkError(
            f"exit code {process.returncode}: {last[:300]} (all it printed is in {log})"
        )
    return Run(seconds, max(cpu_seconds, sum(sampled.values())), peak)


def median_run(runs: Sequence[Run]) -> Run:
    """The median of each figure."""
    return Run(
        statistics.median(each.seconds for each in runs),
        statistics.median(each.cpu_seconds for each in runs),
        int(statistics.median(each.peak_bytes for each in runs)),
    )


def count_records(path: Path) -> int:
    """Records of a TFRecord file, from the lengths in it.

    Raises:
        BenchmarkError: The file ends within a record.
    """
    size, position, count = path.stat().st_size, 0, 0
    with path.open("rb") as file:
        while position + 8 <= size:
            file.seek(position)
            (length,) = struct.unpack("<Q", file.read(8))
            position += 8 + 4 + length + 4  # the length and the record, a checksum after each
            count += 1
    if position != size:
        raise BenchmarkError(f"{path} ends within a record")
    return count


def shard_sizes(output: Path) -> list[int]:
    """Records of every TFRecord file below a folder."""
    paths = sorted(path for path in output.rglob("*.tfrecord*") if path.suffix != ".idx")
    return [count_records(path) for path in paths]
