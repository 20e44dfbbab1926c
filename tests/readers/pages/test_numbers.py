"""Numbers as people read them, and ticks of axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from readers.pages.numbers import percent, short, ticks


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0%"),
        (1, "100%"),
        (0.5, "50%"),
        (0.9996, ">99.9%"),
        (0.0004, "<0.1%"),
        (0.02, "2.0%"),
    ],
)
def test_only_all_is_a_hundred_percent_and_only_nothing_is_zero(share, text):
    assert percent(share) == text


@settings(max_examples=50)
@given(st.floats(-1e300, 1e300))
def test_a_short_number_is_off_by_less_than_a_hundredth(value):
    assert math.isclose(float(short(value).replace(",", "")), value, rel_tol=0.01)
    assert len(short(value)) <= 12


@settings(max_examples=50)
@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(2, 8))
@example(0.0, 1e-323, 5)
def test_ticks_are_inside_and_few(low, span, most):
    high = low + span
    found = ticks(low, high, most)
    assert len(found) <= most and found == sorted(set(found))
    assert all(low - span * 1e-6 <= tick <= high + span * 1e-6 for tick in found)
