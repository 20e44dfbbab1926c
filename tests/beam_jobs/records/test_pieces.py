"""Everything that may be too large for an element is cut in pieces and merged again."""

import itertools
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.jobs.text.tokens import WordCounts
from beam_jobs.plan.group_splits import GroupSizes
from beam_jobs.plan.strata import Histogram, LabelCounts, LabelHashes
from beam_jobs.plan.summary import SampledRecord, Summary
from beam_jobs.records.pieces import PIECE_BYTES, Divisible, checksum_of, cut, joined, merged
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import MAX_COUNTED, SplitStatistics, Statistics
from readers.format.encode.records import Encoder
from readers.format.schema import Schema

LIMIT = 1 << 20


@given(st.binary(max_size=40), st.randoms())
def test_cut_bytes_are_joined_in_any_order(data, random):
    pieces = list(cut(data * 40_000))
    assert all(len(piece) <= PIECE_BYTES for _, _, piece in pieces)
    random.shuffle(pieces)
    assert joined(pieces) == data * 40_000


def test_lost_and_repeated_pieces_are_noticed():
    pieces = list(cut(b"x" * (3 * PIECE_BYTES)))
    for wrong in ([], pieces[:2], pieces[1:], [*pieces, pieces[1]]):
        with pytest.raises(DataError, match=rf"every worker needs: {len(wrong)} of [13] arrived"):
            joined(wrong)


def in_pieces(whole: Divisible) -> tuple[Divisible, int]:
    """The merged pieces of all keys, each merged first, after a trip; and the largest piece in bytes."""
    groups: dict[object, list[bytes]] = {}
    for key, piece in whole.pieces():
        groups.setdefault(key, []).append(pickle.dumps(piece))
    empty = type(whole) if not isinstance(whole, Summary) else lambda: Summary.empty(12)
    again = [
        piece
        for packed in groups.values()
        for _, piece in merged(map(pickle.loads, packed), empty).pieces()
    ]
    largest = max(len(pickle.dumps(piece)) for piece in again)
    return merged(again, empty), max(largest, *(len(p) for some in groups.values() for p in some))


def many_labels() -> Counter[str]:
    return Counter({f"{number:0200}": number for number in range(20_000)} | {"\ud800": 0, "é": 3})


def hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def test_summaries_are_cut():
    whole = Summary.empty(12)
    for number in range(11):
        whole.splits[number].add(hashes([3, 70_000][number % 2], number))
        whole.splits[number].bytes = 10 * number
    whole.splits[1].duplicates = 4
    whole.add_labels(many_labels())
    whole.add_labels({}, "boxes")
    whole.inputs, whole.texts, whole.learned = 7, 8, 9
    whole.add_reject(3, Reject("key", "read", "why"))
    whole.add_sample(SampledRecord(n, bytes([n]) * 100_000, n) for n in range(40))
    before = pickle.dumps(whole)
    again, largest = in_pieces(whole)
    assert largest < LIMIT < len(before)
    assert isinstance(again, Summary)
    for name in ("labels", "sample", "inputs", "texts", "learned", "checksum", "rejects"):
        assert getattr(again, name) == getattr(whole, name)
    for mine, expected in zip(again.splits, whole.splits, strict=True):
        np.testing.assert_array_equal(mine.histogram(), expected.histogram())
        for name in ("rejected", "bytes", "records", "duplicates"):
            assert getattr(mine, name) == getattr(expected, name)


def test_counts_of_labels_groups_and_words_are_cut():
    labels = many_labels()
    sizes = {(number << 40, f"label {number}"): number for number in range(90_000)}
    words = {label.encode("utf-8", "surrogatepass"): n for label, n in labels.items()}
    for whole, name in (
        (LabelCounts(labels), "counts"),
        (GroupSizes(3, Counter(sizes)), "sizes"),
        (WordCounts(words), "counts"),
    ):
        again, largest = in_pieces(whole)
        assert getattr(again, name) == getattr(whole, name)
        assert largest < LIMIT < len(pickle.dumps(whole))


