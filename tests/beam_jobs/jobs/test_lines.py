from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.errors import DataError
from beam_jobs.jobs.job import count_ranges
from beam_jobs.jobs.text.text_reader import count_lines
from beam_jobs.sources.chunks import Task, byte_ranges, numbered_chunks
from beam_jobs.sources.rows import numbered_lines
from beam_jobs.sources.source import Source


@dataclass(frozen=True)
class Held:
    """Inputs of one file in memory, which cannot be read from some byte on."""

    data: bytes
    broken_from: int = 1 << 60

    def range_reads(self, _):
        return ()

    def stream(self, _):
        return Breaking(self.data, self.broken_from)


class Breaking(io.BytesIO):
    def __init__(self, data, broken_from):
        super().__init__(data)
        self._broken_from = broken_from

    def read(self, size=-1):
        if self.tell() + size > self._broken_from:
            raise OSError("the disk failed")
        return super().read(size)


def counts_of(data, size, broken_from=1 << 60):
    ranges = Task.of(list(byte_ranges(Source("a.txt", len(data)), size)))
    return count_ranges(Held(data, broken_from), count_lines, ranges)


def lines_of(data, chunks):
    return [
        line
        for chunk in chunks
        for line in numbered_lines(io.BytesIO(data), chunk.start, chunk.end, chunk.first)
    ]


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n"]), min_size=1).map(b"".join), st.data()
)
def test_numbered_chunks_hold_the_lines_of_the_file(data, draw):
    size = draw.draw(st.integers(1, len(data) + 1))
    counts = draw.draw(st.permutations(counts_of(data, size)))
    chunks = list(numbered_chunks(counts))
    assert len(chunks) == len(counts)
    full = [chunk for chunk in chunks if not chunk.is_empty]
    assert [chunk.start for chunk in full] == [0, *(chunk.end for chunk in full[:-1])]
    assert sum(chunk.size for chunk in full) == len(data)
    assert lines_of(data, full) == list(numbered_lines(io.BytesIO(data)))


def test_a_file_with_a_range_that_cannot_be_read_is_read_from_its_front():
    data = b"one\ntwo\nthree\nfour\n"
    whole, *rest = numbered_chunks(counts_of(data, 6, 12))
    assert (whole.start, whole.end, whole.first, whole.size) == (0, 0, 1, len(data))
    assert [chunk.is_empty for chunk in rest] == [True] * 3


def test_a_range_that_a_runner_loses_or_repeats_fails_the_job():
    counts = counts_of(b"one\ntwo\nthree\n", 5)
    assert len(counts) == 3
    for changed in (counts[1:], [counts[0], counts[2]], counts[:2], [*counts, counts[1]]):
        with pytest.raises(DataError, match=r"lost or repeated a range of a\.txt"):
            list(numbered_chunks(changed))
