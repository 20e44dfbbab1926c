"""Jobs on a simulated engine and store that fail in every way, from seeds."""

from collections import Counter

import pytest

from beam_jobs.__main__ import main
from beam_jobs.dataset import encoded_records
from beam_jobs.writing import commit
from readers.format.manifest import Manifest
from tests.campaigns.simulation import scenario
from tests.campaigns.simulation.scenario import JOBS, files_of_job, flags_of, outcome, simulate
from tests.campaigns.simulation.world import Faults, World
from tests.support.datasets import files_of


@pytest.mark.slow(base=["text-names0"])
@pytest.mark.parametrize(("command", "names"), [("text", ("text", "merged")), ("near", ("near",))])
def test_the_simulated_runner_writes_what_beams_own_writes(tmp_path, command, names):
    assert main([*flags_of(command), "--output", str(tmp_path / "out")]) == 0
    assert bool(Manifest.read(str(tmp_path / "out")).duplicates) == (command in ("dropped", "near"))
    theirs = files_of(tmp_path / "out")
    assert theirs.pop("manifest.json") == theirs.pop("generations/1.json")
    for name in names:
        found = dict(files_of_job(name)[0])
        assert found.pop("manifest")
        assert found == theirs


def test_whatever_fails_readers_see_a_whole_generation_or_none():
    struck = Counter[str]()
    for seed in range(32):
        struck += simulate(seed)
    everything = {"dies", "refused", "unanswered", "full", "retried", "zombie", "lost", "repeated"}
    everything |= {"rival", "runs: complete", "runs: failed", "runs: crashed", "runs: refused"}
    assert everything <= struck.keys()


def test_a_store_that_shows_half_an_object_is_caught(monkeypatch):
    create = World.appear

    def in_halves(self, path, data, replace):
        create(self, path, data[: len(data) // 2], replace)
        create(self, path, data, True)

    monkeypatch.setattr(World, "appear", in_halves)
    assert any(failure for _, _, failure in map(outcome, range(1000)))


def test_a_job_that_does_not_count_its_records_is_caught(monkeypatch):
    files_of_job("made")  # Undisturbed.
    monkeypatch.setattr(scenario, "_drawn_faults", lambda _: Faults(lost=0.01))
    reconcile = commit.reconcile

    def trusting(plan, results, counted, *others):
        try:
            return reconcile(plan, results, counted, *others)
        except Exception:
            return [[r for r in results if r.split == split] for split in range(2)]

    monkeypatch.setattr(encoded_records, "check_records", lambda *_: None)
    monkeypatch.setattr(commit, "reconcile", trusting)
    seeds = range(JOBS.index("made"), 400, len(JOBS))
    assert any(failure for _, _, failure in map(outcome, seeds))
