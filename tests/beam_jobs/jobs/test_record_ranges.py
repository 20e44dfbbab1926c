"""Large TFRecord files that are cut by bytes: the records of the ranges are those of the whole file."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.jobs.reshard import record_ranges
from beam_jobs.jobs.reshard.examples import batches_of
from beam_jobs.jobs.reshard.record_ranges import RANGE_BYTES
from beam_jobs.jobs.reshard.reshard_job import ReshardJob
from beam_jobs.sources.chunks import Chunk, Task, byte_ranges, numbered_chunks
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source
from readers.format.tfrecord import frame

quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

RECORDS = st.lists(
    st.one_of(st.binary(max_size=40), st.just(bytes(40)), st.just(frame(b"in") * 2)), max_size=40
)


def job_of(root):
    return ReshardJob(Inputs((f"{root}/**",), str(root)))


def found_in(job, chunks):
    """The records of some chunks, by number, with whether they are good; and the broken places."""
    found, broken = {}, []
    for _, batch in batches_of(job, Task.of(list(chunks))):
        starts = batch.stops - batch.lengths
        for row, (start, stop) in enumerate(zip(starts, batch.stops, strict=True)):
            assert batch.first + row not in found
            found[batch.first + row] = batch.data[start:stop].tobytes(), bool(batch.good[row])
        broken += batch.broken
    return found, broken


def compare(root, data, size):
    """Reads a file in ranges and whole; returns how many chunks have records."""
    (root / "a.tfrecord").write_bytes(data)
    job, source = job_of(root), Source("a.tfrecord", len(data))
    counts = job.range_counter()(Task.of(list(byte_ranges(source, size))))
    chunks = list(numbered_chunks(reversed(counts)))
    assert len(chunks) == len(counts)
    whole = found_in(job, [Chunk(source, 0, 0, 1, len(data))])
    assert found_in(job, chunks) == whole
    return sum(not chunk.is_empty for chunk in chunks)


@given(RECORDS.filter(bool), st.integers(1, 300), st.data())
@quick
def test_the_ranges_of_a_file_give_the_records_and_errors_of_the_whole(
    tmp_path, records, size, draw
):
    data = bytearray(b"".join(map(frame, records)))
    for _ in range(draw.draw(st.integers(0, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    cut = draw.draw(st.integers(0, 20))
    compare(tmp_path, bytes(data[: len(data) - cut]) or b"x", size)


def test_records_of_zeros_are_not_taken_for_headers(tmp_path, monkeypatch):
    headers = []
    checked = record_ranges.header_error
    monkeypatch.setattr(
        record_ranges, "header_error", lambda h, limit: headers.append(h) or checked(h, limit)
    )
    assert compare(tmp_path, frame(bytes(300_000)) * 4, 50_000) == 4
    assert len(headers) < 50


@pytest.mark.parametrize("inner", [3, 4000])
def test_records_that_hold_records_are_read_from_the_front(tmp_path, inner):
    data = b"".join(frame(frame(b"x" * 50) * inner) for _ in range(6))
    compare(tmp_path, data, max(len(data) // 20, 1))


def test_compressed_files_are_read_from_their_front(tmp_path):
    rng = np.random.default_rng(0)
    data = gzip.compress(b"".join(frame(rng.bytes(500)) for _ in range(500)))
    assert compare(tmp_path, data, 20_000) == 1


def test_a_range_that_cannot_be_read_makes_the_whole_file_a_chunk(tmp_path):
    counts = job_of(tmp_path).range_counter()(Task.of(list(byte_ranges(Source("a", 100), 30))))
    assert all(count.error for count in counts)
    whole, *rest = numbered_chunks(counts)
    assert (whole.start, whole.end, whole.first, whole.size) == (0, 0, 1, 100)
    assert len(rest) == 3
    assert all(chunk.is_empty for chunk in rest)


def test_ranges_that_do_not_follow_each_other_make_the_whole_file_a_chunk(tmp_path):
    (tmp_path / "a").write_bytes(frame(b"x" * 14) * 4)
    ranges = Task.of(list(byte_ranges(Source("a", 120), 60)))
    first, second = job_of(tmp_path).range_counter()(ranges)
    assert [chunk.end for chunk in numbered_chunks([first, second])] == [60, 120]
    whole, rest = numbered_chunks([first, second._replace(begin=61)])
    assert (whole.start, whole.end, rest.is_empty) == (0, 0, True)


def test_only_large_files_are_cut(tmp_path):
    job = job_of(tmp_path)
    for size, count in ((1, 1), (2 * RANGE_BYTES, 1), (2 * RANGE_BYTES + 1, 3)):
        chunks = list(job.chunks(Source("a", size)))
        assert len(chunks) == count
        assert bool(chunks[0].first) == (count == 1)
    assert len(list(job.chunks(Source("a", 1 << 40, error="bad")))) == 1
