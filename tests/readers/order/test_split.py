from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers.order.split import parse_split, shard_ranges

COUNTS = {"train": 1000, "val": 7}


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("train", 0, 1000),
        ("train[:10%]", 0, 100),
        ("train[100:200]", 100, 200),
        ("train[-100:]", 900, 1000),
        ("train[-25%:]", 750, 1000),
        ("train[1_00:2_00]", 100, 200),
        ("train[10%:200]", 100, 200),
        ("val[:50%]", 0, 4),
        ("val[50%:]", 4, 7),
        ("val[-10%:]", 6, 7),
        ("val[-100%:]", 0, 7),
        ("val[:-1%]", 0, 7),  # -1% rounds to -0, which TFDS takes for the beginning.
    ],
)
def test_slices_match_tensorflow_datasets(text, start, stop):
    if start is None:
        with pytest.raises(ValueError, match="has no records"):
            parse_split(text, COUNTS)
    else:
        assert parse_split(text, COUNTS) == [(text.split("[")[0], start, stop)]


@given(st.integers(1, 5000), st.integers(1, 99))
@settings(max_examples=100, deadline=None)
def test_two_slices_at_the_same_percentage_partition_a_split(records, percent):
    cut = round(percent * records / 100)
    for text, expected in (("a[:%d%%]", (0, cut)), ("a[%d%%:]", (cut, records))):
        if expected[0] == expected[1]:
            with pytest.raises(ValueError, match="has no records"):
                parse_split(text % percent, {"a": records})
        else:
            assert parse_split(text % percent, {"a": records}) == [("a", *expected)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dev", "unknown split 'dev': the dataset has train, val"),
        ("train[:", r"expected one of the forms 'train', 'train\[:10%\]'"),
        ("train[a:b]", "'a' is not a valid bound; expected one of the forms"),
        ("train[1.5%:]", "'1.5%' is not a valid bound"),
        ("train[:]", "the slice is empty"),
        ("train[:101%]", "found 101%, expected percentages from -100 to 100"),
        ("train[:1001]", "1001 is outside its 1000 records"),
        ("train[20:10]", "has no records: 20 to 10 of 1000"),
        ("train+", "split '': expected one of the forms"),
        ("train[:60%]+val+train[500:]", "record 500 of train is in two parts of the sum; .*Mix"),
        ("val+val", "record 0 of val is in two parts"),
        (3, "expected one of the forms"),
    ],
)
def test_an_invalid_split_is_refused_with_the_cure(text, message):
    with pytest.raises(ValueError, match=message):
        parse_split(text, COUNTS)


def test_an_empty_split_can_be_read_whole():
    assert parse_split("empty", {"empty": 0}) == [("empty", 0, 0)]


def test_splits_and_slices_are_added():
    runs = [("train", 0, 200), ("val", 0, 7), ("train", 400, 1000)]
    for text in ("train[:20%]+val+train[40%:]", "train[:+200] + val + train[40%:]"):
        assert parse_split(text, COUNTS) == runs


@given(st.lists(st.integers(0, 9), max_size=8), st.data())
@settings(max_examples=200, deadline=None)
def test_shard_ranges_cover_exactly_the_records_of_the_range(counts, data):
    total = sum(counts)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    firsts = np.cumsum([0, *counts])
    found = []
    for shard, skip, take in shard_ranges(counts, start, stop):
        assert take > 0
        assert skip + take <= counts[shard]
        found += range(firsts[shard] + skip, firsts[shard] + skip + take)
    assert found == list(range(start, stop))