def test_labels_and_histograms_of_records_are_cut():
    labels = [f"{number % 20_000:060}" for number in range(30_000)] + ["common"] * 400_000
    block = LabelHashes.of(labels, hashes(len(labels)))
    pieces = list(block.pieces())
    assert max(len(pickle.dumps(piece)) for piece in pieces) < LIMIT
    assert [name for part in pieces for name in (part.names[c] for c in part.codes)] == labels
    np.testing.assert_array_equal(np.concatenate([p.hashes for p in pieces]), block.hashes)
    counts = LabelCounts().add(block)
    total = LabelCounts(Counter({**counts.counts, "common": 1 << 34}))
    whole = Histogram().add(block, total)
    assert len(whole.of("common")) == 1 << 19
    again, largest = in_pieces(whole)
    assert largest < LIMIT < len(pickle.dumps(whole))
    for name in block.names:
        np.testing.assert_array_equal(again.of(name), whole.of(name))


def statistics_of(tokens: np.ndarray) -> Statistics:
    schema = Schema(
        {"tokens": ("int64", (None,)), **{f"f{n}": ("float32", (2, 8)) for n in range(300)}}
    )
    found = Statistics(schema)
    values = {name: np.full((2, 8), 0.1, np.float32) for name in schema if name != "tokens"}
    found.add([Encoder(schema).check({"tokens": tokens, **values})])
    found.remarks.add("cut", f"key {tokens[0]}")
    return found


def test_statistics_are_cut_by_feature_and_value():
    first = statistics_of(np.arange(MAX_COUNTED - 1) + (1 << 50))
    other = statistics_of(np.array([1 << 50, 1 << 50, -1]))
    whole = SplitStatistics.of(2, first)
    again, largest = in_pieces(whole)
    assert largest < LIMIT < len(pickle.dumps(whole))
    assert isinstance(again, SplitStatistics)
    again.merge(SplitStatistics.of(2, other))
    again.merge(SplitStatistics.of(0, other))
    found = again.by_split(first._schema)
    assert list(found) == [0, 2]
    assert found[0].state() == other.state()
    assert (found[2].records, found[2].remarks["cut"][0]) == (2, 2)
    assert list(found[2].features) == list(first.features)
    before = SplitStatistics.of(2, first).by_split(first._schema)[2].state()
    first.merge(other)
    assert found[2].state() == first.state() != before
    assert len(found[2].features["tokens"].counted or ()) == MAX_COUNTED
    again.merge(SplitStatistics.of(2, statistics_of(np.array([7]))))
    again, _ = in_pieces(again)
    assert again.by_split(first._schema)[2].features["tokens"].counted is None


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("place", [(), (2, "f1", -1), (2, "tokens", -1), (2, "tokens", 3)])
def test_statistics_that_a_runner_lost_or_repeated_are_noticed(place, times):
    pieces = list(SplitStatistics.of(2, statistics_of(np.arange(99))).pieces())
    merged((piece for _, piece in pieces), SplitStatistics).check()
    assert place in dict(pieces)
    found = [piece for key, piece in pieces for _ in range(times if key == place else 1)]
    with pytest.raises(DataError, match="lost or repeated statistics"):
        merged(found, SplitStatistics).check()


def test_values_in_the_place_of_others_are_noticed():
    pieces = dict(SplitStatistics.of(0, statistics_of(np.arange(99))).pieces())
    counted = {k: p.splits[0].features[k[1]].counted for k, p in pieces.items() if len(k) == 3}
    values = {k: len(found) for k, found in counted.items() if k[2] >= 0}
    one, other = next(
        pair for pair in itertools.combinations(values, 2) if len({values[k] for k in pair}) == 1
    )
    pieces[one] = pieces[other]
    with pytest.raises(DataError, match="lost or repeated statistics"):
        merged(pieces.values(), SplitStatistics).check()


@pytest.mark.parametrize("value", [0, 1, 2**32, 2**64 - 1])
def test_every_value_counts_in_a_checksum(value):
    values = np.array([value], np.uint64)
    found = {checksum_of(values, np.array([n])) for n in range(5)}
    assert len(found) == 5
