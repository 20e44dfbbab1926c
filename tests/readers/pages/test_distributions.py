"""Figures, bins and frequent values, compared with NumPy's and with sorted lists."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from readers.format.splits import Split
from readers.pages.bins import MOST_BINS, bins_of
from readers.pages.charts import histogram
from readers.pages.figures import of_all
from readers.pages.markup import to_html

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
        assert bins is None and histogram({"train": values}, "Values") is None
        return
    counts = bins.counts(values)
    assert counts.sum() == np.isfinite(numbers).sum()
    assert len(counts) <= MOST_BINS and (np.diff(bins.edges) > 0).all()
    assert bins.edges[0] <= np.nanmin(numbers[np.isfinite(numbers)])
    assert to_html(histogram({"train": values, "val": values[:3]}, "Values"))


def test_whole_numbers_have_bins_of_their_own():
    bins = bins_of([np.array([3, 3, 4, 7], np.int64)])
    np.testing.assert_array_equal(bins.edges, [2.5, 3.5, 4.5, 5.5, 6.5, 7.5])
    np.testing.assert_array_equal(bins.counts(np.array([3, 3, 4, 7])), [2, 1, 0, 0, 1])
    assert len(bins_of([np.array([True, False])]).edges) == 3
    np.testing.assert_array_equal(np.diff(bins_of([np.arange(130)]).edges), 3)
    extremes = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert bins_of([extremes]).counts(extremes).sum() == 2


def test_heavy_tails_have_bins_of_equal_ratios_and_others_do_not():
    rng = np.random.default_rng(0)
    assert bins_of([rng.lognormal(0, 4, 5000)]).is_log
    assert not bins_of([rng.random(5000)]).is_log
    assert not bins_of([rng.exponential(size=5000)]).is_log
    assert not bins_of([-rng.lognormal(0, 4, 5000)]).is_log


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
    found = of_all([split_with(part) for part in parts], "x")
    every = np.concatenate(parts)
    assert (found.number, found.missing) == (104, pytest.approx(4 / 104))
    assert (found.low, found.high) == (every.min(), every.max())
    assert found.mean == pytest.approx(every.mean())
    assert found.std == pytest.approx(every.std())


@pytest.mark.parametrize(
    "figures",
    [
        *({}, {"count": "7"}, {"count": 3, "min": "a"}, {"count": 2, "min": 1}, [], None),
        *({"count": 10**400}, {"count": 0, "nan": 3, "min": None}),
        {"count": 1, "min": -(10**400), "max": 1, "mean": 1, "std": 1},
    ],
)
def test_figures_that_make_no_sense_are_left_out(monkeypatch, figures):
    monkeypatch.setattr(Split, "records", 1)
    assert of_all([Split((), statistics={"x": figures})], "x") is None
