import math
from collections import Counter
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_pipeline
from apache_beam.testing.util import assert_that
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.pipeline.planning.splits import plan_strata
from beam_jobs.plan import strata
from beam_jobs.plan.group_splits import check_planned
from beam_jobs.plan.placement import ALL, Placement, Splits
from beam_jobs.plan.strata import (
    Cuts,
    Histogram,
    LabelCounts,
    LabelHashes,
    Strata,
    cut_ranks,
    pick_edges,
    place_cuts,
    turn_of,
    wanted_hashes,
)
from beam_jobs.plan.summary import Summary

Record = tuple[str, int]

weights = st.lists(st.integers(1, 60), min_size=2, max_size=5)

# Anywhere, or crowded into one bin, so that cuts share bins and hashes are neighbours.
hashes = st.integers(0, 2**64 - 2) | st.integers(2**63, 2**63 + 300)
records = st.dictionaries(hashes, st.sampled_from("abcdé"), max_size=90).map(
    lambda found: [(label, hash_) for hash_, label in found.items()]
)


def placement_of(shares, seed: int = 0) -> Placement:
    names = tuple(f"s{number}" for number in range(len(shares)))
    return Placement(seed, Splits(names, tuple(shares)))


def block_of(found: list[Record]) -> LabelHashes:
    return LabelHashes.of([label for label, _ in found], np.array([h for _, h in found], np.uint64))


def strata_of(blocks: list[LabelHashes], placement: Placement) -> Strata:
    """The strata as the pipeline plans them, with a worker for each block."""
    counts, histogram = LabelCounts(), Histogram()
    for block in blocks:
        counts.merge(LabelCounts().add(block))
    for block in blocks:
        histogram.merge(Histogram().add(block, counts))
    cuts = place_cuts(counts, histogram, placement)
    groups: dict[tuple[str, int], list[bytes]] = {}
    for block in blocks:
        for key, found in wanted_hashes(block, cuts):
            groups.setdefault(key, []).append(found)
    picked = [edge for key, found in groups.items() for edge in pick_edges(key, found, cuts)]
    return Strata.of(cuts, len(placement.splits.names), picked)


def edges_of(counts: dict[str, int], *picked: tuple[str, int, int]) -> Strata:
    """The strata of two splits, from the number of records with each label and the edges of bin 0."""
    bins = {(label, 0): (counts[label], [(split, 0)]) for label, split, _ in picked}
    return Strata.of(Cuts(LabelCounts(Counter(counts)), bins), 2, picked)


def expected_splits(found: list[Record], placement: Placement) -> dict[Record, int]:
    """The definition: the records of each label, sorted by hash, are cut into shares."""
    splits = {}
    for number, label in enumerate(sorted({label for label, _ in found})):
        mine = sorted(record for record in found if record[0] == label)
        cuts = cut_ranks(len(mine), placement.splits.fractions, turn_of(number, placement.seed))
        for rank, record in enumerate(mine):
            splits[record] = sum(rank >= cut for cut in cuts)
    return splits


@given(
    records, weights, st.integers(-9, 2**40), st.integers(1, 7), st.sampled_from([1, 3, 1 << 16])
)
@settings(max_examples=50)
def test_every_split_gets_its_share_of_each_label_to_one_record(found, parts, seed, size, room):
    shares = [part / sum(parts) for part in parts]
    placement = placement_of(shares, seed)
    blocks = [block_of(found[at : at + size]) for at in range(0, len(found), size)]
    blocks = blocks or [block_of([])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strata, "_BIN_RECORDS", room)
        planned = Strata.unpack(strata_of(blocks, placement).pack())
    split_of = expected_splits(found, placement)
    counts: Counter[tuple[str, int]] = Counter()
    for at, block in enumerate(blocks):
        splits = planned.splits_of(block).tolist()
        mine = found[at * size : (at + 1) * size]
        assert splits == [split_of[record] for record in mine]
        counts.update(zip([label for label, _ in mine], splits, strict=True))
    for label, total in Counter(label for label, _ in found).items():
        for split, share in enumerate(shares):
            assert abs(counts[label, split] - total * share) < 1 + 1e-9


@given(st.integers(0, 10**9), weights, st.floats(0, 1, exclude_max=True))
def test_cuts_give_every_split_its_share_to_one_record(count, parts, turn):
    shares = [part / sum(parts) for part in parts]
    cuts = [0, *cut_ranks(count, shares, turn), count]
    assert cuts == sorted(cuts)
    assert cuts[-1] == count
    sizes = np.diff(cuts)
    assert all(abs(n - count * share) < 1 + 1e-6 for n, share in zip(sizes, shares, strict=True))


@pytest.mark.parametrize(("seed", "each"), [(0, 1), (4095, 2), (-5, 7)])
def test_splits_get_their_shares_even_if_each_label_has_few_records(seed, each):
    found = [
        (f"label {number}", hash_)
        for number in range(1000)
        for hash_ in np.random.default_rng(number).integers(0, 2**64, each, np.uint64).tolist()
    ]
    placement = placement_of((0.8, 0.15, 0.05), seed)
    block = block_of(found)
    counts = np.bincount(strata_of([block], placement).splits_of(block), minlength=3)
    np.testing.assert_allclose(counts, np.array([0.8, 0.15, 0.05]) * len(found), atol=12)


def test_turns_never_change():
    golden = (5**0.5 - 1) / 2
    for number, seed, times in ((0, 0, 1), (3, 5, 9), (0, 4096, 1), (0, -1, 4096), (7, 4095, 4103)):
        assert turn_of(number, seed) == pytest.approx(times * golden % 1)


