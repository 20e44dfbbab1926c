"""The inputs that campaigns of fuzzing have kept are checked again, without Atheris."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tests.campaigns.__main__ import main
from tests.campaigns.fuzz import registry
from tests.campaigns.fuzz.limits import Limits
from tests.campaigns.fuzz.replay import smaller
from tests.campaigns.fuzz.target import Target, signature


@pytest.mark.parametrize("name", [name for name in registry.NAMES if "tensorflow" not in name])
def test_no_seed_violates_an_oracle(name):
    target = registry.find(name)
    for seed in target.seeds():
        target.check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.NAMES)
def test_no_input_that_was_kept_violates_an_oracle(name):
    target = registry.find(name)
    for file in (path for folder in registry.folders(name) for path in folder.iterdir()):
        target.check(file.read_bytes())


def test_no_input_is_kept_of_a_target_that_does_not_exist():
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
        assert "KeyError in test_fuzz.py:failing: an undocumented" in signature(caught.value)


def test_a_failing_input_becomes_smaller():
    data = b"abc" * 50 + b"X" + b"def" * 50 + b"Y"
    assert smaller(data, lambda d: b"X" in d and b"Y" in d) == b"XY"


def test_a_replay_prints_what_fails(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)  # Of this process.
    (tmp_path / "file").write_bytes(b"0 16\n")
    assert main(["fuzz", "index", "--replay", str(tmp_path / "file")]) == 0
    assert capsys.readouterr().out.endswith("faults: none\n")
    monkeypatch.setattr(registry, "find", lambda name: Target(name, lambda: [], failing))
    assert main(["fuzz", "index", "--replay", str(tmp_path / "file")]) == 1
    assert "KeyError in test_fuzz.py:failing" in capsys.readouterr().out


@pytest.mark.slow
def test_a_campaign_counts_and_keeps(tmp_path, capsys, monkeypatch):
    pytest.importorskip("atheris")
    assert main(["fuzz", "index", "--seconds", "5", "--work", str(tmp_path / "work")]) == 0
    assert "executions" in capsys.readouterr().out
    monkeypatch.setattr(registry, "CORPORA", tmp_path / "corpora")
    assert main(["fuzz", "index", "--keep", "--work", str(tmp_path / "work")]) == 0
    assert list((tmp_path / "corpora" / "index").iterdir())
