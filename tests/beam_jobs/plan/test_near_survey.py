"""What is counted of near duplicates, and what must add up."""

from collections import Counter

import numpy as np
import pytest

from beam_jobs.errors import DataError
from beam_jobs.plan.near_keys import Probes
from beam_jobs.plan.near_pairs import (
    CHUNKS,
    EXAMPLES,
    KEYS,
    PAIRS,
    PROBES,
    NearPairs,
    NearSurvey,
    NearTally,
    check_near,
)
from beam_jobs.plan.summary import Summary


def pairs_of(*rows):
    """Pairs from (row of the second, owner of the first, its number, its split)."""
    second, owner, first, split = zip(*rows, strict=True) if rows else ((), (), (), ())
    return NearPairs(
        np.array(second, np.int64),
        np.array(owner, object),
        np.array(first, np.int64),
        np.array(split, np.uint8),
        np.zeros(len(rows), bool),
    )


def probes_of(owner, splits):
    numbers, rows = np.arange(1, len(splits) + 1), np.empty((len(splits), 0), np.uint8)
    return Probes(owner, False, numbers, np.array(splits, np.uint8), rows)


def test_a_record_is_counted_once_in_its_split_and_once_across():
    found = NearSurvey.of(
        probes_of("b", [0, 0, 1]),
        pairs_of((0, "a", 7, 0), (0, "a", 8, 0), (1, "a", 9, 1), (2, "a", 6, 0), (2, "c", 5, 1)),
    )
    assert found.within == {0: 1, 1: 1}
    assert found.across == {0: 1, 1: 1}
    assert found.within_examples == [(("b", 1), ("a", 7)), (("b", 3), ("c", 5))]
    assert found.across_examples == [(("b", 2), ("a", 9)), (("b", 3), ("a", 6))]
    assert NearSurvey.of(probes_of("b", [0]), pairs_of()) == NearSurvey()


def test_the_examples_of_a_block_are_its_first_records():
    many = [(row, "a", row, 0) for row in range(2 * EXAMPLES)]
    found = NearSurvey.of(probes_of("b", [0] * 2 * EXAMPLES), pairs_of(*many))
    assert found.within == {0: 2 * EXAMPLES}
    assert [second for second, _ in found.within_examples] == [("b", n) for n in range(1, 6)]


def test_surveys_of_blocks_are_merged_in_any_order():
    parts = [
        NearSurvey.of(probes_of(owner, [0, 1]), pairs_of((0, "a", 1, 0), (1, "a", 2, 0)))
        for owner in "gfedcb"
    ]
    for order in (parts, parts[::-1]):
        whole = NearSurvey()
        for part in order:
            whole.merge(part)
        assert vars(whole) == {
            "within": {0: 6},
            "across": {1: 6},
            "within_examples": [((owner, 1), ("a", 1)) for owner in "bcdef"],
            "across_examples": [((owner, 2), ("a", 2)) for owner in "bcdef"],
        }
    assert isinstance(whole.within, Counter)


@pytest.mark.parametrize("what", [CHUNKS, KEYS, PAIRS, PROBES])
def test_what_a_runner_loses_or_repeats_of_a_search_is_named(what):
    NearTally(sent=Counter({what: 3}), received=Counter({what: 3})).check(0)
    for number in (2, 4):
        tally = NearTally(sent=Counter({what: 3}), received=Counter({what: number}))
        with pytest.raises(DataError, match=f"lost or repeated {what}: {number} of 3 arrived; no"):
            tally.check(0)


def test_every_record_of_a_dataset_was_compared():
    NearTally(records=5).check(5)
    for records in (4, 6):
        with pytest.raises(DataError, match=f"records to compare: 5 of {records} arrived"):
            NearTally(records=5).check(records)


def test_every_record_and_every_duplicate_of_a_job_was_counted():
    summary = Summary.empty(2)
    summary.texts = 10
    summary.splits[0].duplicates, summary.splits[1].duplicates = 2, 3
    check_near(summary, [])
    check_near(summary, [NearTally(records=10, dropped=5)])
    check_near(summary, [NearTally(records=10, dropped=1), NearTally(records=9, dropped=4)])
    with pytest.raises(DataError, match="records to compare: 10 of 9 arrived"):
        check_near(summary, [NearTally(records=10, dropped=1), NearTally(records=10, dropped=4)])
    with pytest.raises(DataError, match="duplicates to drop: 5 of 6 arrived"):
        check_near(summary, [NearTally(records=10, dropped=6)])
    with pytest.raises(DataError, match="keys of sketches: 1 of 0 arrived"):
        check_near(summary, [NearTally(records=10, dropped=5, received=Counter({KEYS: 1}))])
