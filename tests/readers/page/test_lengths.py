"""Padding, buckets, limits and packed rows of a report, compared with what the readers do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.check import check_facts, facts_of
from readers.format.schema import Schema
from readers.page.lengths.buckets import suggested_boundaries
from readers.page.lengths.packing import packed_share
from readers.page.lengths.padding import Lengths, padded_cells, waste
from readers.page.sections import lengths as section
from readers.page.study import Study
from tests.support.datasets import signals, write_dataset, write_numbers

HOSTILE = "<b>ident'\"&</b>\u202e"


def lengths_of(sizes, records=None):
    return Lengths(np.sort(np.asarray(sizes, np.int64)), records or len(sizes))


def studied(directory):
    facts = facts_of(str(directory), 10_000, has_details=True)
    return Study(str(directory), facts, check_facts(facts, 10_000))


def executed(code):
    names = {}
    exec(code, names)
    return names["batches"]


def measured_waste(batches, name):
    """The share of cells of a feature that are padding in the batches of a program."""
    masks = [batch[f"{name}_mask"] for batch in batches]
    return 1 - sum(mask.sum() for mask in masks) / sum(mask.size for mask in masks)


def simulated_cells(sizes, batch_size, orders=400):
    rng, found = np.random.default_rng(0), []
    for _ in range(orders):
        shuffled = rng.permutation(sizes)
        batches = [shuffled[i : i + batch_size] for i in range(0, len(shuffled), batch_size)]
        found.append(sum(batch.max() * len(batch) for batch in batches))
    return np.mean(found)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=70), st.integers(1, 80))
@settings(max_examples=25, deadline=None)
def test_the_expected_cells_are_the_mean_over_shuffled_epochs(sizes, batch_size):
    expected = simulated_cells(np.array(sizes), batch_size)
    assert padded_cells(lengths_of(sizes), batch_size) == pytest.approx(expected, rel=0.06, abs=2)


def test_a_sample_stands_for_all_records():
    rng = np.random.default_rng(3)
    every = rng.lognormal(3, 1, 60_000).astype(np.int64) + 1
    sample = lengths_of(every[:10_000], len(every))
    for batch_size in (16, 256):
        simulated = 1 - every.sum() / simulated_cells(every, batch_size, 5)
        assert waste(sample, batch_size) == pytest.approx(simulated, abs=0.03)


def test_two_lengths_are_two_buckets_without_padding():
    lengths = lengths_of([10] * 500 + [100] * 500)
    assert suggested_boundaries(lengths, 32) == [11]
    assert waste(lengths, 32, [11]) == 0
    assert waste(lengths, 32) == pytest.approx(0.45, abs=0.001)


def test_no_buckets_are_suggested_where_they_save_nothing():
    assert suggested_boundaries(lengths_of([7] * 1000), 64) == []
    assert suggested_boundaries(lengths_of([0] * 100), 8) == []
    assert suggested_boundaries(lengths_of([1, 50]), 4) == []
    assert suggested_boundaries(lengths_of([]), 4) == []


@given(st.lists(st.integers(1, 8), min_size=60, max_size=60))
@settings(max_examples=15, deadline=None)
def test_no_other_buckets_of_this_number_are_better(sizes):
    lengths = lengths_of(sizes)
    chosen = suggested_boundaries(lengths, 4)
    found = waste(lengths, 4, chosen)
    for boundaries in itertools.combinations(range(2, 9), len(chosen)):
        ends = zip((0, *boundaries), (*boundaries, None), strict=True)
        if all(lengths.between(low, high).records >= 8 for low, high in ends):
            assert found <= waste(lengths, 4, boundaries) + 1e-9


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """A dataset of 600 recordings of very different lengths, and what the page says of it."""
    sizes = np.random.default_rng(1).lognormal(3, 0.8, 600).astype(int) + 1
    schema = Schema({HOSTILE: ("float32", (None, 2)), "label": ("int64", ())})
    records = [{HOSTILE: r["signal"], "label": r["label"]} for r in signals(sizes.tolist())]
    directory = write_dataset(
        tmp_path_factory.mktemp("it's") / "runs",
        schema,
        {"train": [records[:300], records[300:500]], "val": [records[500:]]},
    )
    return section._lengths(studied(directory), HOSTILE), sizes[:500]


def test_the_code_of_the_page_pads_as_little_as_the_page_says(recordings):
    found, _ = recordings
    assert found.boundaries
    text = {size: with_buckets for size, _, with_buckets in found.wastes}
    assert found.batch_size == 32
    measured = measured_waste(executed(found.buckets_code), HOSTILE)
    assert float(text[32].split()[0]) / 100 == pytest.approx(measured, abs=0.03)


def test_the_page_says_what_padding_costs_without_buckets(recordings):
    found, sizes = recordings
    for size, without, _ in found.wastes[:3]:
        simulated = 1 - sizes.sum() / simulated_cells(sizes, size, 50)
        assert float(without.split()[0]) / 100 == pytest.approx(simulated, abs=0.01)


def test_the_code_of_the_page_makes_batches_of_one_shape(recordings):
    found, sizes = recordings
    batches = list(executed(found.limit_code))
    limit = found.limits[-1].length
    assert {batch[HOSTILE].shape[1] for batch in batches} == {limit}
    assert limit == np.sort(sizes)[int(np.ceil(0.999 * len(sizes))) - 1]
    measured = 1 - np.minimum(sizes, limit).mean() / limit
    assert float(found.limits[-1].waste.split()[0]) / 100 == pytest.approx(measured, abs=0.001)


def test_the_code_of_the_page_packs_rows_as_full_as_the_page_says(recordings):
    found, _ = recordings
    batches = [batch[f"{HOSTILE}_segment_ids"] for batch in executed(found.packing_code)]
    full = [ids for ids in batches if len(ids) == 32][:-1] or batches
    measured = sum((ids > 0).sum() for ids in full) / sum(ids.size for ids in full)
    assert float(found.rows[-1].filled.split()[0]) / 100 == pytest.approx(measured, abs=0.05)


def test_equal_records_that_fit_fill_their_rows():
    assert packed_share(np.full(1000, 8), 32, 4) == (1.0, 4.0)
    assert packed_share(np.full(3, 8), 32, 4) == (0.75, 3.0)
    share, records = packed_share(np.zeros(0, np.int64), 32, 4)
    assert np.isnan(share) and np.isnan(records)


def test_records_of_fixed_shape_have_no_lengths(tmp_path):
    assert section.section(studied(write_numbers(tmp_path / "numbers"))) is None


def test_records_of_one_length_need_no_padding(tmp_path):
    schema = Schema({"signal": ("float32", (None, 2)), "label": ("int64", ())})
    directory = write_dataset(
        tmp_path / "same", schema, {"train": [signals([5] * 20)], "val": [[]]}
    )
    body = section.section(studied(directory)).body
    assert "batches need no padding" in body and "import readers" not in body
