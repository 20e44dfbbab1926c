import re

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from readers.format.lookup.rows import RowList, SeenRows, joined_rows, pack_rows, unpack_rows


@st.composite
def some_rows(draw):
    """Seen rows, and what they are as a list."""
    stored = draw(st.integers(0, 60))
    listed = draw(st.sets(st.integers(0, stored - 1)) if stored else st.just(set()))
    are_gone = draw(st.booleans())
    seen = [row for row in range(stored) if (row in listed) != are_gone]
    return SeenRows(stored, np.array(sorted(listed), np.int64), are_gone), seen


def rows(seen: SeenRows) -> list[int]:
    return seen.of(np.arange(len(seen))).tolist()


@given(some_rows())
def test_numbers_become_rows_and_rows_become_numbers(given):
    seen, expected = given
    assert rows(seen) == expected
    numbers = seen.numbers_of(np.arange(seen.stored)).tolist()
    assert numbers == [expected.index(row) if row in expected else -1 for row in range(seen.stored)]


@given(some_rows(), st.data())
def test_a_cut_has_the_rows_between_two_numbers(given, data):
    seen, expected = given
    stop = data.draw(st.integers(0, len(expected)))
    start = data.draw(st.integers(0, stop))
    first, last, cut = seen.cut(start, stop)
    assert cut.stored == last - first
    assert [first + row for row in rows(cut)] == expected[start:stop]


@given(st.lists(some_rows() | st.integers(0, 9).map(lambda n: (None, n))))
def test_rows_of_several_splits_follow_each_other(several):
    expected, before, parts = [], 0, []
    for seen, listed in several:
        stored = listed if seen is None else seen.stored
        parts.append((stored, seen))
        expected += [before + row for row in (range(stored) if seen is None else listed)]
        before += stored
    found = joined_rows(parts)
    assert (list(range(before)) if found is None else rows(found)) == expected


@given(some_rows(), st.data())
def test_counts_are_those_of_each_part(given, data):
    seen, expected = given
    ends = sorted(data.draw(st.lists(st.integers(0, seen.stored)))) + [seen.stored]
    starts = [0, *ends[:-1]]
    counts = [sum(a <= row < b for row in expected) for a, b in zip(starts, ends, strict=True)]
    assert seen.counts(np.array(ends)).tolist() == counts


@given(st.lists(st.booleans()))
def test_the_shorter_list_is_kept(is_seen):
    seen = SeenRows.where(np.array(is_seen, bool))
    assert rows(seen) == [row for row, this in enumerate(is_seen) if this]
    assert 2 * len(seen.listed) <= len(is_seen)


def test_numbers_outside_are_errors():
    seen = SeenRows(10, np.array([3]), True)
    for number in (-1, 9):
        with pytest.raises(IndexError):
            seen.of(np.array([0, number]))


@pytest.mark.parametrize(("stored", "size"), [(2**32 - 1, 4), (2**32, 8)])
def test_a_file_of_rows_is_a_plain_array(stored, size):
    data = pack_rows(np.array([1, 70_000, stored - 1]), stored)
    values = [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]
    assert values == [1, 70_000, stored - 1]
    listed = RowList("x/train.gone", 3, google_crc32c.value(data))
    assert unpack_rows(data, listed, stored).tolist() == values


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 1], "its rows do not ascend, or are not below 9"),
        ([2, 1], "its rows do not ascend"),
        ([1, 9], "its rows do not ascend, or are not below 9"),
        ([1], "found 4 bytes and the CRC32C"),
    ],
)
def test_a_wrong_list_of_rows_is_an_error(rows, message):
    data = pack_rows(np.array(rows), 9)
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        unpack_rows(data, RowList("x", 2, google_crc32c.value(data)), 9)
