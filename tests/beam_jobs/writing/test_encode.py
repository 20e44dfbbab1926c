"""Records on their way to runs: how long they wait in memory, and what a failed task leaves."""

import numpy as np
import pytest

from beam_jobs import DataError, Feature, Schema
from beam_jobs.dataset.generations import begun
from beam_jobs.dataset.output import output_of
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.writing.encode import RunEncoder
from beam_jobs.writing.inputs import InputEncoder, _Task


def output(tmp_path, schema, max_rejects=0):
    how = None, "1MiB", None, 0, max_rejects, False, None
    return begun(output_of(tmp_path / "out", schema, *how))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.bytes_])
def test_large_images_do_not_wait_for_others(tmp_path, kind):
    encoder = RunEncoder(output(tmp_path, Schema({"x": Feature("uint8", (None, None, 3), "png")})))
    for number in range(3):
        encoder.add(str(number), {"x": kind(b"\x89" * (1 << 20))})
    assert sum(len(block.hashes) for block in encoder.encoded.hashes) == 3


def test_arrays_of_an_array_do_not_wait_for_others(tmp_path):
    schema = Schema({"x": Feature("float32", (None, None), "sequence")})
    encoder, arrays = RunEncoder(output(tmp_path, schema)), np.empty(2, object)
    arrays[:] = [np.zeros(1 << 17, np.float32), np.zeros(1 << 18, np.float32)]
    encoder.add("a", {"x": arrays})
    assert len(encoder.encoded.hashes) == 1


def records(number):
    for n in range(300):
        yield {"x": number}
        if number == 1 and n == 280:
            raise ValueError("of this input")


def test_a_failed_task_leaves_nothing_to_the_next_one(tmp_path):
    """Not even the statistics of records that were encoded."""
    encoder = InputEncoder(
        output(tmp_path, Schema({"x": Feature("int64")})), records, None, None, False
    )
    tasks = [_Task.of(range(3), number, number + 1) for number in range(3)]
    encoder._work(*tasks[0])
    with pytest.raises(DataError, match="of this input"):
        encoder._work(*tasks[1])
    encoded, _ = encoder._work(*tasks[2])
    assert sum(len(block.hashes) for block in encoded.hashes) == 300
    assert [statistics.records for _, statistics in encoded.statistics] == [300]


def test_the_name_of_a_task_says_which_of_its_files_exist(tmp_path):
    files = [str(tmp_path / name) for name in "ab"]
    (tmp_path / "a").write_text("x")
    before = _Task.of(files, 0, 2).name
    (tmp_path / "a").rename(tmp_path / "b")
    assert _Task.of(files, 0, 2).name != before


def test_a_record_that_raises_anything_takes_no_other_with_it(tmp_path, monkeypatch):
    encode_all = RecordEncoder.encode_all

    def fails(encoder, splits, columns):
        if 7 in columns["x"]:
            raise TypeError("of a value")
        return encode_all(encoder, splits, columns)

    monkeypatch.setattr(RecordEncoder, "encode_all", fails)
    encoder = RunEncoder(output(tmp_path, Schema({"x": Feature("int64")}), "all"))
    for number in range(20):
        encoder.add(str(number), {"x": number})
    summary = encoder.finish().summary
    assert (summary.splits[0].records, summary.splits[0].rejected) == (19, 1)
    assert [(reject.key, reject.error) for reject in summary.rejects] == [("7", "of a value")]
