"""Datasets that live are what a model in plain Python says, whatever is killed or overtaken.

These are the first histories of a campaign: `python -m tests.campaigns histories 10000`.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from beam_jobs.changes import delete
from beam_jobs.dataset.changes import without
from beam_jobs.dataset.output import Holder
from beam_jobs.writing import append
from readers.format.lookup.stored import StoredSplit
from readers.format.splits import Split
from tests.campaigns.histories.history import PAIRS, outcome

_PER_TEST = 10


@pytest.mark.slow(base=["0"])
@pytest.mark.ci
@pytest.mark.parametrize("first", range(0, 100, _PER_TEST))
def test_every_command_does_what_the_model_states(first: int) -> None:
    counts = Counter[str]()
    for seed in range(first, first + _PER_TEST):
        _, counted, failure = outcome(seed)
        assert not failure, f"seed {seed}\n{failure}"
        counts += counted
    assert sum(times for name, times in counts.items() if name.endswith("killed"))
    assert sum(" | " in name for name in counts) >= min(15, len(PAIRS))


def test_statistics_that_count_deleted_records_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        delete,
        "without",
        lambda *given: replace(without(*given), statistics=given[2].split.statistics),
    )
    assert any(failure for _, _, failure in map(outcome, range(0, 60, 3)))


def test_an_append_that_forgets_what_was_deleted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(run: Holder, path: str, stored: StoredSplit, rows: np.ndarray) -> Split:
        return without(run, path, replace(stored, split=replace(stored.split, gone=None)), rows)

    monkeypatch.setattr(append, "without", forgetful)
    assert any(failure for _, _, failure in map(outcome, range(0, 300, 3)))
