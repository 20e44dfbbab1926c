"""Runs a target in a process of its own for some seconds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.support.checkout import ROOT as CHECKOUT

_EXECUTED = re.compile(rb"stat::number_of_executed_units: (\d+)")
_PULSE = re.compile(rb"^#(\d+)\t", re.MULTILINE)

# A call that takes longer hangs. Machines may be busy with other things.
_TIMEOUT, _RESIDENT_MB = 120, 4096

_MOST_STARTS = 50

# The variable with the seconds of a processor after which a worker ends.
PROCESSOR = "FUZZ_PROCESSOR_SECONDS"

_ENDING = 120  # seconds that libFuzzer may take to begin and to end


@dataclass
class Run:
    """What came of a target.

    Attributes:
        name: The target.
        executions: How many inputs were tried, by libFuzzer's count.
        seconds: How long it took.
        processor: The seconds of a processor that it had, of which other programs may take most.
        new: How many inputs its corpus has more than before.
        found: The inputs that failed, by the names of their files.
        failed: The last words of libFuzzer's process if it ended before its time without a finding.
    """

    name: str
    executions: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    new: int = 0
    found: list[str] = field(default_factory=list)
    failed: str = ""


def run(name: str, seconds: float, work: Path, processor: float = 0.0) -> Run:
    """Runs a target for some seconds, again and again if its process ends before.

    Args:
        name: The target.
        seconds: How long.
        work: The folder of its growing corpus, its findings and its log.
        processor: The most seconds of a processor; 0 for any.
    """
    corpus, found, log = (
        work / "corpora" / name,
        work / "found" / name,
        work / "logs" / f"{name}.log",
    )
    for folder in (corpus, found, log.parent):
        folder.mkdir(parents=True, exist_ok=True)
    kept = [str(f) for f in (registry.CORPORA / name, registry.CRASHES / name) if f.is_dir()]
    result, before = Run(name), len(list(corpus.iterdir()))
    began = time.monotonic()
    for _ in range(_MOST_STARTS):
        left = seconds - (time.monotonic() - began) if result.processor else seconds
        of_processor = processor - result.processor
        if left < 1 or result.failed or (processor and of_processor < 1):
            break
        saved = set(found.iterdir())
        flags = [
            f"-max_total_time={int(left)}",
            f"-timeout={_TIMEOUT}",
            f"-report_slow_units={_TIMEOUT}",
            f"-rss_limit_mb={_RESIDENT_MB}",
            f"-artifact_prefix={found}/",
            "-print_final_stats=1",
            "-reload=0",
        ]
        command = [sys.executable, "-m", "tests.campaigns.fuzz.worker", name, str(found)]
        command += [str(corpus), *kept, *flags]
        output, code, used = _output(command, left, max(of_processor, 0))
        result.processor += used
        log.write_bytes(output[-100_000:])
        result.executions += _executions(output)
        if code == 0:
            break
        if set(found.iterdir()) == saved:
            result.failed = output[-600:].decode(errors="replace")
    result.seconds = time.monotonic() - began
    result.new = len(list(corpus.iterdir())) - before
    result.found = sorted(p.name for p in found.iterdir() if not p.name.endswith(".jsonl"))
    return result


def _output(command: Sequence[str], seconds: float, processor: float) -> tuple[bytes, int, float]:
    """What a command prints, its exit code, and the seconds of a processor that it took.

    It is ended if it takes much longer than it should.
    """
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONWARNINGS": "ignore",
        PROCESSOR: str(processor),
    }
    process = subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    )
    assert process.stdout
    timer = threading.Timer(seconds + _TIMEOUT + _ENDING, process.kill)
    timer.start()
    try:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
        process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    return output, process.returncode, usage.ru_utime + usage.ru_stime


def _executions(output: bytes) -> int:
    """libFuzzer's own count, at its end or else at its last sign of life."""
    if found := _EXECUTED.findall(output):
        return int(found[-1])
    pulses = _PULSE.findall(output)
    return int(pulses[-1]) if pulses else 0
