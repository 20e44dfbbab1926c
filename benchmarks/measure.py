"""Measures the time and memory of a command, and counts the records it wrote. Needs Linux."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).absolute().parent

_SAMPLE_SECONDS = 0.1

# The most memory a contender uses, including its output in the page cache.
_WARM_BYTES = 4 << 30


class BenchmarkError(Exception):
    """An error whose message is one line for the user."""


@dataclass(frozen=True)
class Run:
    """Time and memory of one run of a command.

    Attributes:
        seconds: Time from start to exit.
        cpu_seconds: Processor time of the command and its descendants.
        peak_bytes: Peak memory of all its processes together.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def _times_of(session: int) -> Iterator[tuple[str, float, float]]:
    """Yields (pid, processor seconds, those of ended children) of each process of a session."""
    second = os.sysconf("SC_CLK_TCK")
    for pid in (entry.name for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        try:
            # The process name, in parentheses, may contain spaces.
            fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            user, system, ended_user, ended_system = map(int, fields[11:15])
            yield pid, (user + system) / second, (ended_user + ended_system) / second


def session_cpu_seconds(session: int) -> float:
    """Returns the processor seconds of a session's processes and of their ended children."""
    return sum(own + ended for _, own, ended in _times_of(session))


def _memory_of(pid: str) -> int:
    """Returns the proportional set size of a process, or its resident set if the kernel hides that."""
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        try:
            lines = Path("/proc", pid, name).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return 0


def _sample(session: int) -> tuple[int, dict[str, float]]:
    """Returns the memory of a session's processes in bytes, and each one's processor seconds by pid.

    A session, unlike a tree of parents and children, keeps processes whose parents have ended.
    Shared pages are counted once.
    """
    memory, cpu = 0, {}
    for pid, seconds, _ in _times_of(session):
        memory += _memory_of(pid)
        cpu[pid] = seconds
    return memory, cpu


def warm_memory() -> None:
    """Touches free memory, so that the first run is not slower than the next.

    The host of a virtual machine reclaims free memory and returns it page by page: the first run to
    use a page waits 12 µs for it instead of 3.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    megabyte = b"\1" * (1 << 20)
    with mmap.mmap(-1, min(_WARM_BYTES, available // 2)) as memory:
        for _ in range(len(memory) // len(megabyte)):
            memory.write(megabyte)


@contextlib.contextmanager
def _on_cores(count: int | None) -> Iterator[None]:
    """Lets processes that are started meanwhile use only this number of cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def run(
    label: str,
    command: Sequence[str],
    log: Path,
    env: dict[str, str] | None = None,
    cores: int | None = None,
    limit: float | None = None,
) -> Run:
    """Runs a command in the root of the repository until it ends.

    Args:
        label: A description of the run, which is printed and starts an error message.
        command: The program and its arguments.
        log: The file for the output of the command.
        env: The environment variables of the command (default: those of this process).
        cores: The number of cores that the command and its descendants may use (default: all).
        limit: The seconds after which the command is ended (default: never).

    Raises:
        BenchmarkError: The command failed, or took longer than its limit.
    """
    print(f"  {label}", flush=True)
    os.sync()  # so that the writes of earlier runs do not slow this one
    with log.open("wb") as output, _on_cores(cores):
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=HERE.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    ended = threading.Event()
    seconds = cpu_seconds = 0.0

    def wait() -> None:
        # In its own thread, so the end is noticed at once, not at the next sample.
        nonlocal seconds, cpu_seconds
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        cpu_seconds = usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    peak = 0
    # A fork server waits for its own children, so their time must be sampled while they run.
    sampled: dict[str, float] = {}
    try:
        while not ended.is_set():
            if limit and time.monotonic() > began + limit:
                raise BenchmarkError(f"{label}: not done after {limit:g} s (output: {log})")
            before = time.monotonic()
            memory, cpu = _sample(process.pid)
            peak = max(peak, memory)
            sampled |= cpu
            # For each sample the kernel walks all pages of a process, which is slow for gigabytes.
            # Sampling takes at most a twentieth of a core, so as not to slow the command down.
            ended.wait(max(_SAMPLE_SECONDS, 20 * (time.monotonic() - before)))
    finally:
        # Workers that a process left behind would slow the next run.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        waiter.join()
    if process.returncode:
        lines = log.read_text(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
        raise BenchmarkError(
            f"{label}: exit code {process.returncode}: {last[:300]} (full output: {log})"
        )
    return Run(seconds, max(cpu_seconds, sum(sampled.values())), peak)


def count_records(path: Path) -> int:
    """Counts the records of a TFRecord file by following their lengths.

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