@pytest.mark.parametrize("label", ["a\nb", "é ü", "\0", "x" * 5000])
def test_labels_may_contain_any_character(label):
    planned = edges_of({label: 3, "a": 2}, (label, 1, 7))
    again = Strata.unpack(planned.pack())
    assert again.splits_of(block_of([(label, 6), (label, 7), ("a", 7)])).tolist() == [0, 1, 0]


def test_strata_are_those_of_the_labels_that_were_read():
    planned = edges_of({"a": 2, "b": 1})
    summary = Summary.empty(2)
    summary.add_labels({"a": 2, "b": 1, "none any more": 0})
    packed = planned.pack()
    placement = replace(placement_of((0.5, 0.5)), exact="labels")
    check_planned(summary, packed, placement)
    for labels_, message in (
        ({"a": 1}, "records of label 'a' while splits were planned: 2 of 3"),
        ({"b": -1}, "records of label 'b' while splits were planned: 1 of 0"),
        ({"c": 1}, "records of label 'c' while splits were planned: 0 of 1"),
    ):
        changed = Summary.empty(2)
        changed.merge(summary)
        changed.add_labels(labels_)
        with pytest.raises(DataError, match=f"{message} arrived"):
            check_planned(changed, packed, placement)
    with pytest.raises(DataError, match="records of label 'a' while splits were planned: 2 of 0"):
        edges_of({"a": 2}).check(Summary.empty(2))


def test_records_that_a_runner_loses_or_repeats_are_noticed():
    block = block_of([("a", 1), ("a", 2), ("a", 3)])
    placement = placement_of((0.5, 0.5))
    counts = LabelCounts().add(block)
    with pytest.raises(DataError) as caught:
        place_cuts(counts, Histogram().add(block_of([("a", 1)]), counts), placement)
    assert caught.value.message == (
        "the runner lost or repeated records of label 'a' while splits were planned: 1 of 3 arrived; no "
        "dataset was written, run the same command again"
    )
    with pytest.raises(DataError, match="planned: 0 of 3 arrived"):
        place_cuts(counts, Histogram(), placement)
    cuts = place_cuts(counts, Histogram().add(block, counts), placement)
    (key, data) = next(wanted_hashes(block, cuts))
    for wrong in ([], [data[:-8]], [data, data]):
        with pytest.raises(
            DataError, match=r"records of label 'a' while splits were planned: \d of 3"
        ):
            list(pick_edges(key, wrong, cuts))


def test_a_label_that_was_not_planned_means_that_inputs_have_changed():
    planned = edges_of({"a": 1})
    with pytest.raises(DataError) as caught:
        planned.splits_of(block_of([("a", 1), ("b", 1)]))
    assert caught.value.message == (
        "label 'b' was not seen when splits were planned: the runner lost records, or the inputs "
        "changed while the job ran; no dataset was written, run the same command again"
    )


def test_the_transform_makes_the_same_plan_as_the_functions():
    generator = np.random.default_rng(1)
    placement = placement_of((0.75, 0.25))
    blocks = [
        LabelHashes.of(
            generator.choice(["x", "y", "z"], 50, p=[0.7, 0.2, 0.1]).tolist(),
            generator.integers(0, 2**64, 50, np.uint64),
        )
        for _ in range(6)
    ]
    expected = strata_of(blocks, placement)

    def agrees(found):
        (packed,) = found
        assert packed == expected.pack()

    options = PipelineOptions(["--allow_unsafe_triggers"])
    with test_pipeline.TestPipeline(options=options) as pipeline:
        assert_that(plan_strata(pipeline | beam.Create(blocks), placement), agrees)
    sizes = Counter(split for block in blocks for split in expected.splits_of(block).tolist())
    assert math.isclose(sizes[0], 225, abs_tol=3)


@pytest.mark.parametrize("change", [lambda edges: edges[1:], lambda edges: [*edges, edges[0]]])
def test_lost_or_repeated_edges_are_noticed(change):
    counts = LabelCounts(Counter({"a": 10, "b": 4}))
    cuts = Cuts(counts, {("a", 0): (10, [(1, 7)]), ("b", 0): (4, [(1, 3)])})
    edges = [("b", 1, 5), ("a", 1, 9)]
    planned = Strata.of(cuts, 2, edges)
    backwards = replace(cuts, bins=dict(reversed(cuts.bins.items())))
    assert Strata.of(backwards, 2, edges).pack() == planned.pack()
    with pytest.raises(DataError, match=r"edges of splits: [13] of 2 arrived"):
        Strata.of(cuts, 2, change(edges))


@given(st.lists(hashes, max_size=60, unique=True), weights)
def test_the_stratum_of_all_records_gives_exact_shares_without_labels(found, parts):
    placement = replace(placement_of([part / sum(parts) for part in parts]), exact="records")
    assert placement.strata([None, "a", "b"]) == [ALL] * 3
    block = LabelHashes.of(placement.strata(found), np.array(found, np.uint64))
    planned = strata_of([block], placement)
    counts = np.bincount(planned.splits_of(block), minlength=len(parts))
    shares = len(found) * np.array(placement.splits.fractions)
    assert np.abs(counts - shares).max() < 1 + 1e-9
    summary = Summary.empty(len(parts))
    for split, count in enumerate(counts.tolist()):
        summary.splits[split].records = count
    planned.check(summary)
    summary.splits[0].records += 1
    if found:
        with pytest.raises(DataError, match="records while splits were planned"):
            planned.check(summary)
