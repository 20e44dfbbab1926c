import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan.shards import BINS, bin_counts
from beam_jobs.plan.summary import SAMPLE, SampledRecord, SplitSummary, Summary, label_names_of
from beam_jobs.records.blocks import Block
from beam_jobs.records.pieces import merged
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.labels import MAX_LABELS


def hashes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def same(summary: SplitSummary, expected: np.ndarray) -> None:
    for _ in range(2):
        assert summary.records == len(expected)
        np.testing.assert_array_equal(summary.histogram(), bin_counts(expected))


sizes = st.lists(st.sampled_from([0, 1, 5, 1000, BINS - 1, BINS, BINS + 1, 200_000]), max_size=5)


@given(st.lists(sizes, min_size=1, max_size=4), st.randoms())
@settings(max_examples=8)
def test_records_are_counted_in_any_portions_and_order(parts, random):
    numbers = [(count, seed) for seed, count in enumerate(c for part in parts for c in part)]
    expected = np.concatenate([np.empty(0, np.uint64), *(hashes(c, s) for c, s in numbers)])
    summaries = []
    for part in parts:
        summary = SplitSummary(rejected=len(part), bytes=sum(part))
        for _ in part:
            summary.add(hashes(*numbers.pop(0)))
        if random.random() < 0.3:
            summary.histogram()
        summaries.append(pickle.loads(pickle.dumps(summary)))
    while len(summaries) > 1:
        other = summaries.pop(random.randrange(len(summaries)))
        random.choice(summaries).merge(other)
    same(summaries[0], expected)
    assert summaries[0].rejected == sum(map(len, parts))
    assert summaries[0].bytes == sum(map(sum, parts))


def block(count: int, splits: int) -> Block:
    rng = np.random.default_rng(count)
    return Block(hashes(count), rng.integers(0, splits, count).astype(np.uint8), [b""] * count)


def test_each_record_is_counted_in_its_split():
    summary = Summary.empty(3)
    given_block = block(1000, 2)
    summary.add_block(given_block)
    for split, part in enumerate(summary.splits):
        same(part, given_block.hashes[given_block.splits == split])


samples = st.lists(
    st.builds(SampledRecord, st.integers(0, 2**64 - 1), st.binary(max_size=3), st.integers(0, 99)),
    max_size=100,
)


@given(samples, st.lists(st.integers(0, 100), max_size=3), st.randoms())
def test_the_sample_has_the_smallest_hashes_in_any_order_of_merging(drawn, cuts, random):
    shuffled = drawn.copy()
    random.shuffle(shuffled)
    cuts = sorted(min(cut, len(drawn)) for cut in cuts)
    whole = Summary.empty(1)
    for first, last in zip([0, *cuts], [*cuts, len(drawn)], strict=True):
        part = Summary.empty(1)
        part.add_sample(shuffled[first:last])
        whole.merge(part)
    assert whole.sample == sorted(drawn)[:SAMPLE]


def test_inputs_labels_and_the_first_rejects_are_merged():
    one, other = Summary.empty(2), Summary.empty(2)
    one.inputs, other.inputs = 3, 4
    one.add_labels({"dog": 2})
    other.add_labels({"cat": 1, "dog": 3})
    other.add_labels({"car": 1}, "box_labels")
    one.add_reject(1, Reject("m", "read", "why"))
    for key in "zbx":
        other.add_reject(0, Reject(key, "read", "why"))
    for order in ((one, other), (other, one)):
        empty = Summary.empty(2)
        for part in order:
            empty.merge(part)
        assert empty.inputs == 7
        assert empty.labels == {"label": {"cat": 1, "dog": 5}, "box_labels": {"car": 1}}
        assert label_names_of(empty, {}) == {"box_labels": ("car",), "label": ("cat", "dog")}
        known = {"box_labels": ("bus", "car")}
        assert label_names_of(empty, known) == {**known, "label": ("cat", "dog")}
        assert [split.rejected for split in empty.splits] == [3, 1]
        assert [reject.key for reject in empty.rejects] == ["b", "m", "x", "z"]
        empty.merge(Summary.empty(2))
        assert [reject.key for reject in empty.rejects] == ["b", "m", "x", "z"]


