"""Figures, bins and frequent values, compared with NumPy's and with sorted lists."""

from __future__ import annotations

import math
import statistics
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from readers.format.schema import Feature
from readers.format.splits import Split
from readers.pages.markup import to_html
from readers.pages.values.collected import Collector, joined
from readers.pages.values.figures import sampled, with_all
from readers.pages.values.frequent import frequent_numbers, frequent_strings
from readers.pages.values.histograms import MOST_BINS, bins_of, histogram, spark

DTYPES = ["bool", "uint8", "int8", "int64", "uint64", "float16", "float32", "float64"]
any_numbers = arrays.arrays(
    st.sampled_from([np.dtype(name) for name in DTYPES]), st.tuples(st.integers(0, 60))
)


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@given(any_numbers)
@example(np.array([1.79769313e308, 1]))
@example(np.array([1.77989419e308]))
@example(np.array([5e-324, 0.0]))
@settings(max_examples=40, deadline=None)
def test_each_finite_value_is_in_one_bin(values):
    bins = bins_of([values])
    numbers = values.astype(np.float64)
    if not np.isfinite(numbers).any():
        assert bins is None and histogram({"train": values}, "Values", "values") is None
        return
    counts = bins.counts(values)
    assert counts.sum() == np.isfinite(numbers).sum()
    assert len(counts) <= MOST_BINS and (np.diff(bins.edges) > 0).all()
    assert bins.edges[0] <= np.nanmin(numbers[np.isfinite(numbers)])
    assert to_html(histogram({"train": values, "val": values[:3]}, "Values", "values"))
    assert to_html(spark([values]))


@given(any_numbers)
@settings(max_examples=40, deadline=None)
def test_figures_are_those_of_a_sorted_list(values):
    found = sampled(values)
    numbers = [float(value) for value in values]
    finite = sorted(number for number in numbers if math.isfinite(number))
    if not numbers:
        assert math.isnan(found.zero) and math.isnan(found.missing)
        return
    assert found.missing == pytest.approx(1 - len(finite) / len(numbers))
    if finite:
        assert found.zero == sum(number == 0 for number in numbers) / len(numbers)
        assert (found.low, found.high) == (finite[0], finite[-1])
        assert found.quantiles[2] in (statistics.median_low(finite), statistics.median_high(finite))
        scale = max(map(abs, finite)) or 1.0
        scaled = [number / scale for number in finite]
        assert found.mean / scale == pytest.approx(statistics.fmean(scaled), abs=1e-6)
        assert found.std / scale == pytest.approx(statistics.pstdev(scaled), abs=1e-6)


def test_whole_numbers_have_bins_of_their_own():
    bins = bins_of([np.array([3, 3, 4, 7], np.int64)])
    np.testing.assert_array_equal(bins.edges, [2.5, 3.5, 4.5, 5.5, 6.5, 7.5])
    np.testing.assert_array_equal(bins.counts(np.array([3, 3, 4, 7])), [2, 1, 0, 0, 1])
    assert len(bins_of([np.array([True, False])]).edges) == 3
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert bins_of([extremes]).counts(extremes).sum() == 2


def test_heavy_tails_have_bins_of_equal_ratios_and_others_do_not():
    rng = np.random.default_rng(0)
    assert bins_of([rng.lognormal(0, 4, 5000)]).is_log
    assert not bins_of([rng.random(5000)]).is_log
    assert not bins_of([rng.exponential(size=5000)]).is_log
    assert not bins_of([-rng.lognormal(0, 4, 5000)]).is_log


def test_the_width_of_bins_is_that_of_freedman_and_diaconis():
    values = np.random.default_rng(0).normal(size=500)
    expected = len(np.histogram_bin_edges(values, "fd")) - 1
    assert len(bins_of([values]).edges) - 1 == expected


def split_with(values):
    return Split(
        (),
        statistics={
            "x": {
                "count": len(values),
                "min": float(values.min()),
                "max": float(values.max()),
                "mean": float(values.mean()),
                "std": float(values.std()),
                "nan": 2,
            }
        },
    )


def test_figures_of_splits_add_up_to_those_of_all_records(monkeypatch):
    monkeypatch.setattr(Split, "records", 1)
    parts = np.random.default_rng(0).normal(5, 2, 70), np.random.default_rng(1).normal(-3, 1, 30)
    of_sample = sampled(parts[0])
    found = with_all(of_sample, [split_with(part) for part in parts], "x")
    every = np.concatenate(parts)
    assert (found.number, found.missing) == (104, pytest.approx(4 / 104))
    assert (found.low, found.high) == (every.min(), every.max())
    assert found.mean == pytest.approx(every.mean())
    assert found.std == pytest.approx(every.std())
    assert found.quantiles == of_sample.quantiles


@pytest.mark.parametrize(
    "figures", [{}, {"count": "7"}, {"count": 3, "min": "a"}, {"count": 2, "min": 1}, [], None]
)
def test_figures_that_make_no_sense_are_left_out(monkeypatch, figures):
    monkeypatch.setattr(Split, "records", 1)
    found = sampled(np.arange(4))
    assert with_all(found, [Split((), statistics={"x": figures})], "x") == found


def test_frequent_values_are_counted():
    found = frequent_numbers(np.array([5, 7, 5, 5, 7, 1, np.nan, np.nan]))
    assert (found.total, found.distinct) == (8, 4)
    assert found.top == [("5", 3), ("7", 2), ("NaN", 2), ("1", 1)]
    assert frequent_numbers(np.array([1, 1, 9]), ["a", "b"]).top == [("1 (b)", 2), ("9", 1)]
    assert frequent_numbers(np.array([2**62 + 1])).top == [(f"{2**62 + 1:,}", 1)]
    assert not frequent_numbers(np.arange(5)).rows
    found = frequent_strings([b"\xff\x00", b"a", b"a", b"x" * 96])
    assert found.top[0] == ("a", 2) and found.distinct == 3


def test_values_are_drawn_by_rows_and_joined():
    feature = Feature("int16", (None, 3))
    first, second = (Collector(feature, 10) for _ in range(2))
    long = np.arange(300, dtype=np.int16).reshape(100, 3)
    first.add(long, 0)
    first.add(long[:4], 1)
    second.add(long[:0], 2)
    found = joined([first.values(), second.values()])
    assert found.drawn.dtype == np.int16
    assert len(found.drawn) == 14
    np.testing.assert_array_equal(found.sizes, [300, 12, 0])
    np.testing.assert_array_equal(found.shapes, [[100, 3], [4, 3], [0, 3]])
    np.testing.assert_array_equal(found.drawn[10:], long[:4])
    np.testing.assert_array_equal(found.drawn[:, 1] - found.drawn[:, 0], 1)
