"""Runs a target under libFuzzer in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.replay import in_a_process, smaller
from tests.campaigns.fuzz.target import name_of
from tests.support.checkout import ROOT as CHECKOUT

# libFuzzer's count, at each sign of life.
_PULSE = re.compile(rb"^#(\d+)\t", re.MULTILINE)

# A call that takes longer hangs. Machines may be busy with other things.
_TIMEOUT, _RESIDENT_MB = 120, 4096

_MOST_STARTS = 50

_ENDING = 120  # seconds that libFuzzer may take to begin and to end

# What is kept of a target; all targets together stay below 1 MB and some hundred files.
_MOST, _MOST_BYTES = 14, 24_000


@dataclass
class Run:
    """What came of a target.

    Attributes:
        executions: How many inputs were tried, by libFuzzer's count.
        new: How many inputs its corpus has more than before.
        failed: The last words of libFuzzer's process if it ended before its time without a finding.
    """

    executions: int = 0
    new: int = 0
    failed: str = ""


def fuzz(name: str, seconds: float, work: Path) -> Run:
    """Runs a target for some seconds, again and again if its process ends before.

    Args:
        name: The target.
        seconds: How long.
        work: The folder of its growing corpus, its findings and its log.
    """
    corpus, found = work / "corpora" / name, work / "found" / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    result, before = Run(), len(list(corpus.iterdir()))
    end = time.monotonic() + seconds
    for _ in range(_MOST_STARTS):
        left = end - time.monotonic()
        if left < 1 or result.failed:
            break
        saved = set(found.iterdir())
        flags = [f"-max_total_time={int(left)}", f"-report_slow_units={_TIMEOUT}", "-reload=0"]
        folders = [corpus, *registry.folders(name)]
        output, code = _output(name, found, [*map(str, folders), *flags], left)
        (work / f"{name}.log").write_bytes(output[-100_000:])
        result.executions += int((_PULSE.findall(output) or [0])[-1])
        if code == 0:
            break
        if set(found.iterdir()) == saved:
            result.failed = output[-600:].decode(errors="replace")
    result.new = len(list(corpus.iterdir())) - before
    return result


def _output(name: str, found: Path, arguments: list[str], seconds: float) -> tuple[bytes, int]:
    """What libFuzzer prints, and its exit code; it is ended if it takes much longer than it should."""
    command = [sys.executable, "-m", "tests.campaigns.fuzz.worker", name, str(found), *arguments]
    command += [
        f"-timeout={_TIMEOUT}",
        f"-rss_limit_mb={_RESIDENT_MB}",
        f"-artifact_prefix={found}/",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + _TIMEOUT + _ENDING,
        )
    except subprocess.TimeoutExpired as error:
        return error.output or b"", 1
    return done.stdout, done.returncode


def confirmed(name: str, work: Path) -> list[str]:
    """The findings of a target that fail again in a new process, made smaller, saved, and put in words."""
    folder, kept, said = work / "found" / name, registry.CRASHES / name, []
    for file in sorted(folder.iterdir()):
        failed = in_a_process(name, file)
        if failed is None:
            path = work / "unconfirmed" / name / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            file.rename(path)
            said.append(f"{path}: it does not fail again")
            continue
        with tempfile.NamedTemporaryFile() as trial:

            def fails(changed: bytes, first: str = failed[0], trial: str = trial.name) -> bool:
                Path(trial).write_bytes(changed)
                again = in_a_process(name, Path(trial))
                return again is not None and again[0] == first

            data = smaller(file.read_bytes(), fails)
        kept.mkdir(parents=True, exist_ok=True)
        (kept / name_of(data)).write_bytes(data)
        file.unlink()
        said.append(f"{kept / name_of(data)}: {failed[0]}: {failed[1]:.300}")
    return said


def keep(name: str, work: Path) -> int:
    """Makes the small inputs of a growing corpus that reach more than the seeds the corpus of the tests.

    Returns how many they are.
    """
    with tempfile.TemporaryDirectory() as folder:
        chosen, found = Path(folder, "corpus"), Path(folder, "found")
        chosen.mkdir()
        found.mkdir()
        grown = [
            path for path in (work / "corpora" / name, *registry.folders(name)) if path.is_dir()
        ]
        output, code = _output(name, found, ["-merge=1", *map(str, [chosen, *grown])], 3600)
        assert code == 0, output[-2000:].decode(errors="replace")
        seeds = {name_of(seed) for seed in registry.find(name).seeds()}
        kept, size = registry.CORPORA / name, 0
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for file in sorted(chosen.iterdir(), key=lambda path: path.stat().st_size):
            data = file.read_bytes()
            size += len(data)
            if len(list(kept.iterdir())) == _MOST or size > _MOST_BYTES:
                break
            if file.name not in seeds and in_a_process(name, file) is None:
                (kept / name_of(data)).write_bytes(data)
    return len(list(kept.iterdir()))