def full(seed: int, records: int) -> Summary:
    """A summary with a number of its own for everything that is counted."""
    numbers = iter(np.random.default_rng(seed).integers(1, 2**20, 99).tolist())
    summary = Summary.empty(3)
    for split in range(2):  # The third has no records.
        summary.splits[split].add(hashes(records, seed + split))
        for number in range(next(numbers) % 4):
            summary.add_reject(split, Reject(f"r{seed}{split}{number}", "read", "why"))
    summary.add_sizes(np.array([0, 1, 0], np.uint8), np.array([next(numbers) for _ in range(3)]))
    summary.add_duplicates(np.array([1, 0, 1, 1, 2][: 1 + next(numbers) % 5], np.uint8))
    summary.inputs, summary.texts, summary.learned = (next(numbers) for _ in range(3))
    summary.add_labels({f"l{n}": next(numbers) for n in range(9)})
    summary.add_labels({f"m{n}": next(numbers) for n in range(9)}, "box_labels")
    summary.add_sample(SampledRecord(h, b"x" * 9, h % 99) for h in hashes(40, seed).tolist())
    return summary


def facts(summary: Summary) -> list:
    counted = [
        (s.rejected, s.bytes, s.records, s.duplicates, s.histogram().tolist())
        for s in summary.splits
    ]
    numbers = (summary.inputs, summary.texts, summary.learned, summary.checksum)
    return [counted, summary.labels, summary.sample, numbers, summary.rejects]


@pytest.mark.parametrize("records", [0, 2 * BINS])
def test_the_pieces_of_a_summary_make_the_whole(records):
    pieces = [piece for _, piece in full(1, records).pieces()]
    assert facts(merged(pieces, lambda: Summary.empty(3))) == facts(full(1, records))
    # As small as what they hold: a histogram travels in sixteen parts.
    assert max(len(pickle.dumps(piece)) for piece in pieces) < 8 * BINS // 16 + 2000
    keys = [key for key, _ in full(1, records).pieces()]
    assert keys.count(()) == keys.count("sample") == 1
    pairs = {key for key in keys if isinstance(key, tuple) and key}
    assert {key[0] for key in pairs} == {"label", "box_labels"} | ({0, 1} if records else set())
    slices = {key[1] for key in pairs if key[0] == 0}
    assert slices <= set(range(16))
    assert len(slices) == (16 if records else 0)


def test_too_many_labels_are_refused_when_merging():
    summary, other = Summary.empty(1), Summary.empty(1)
    summary.add_labels(dict.fromkeys(map(str, range(MAX_LABELS)), 1))
    summary.merge(summary)
    other.add_labels({"one more": 1})
    with pytest.raises(UsageError, match=f"more than {MAX_LABELS} different labels, such as '0'"):
        summary.merge(other)


def _pieces() -> list[tuple[Any, Summary]]:
    summary = Summary.empty(2)
    hashes = np.arange(1, 9, dtype=np.uint64) << np.uint64(60)
    summary.add_block(Block(hashes, np.arange(8, dtype=np.uint8) % 2, [b""] * 8))
    summary.add_labels({"cat": 4, "dog": 4})
    return list(summary.pieces())


@pytest.mark.parametrize("place", ["", "label", 0])
@pytest.mark.parametrize("times", [0, 2])
def test_a_piece_that_is_lost_or_merged_twice_is_noticed(place, times):
    pieces = [
        piece for key, piece in _pieces() for _ in range(times if place in (key or ("",)) else 1)
    ]
    with pytest.raises(DataError, match="lost or repeated records or labels of the first pass"):
        merged(pieces, lambda: Summary.empty(2)).check()


@pytest.mark.parametrize("place", ["label", 0, 1])
def test_a_piece_in_the_place_of_another_with_the_same_counts_is_noticed(place):
    pieces = _pieces()
    merged([piece for _, piece in pieces], lambda: Summary.empty(2)).check()
    first, second = [n for n, (key, _) in enumerate(pieces) if place in key[:1]][:2]
    pieces[first] = pieces[second]
    with pytest.raises(DataError, match="lost or repeated records or labels of the first pass"):
        merged([piece for _, piece in pieces], lambda: Summary.empty(2)).check()


def _sampled(records: int) -> Summary:
    """A summary with as many records, of which some may be measured."""
    summary = Summary.empty(2)
    found = hashes(records, 3)
    summary.add_block(Block(found, np.arange(records) % 2, [b""] * records))
    summary.add_sample(SampledRecord(h, b"", 1) for h in found.tolist())
    return summary


@pytest.mark.parametrize("records", [1, 20, 500])
def test_a_sample_that_lacks_or_repeats_a_record_is_noticed(records):
    summary = _sampled(records)
    summary.check_sample()
    Summary.empty(2).check_sample()
    sample = summary.sample
    others = sorted(hashes(records, 3).tolist())[len(sample) :]
    more = [SampledRecord(h, b"", 1) for h in others[:1]]
    for wrong in (
        sample[1:] + more,
        [sample[0], *sample][: len(sample)] if more else [*sample, sample[0]],
    ):
        summary.sample = wrong
        with pytest.raises(DataError, match="lost or repeated records to measure"):
            summary.check_sample()
