from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError, UsageError
from beam_jobs.plan import strata as planned
from beam_jobs.plan.strata import Histogram, LabelCounts, LabelHashes
from beam_jobs.records.pieces import merged


def block_of(labels: list[str], seed: int = 0) -> LabelHashes:
    generator = np.random.default_rng(seed)
    return LabelHashes.of(labels, generator.integers(0, 2**64, len(labels), np.uint64))


def labels_of(block: LabelHashes) -> list[str]:
    return [block.names[code] for code in block.codes.tolist()]


def test_labels_without_records_are_no_records():
    block = LabelHashes(("a", "b", "c"), np.array([1, 1]), np.array([5, 6], np.uint64))
    counts = LabelCounts().add(block)
    assert +counts.counts == Counter(b=2)
    assert {label: hashes.tolist() for label, hashes in block.by_label()} == {"b": [5, 6]}


def test_too_many_labels_are_refused_when_they_are_counted(monkeypatch):
    monkeypatch.setattr("beam_jobs.plan.summary.MAX_LABELS", 2)
    with pytest.raises(UsageError, match="more than 2 different labels"):
        LabelCounts().add(block_of(["a", "b", "c"]))


def test_a_label_that_was_not_counted_has_no_bins():
    with pytest.raises(DataError, match="label 'b' was not seen when splits were planned"):
        LabelCounts(Counter(a=1)).bins("b", np.array([1], np.uint64))


@given(st.lists(st.sampled_from("abé"), min_size=1, max_size=300), st.sampled_from([1, 2, 50]))
def test_histograms_count_the_top_bits_and_travel_in_pieces(labels, room):
    one, other = block_of(labels), block_of(labels, 1)
    counts = LabelCounts().add(one)
    counts.merge(LabelCounts().add(other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "_BIN_RECORDS", room)
        patch.setattr(planned, "_SLICE", 4)
        histogram = Histogram().add(one, counts).add(other, counts)
        again = merged([piece for _, piece in histogram.pieces()], Histogram)
        for label, count in Counter(labels).items():
            bits = (2 * count // room).bit_length()
            hashes = [
                hash_
                for block in (one, other)
                for own, hash_ in zip(labels_of(block), block.hashes.tolist(), strict=True)
                if own == label
            ]
            expected = np.bincount([hash_ >> 64 - bits for hash_ in hashes], minlength=1 << bits)
            assert histogram.of(label).tolist() == again.of(label).tolist() == expected.tolist()
    assert Histogram().of("a").tolist() == [0]
