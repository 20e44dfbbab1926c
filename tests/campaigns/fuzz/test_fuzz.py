"""The inputs that campaigns of fuzzing have kept are checked again, without Atheris."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.findings import signature
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.reduce import read_all, smaller
from tests.campaigns.fuzz.target import Target
from tests.support.checkout import ROOT


@pytest.mark.parametrize("name", registry.NAMES)
def test_no_input_that_was_kept_violates_an_oracle(name):
    target = registry.find(name)
    kept = read_all(registry.CORPORA / name, registry.CRASHES / name)
    for data in [*target.seeds(), *kept]:
        target.check(data)


def test_every_target_is_listed_with_its_name():
    for module, family in registry.FAMILIES.items():
        assert [registry.find(name).name for name in family.names] == [*family.names], module
    kept = {
        path.name
        for folder in (registry.CORPORA, registry.CRASHES)
        for path in folder.glob("[!.]*")
    }
    assert kept <= {*registry.NAMES}


def written(size: int) -> mmap.mmap:
    """Memory from the system: the allocator may have kept some that earlier tests have freed."""
    memory = mmap.mmap(-1, size)
    for at in range(0, size, mmap.PAGESIZE):
        memory[at] = 1
    return memory


def grown(data: bytes) -> None:
    written(40 << 20).close()


def slow(data: bytes) -> None:
    sum(range(3_000_000))


def failing(data: bytes) -> None:
    {}["missing"]


@pytest.mark.parametrize(
    ("examine", "seconds", "message"),
    [
        (failing, 9, "an undocumented error, KeyError: 'missing'"),
        (grown, 9, "too much memory: (39|40|41) MiB, at most 16"),
        (slow, 0.01, "too much time"),
    ],
)
def test_errors_memory_and_time_that_nothing_documents_are_findings(examine, seconds, message):
    target = Target("t", lambda: [], examine, limits=Limits(16 << 20, seconds))
    # Memory that earlier inputs held and freed hides nothing.
    held = written(64 << 20)
    Target("before", lambda: [], lambda _: held.close()).check(b"")
    if examine is grown and not Path("/proc/self/clear_refs").exists():
        pytest.skip("only Linux resets the peak of a process's memory")
    with pytest.raises(AssertionError, match=message) as caught:
        target.check(b"")
    if examine is failing:
        assert signature(caught.value).startswith(
            "KeyError in test_fuzz.py:failing: an undocumented"
        )


def test_a_failing_input_becomes_smaller():
    data = b"abc" * 50 + b"X" + b"def" * 50 + b"Y"
    assert smaller(data, lambda d: b"X" in d and b"Y" in d) == b"XY"


def test_a_replay_prints_what_fails(tmp_path):
    (tmp_path / "good").write_bytes(b"0 16\n")
    command = [sys.executable, "-m", "tests.campaigns.fuzz.replay", "index", str(tmp_path / "good")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_target_that_does_not_exist_is_named_with_those_that_do():
    command = [sys.executable, "-m", "tests.campaigns", "fuzz", "nothing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: no target 'nothing': expected all, list or tfrecord, index"
    )
