"""Jobs on a simulated engine and store that fail in every way, from seeds."""

from collections import Counter

import pytest

from beam_jobs.__main__ import main
from beam_jobs.dataset import encoded_records
from beam_jobs.pipeline import commit
from readers.format.manifest import Manifest
from tests.campaigns.simulation import scenario
from tests.campaigns.simulation.scenario import JOBS, flags_of, job_of, outcome, simulate
from tests.campaigns.simulation.world import Faults, World
from tests.support.datasets import files_of

# Seeds of a campaign that found a fault.
FOUND = [37, 123, 7533, 19554, 45026, 60181, 68277, 90637, 95326]


@pytest.mark.slow(base=["text-names0"])
@pytest.mark.parametrize(
    ("command", "names"), [("text", ("text", "merged", "replaced")), ("near", ("near",))]
)
def test_the_simulated_runner_writes_what_beams_own_writes(tmp_path, command, names):
    assert main([*flags_of(command), "--output", str(tmp_path / "out")]) == 0
    assert bool(Manifest.read(str(tmp_path / "out")).duplicates) == (command in ("dropped", "near"))
    theirs = files_of(tmp_path / "out")
    assert theirs.pop("manifest.json")  # It has versions of packages.
    for name in names:
        found = dict(job_of(name).expected)
        assert found.pop("manifest.json")
        assert found == theirs


def test_whatever_fails_a_dataset_is_whole_or_has_no_manifest():
    struck = Counter[str]()
    for seed in range(32):
        struck += simulate(seed)
    everything = {"dies", "refused", "unanswered", "full", "retried", "zombie", "lost", "repeated"}
    assert {*everything, "runs: complete", "runs: failed", "runs: crashed"} <= struck.keys()


@pytest.mark.slow(base=["37", "123"])
@pytest.mark.parametrize("seed", FOUND)
def test_what_once_failed(seed):
    simulate(seed)


def test_a_store_that_shows_half_an_object_is_caught(monkeypatch):
    put = World.put

    def in_halves(self, path, data, seen=None):
        self.objects[path] = data[: len(data) // 2]
        put(self, path, data, seen)

    monkeypatch.setattr(World, "put", in_halves)
    assert any(failure for _, _, failure in map(outcome, range(1000)))


def test_a_job_that_does_not_count_its_records_is_caught(monkeypatch):
    job_of("made")  # Undisturbed.
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
