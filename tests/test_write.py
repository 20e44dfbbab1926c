"""WriteShards on anybody's PCollection, and the checks that nothing was lost."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from beam_jobs import DataError, Feature, Schema, UsageError, WriteShards
from beam_jobs.assign import Plan, SplitPlan
from beam_jobs.commit import _Commit, check_sizes, reconcile
from beam_jobs.encode import pack_record, unpack_record
from beam_jobs.errors import find_job_error
from beam_jobs.rejects import Reject
from beam_jobs.shard_writer import ShardResult, check_records
from readers.format.example import Decoder
from readers.format.manifest import Manifest, Shard
from readers.format.tfrecord import read_records

SCHEMA = Schema(
    {
        "x": Feature("float32", (None, 2)),
        "name": Feature("string"),
        "parts": Feature("int16", (None, None), "sequence"),
        "key": Feature("string"),
    }
)


def record(n):
    parts = [np.arange(k, dtype=np.int16) for k in range(n % 4)]
    return f"r{n}", {"x": np.full((n % 5, 2), n, np.float32), "name": f"n{n}", "parts": parts}


def write(records, directory, **arguments):
    with TestPipeline() as pipeline:
        pairs = pipeline | beam.Create(records, reshuffle=False)
        written = pairs | WriteShards(str(directory), SCHEMA, **arguments)
        assert_that(written | beam.Map(type), equal_to([Manifest]))
    return Manifest.read(str(directory))


def read(directory, split="train"):
    decoder = Decoder(SCHEMA)
    for shard in Manifest.read(str(directory)).splits[split].shards:
        with (directory / shard.file).open("rb") as file:
            for _, data in read_records(file, shard.file):
                yield decoder.decode(data)


def test_every_record_of_a_pcollection_comes_back_in_balanced_shards(tmp_path):
    manifest = write(map(record, range(103)), tmp_path, num_shards=8)
    sizes = [shard.records for shard in manifest.splits["train"].shards]
    assert sorted(sizes) == [12] + [13] * 7
    found = {r["key"].item().decode(): r for r in read(tmp_path)}
    assert len(found) == 103
    for n in range(103):
        key, expected = record(n)
        np.testing.assert_array_equal(found[key]["x"], expected["x"])
        assert found[key]["name"].item().decode() == expected["name"]
        assert len(found[key]["parts"]) == len(expected["parts"])


def test_the_order_of_the_pcollection_does_not_change_a_byte(tmp_path):
    records = [record(n) for n in range(40)]
    for name, given in (("a", records), ("b", records[::-1])):
        write(given, tmp_path / name, num_shards=3, splits={"train": 0.5, "val": 0.5}, seed=4)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_records_that_do_not_fit_the_schema_are_rejects_and_the_rest_is_balanced(tmp_path):
    records = [record(n) for n in range(50)]
    records += [(f"bad{n}", {**record(1)[1], "x": np.ones(3)}) for n in range(7)]
    manifest = write(records, tmp_path, num_shards=5)
    assert [shard.records for shard in manifest.splits["train"].shards] == [10] * 5
    assert manifest.rejected == 7


def failure(records, directory, **arguments):
    with pytest.raises(Exception) as caught:
        write(records, directory, **arguments)
    assert not (directory / "manifest.json").exists()
    found = find_job_error(caught.value)
    assert found is not None, caught.value
    return found


def test_a_key_given_twice_is_refused(tmp_path):
    error = failure([record(1), record(2), record(1)], tmp_path / "out")
    assert isinstance(error, UsageError) and "duplicate key 'r1'" in error.message


def test_on_reject_fail_stops_with_the_reason(tmp_path):
    bad = ("bad", {**record(1)[1], "x": np.ones(3)})
    error = failure([record(1), bad], tmp_path / "out", on_reject="fail")
    assert isinstance(error, DataError)
    assert "bad: feature 'x': expected float32 [None, 2], got float64 [3]" in error.message


def test_an_empty_pcollection_is_refused(tmp_path):
    assert "hold no record" in failure([], tmp_path / "out").message


def test_elements_that_are_no_pairs_are_refused(tmp_path):
    assert "(key, features)" in failure([{"x": 1}], tmp_path / "out").message


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_shards": 0},
        {"shard_size": "0"},
        {"splits": {"train": 0.5}},
        {"on_reject": "ask"},
        {"schema": Schema({"key": Feature("int64")})},
    ],
)
def test_wrong_arguments_are_refused_when_the_transform_is_made(tmp_path, arguments):
    with pytest.raises(UsageError):
        WriteShards(str(tmp_path), **{"schema": SCHEMA, **arguments})


def test_a_payload_holds_a_record_or_the_reason_why_there_is_none():
    assert unpack_record(pack_record("k\udc80", b"body")) == (b"k\x80", b"body")
    reject = Reject.of("k\udc80", "read", "why")
    assert unpack_record(pack_record("k\udc80", reject)) == (b"k\x80", reject)


def test_a_shard_that_gets_too_few_or_too_many_records_fails_with_the_numbers():
    hashes = np.array([1, 2, 3], np.uint64)
    check_records(hashes, [b"a", b"b", b"c"], "s", 3)
    for expected in (2, 4):
        with pytest.raises(DataError, match=f"handed over 3 of {expected} records"):
            check_records(hashes, [b"a", b"b", b"c"], "s", expected)


def test_two_keys_with_one_hash_are_not_duplicates():
    check_records(np.array([5, 5], np.uint64), [b"a", b"b"], "s", 2)


def result(index, records, rejected=0, split=0):
    shard = Shard(f"train-{index:05d}-of-00002.tfrecord", records, 10, 0)
    first = Reject("k", "decode", "why") if rejected else None
    return ShardResult(split, index, shard, 0, rejected, first)


PLAN = Plan((SplitPlan(10, 0, 2, np.array([7], np.uint64)),))


def test_reconciliation_accepts_found_equals_written_plus_rejected():
    ((shards, rejected),) = reconcile(PLAN, [result(1, 5), result(0, 4, 1)], ("train",))
    assert [shard.records for shard in shards] == [4, 5]
    assert rejected == 1


def test_a_result_reported_twice_counts_once():
    reconcile(PLAN, [result(0, 5), result(1, 5), result(1, 5)], ("train",))


@pytest.mark.parametrize(
    "results", [[result(0, 5)], [result(0, 5), result(1, 4)], [result(0, 5), result(1, 6)], []]
)
def test_reconciliation_fails_with_the_numbers_when_anything_is_missing(results):
    with pytest.raises(DataError, match=r"split train: found 10 records, written \d+, rejected 0"):
        reconcile(PLAN, results, ("train",))


def test_a_shard_that_is_not_there_or_has_another_size_is_noticed(tmp_path):
    shard = Shard("train-00000-of-00001.tfrecord", 1, 4, 0)
    with pytest.raises(DataError, match="found no file"):
        check_sizes(str(tmp_path), [shard])
    (tmp_path / shard.file).write_bytes(b"123")
    with pytest.raises(DataError, match="written with 4 bytes, found 3"):
        check_sizes(str(tmp_path), [shard])
    (tmp_path / shard.file).write_bytes(b"1234")
    check_sizes(str(tmp_path), [shard])


def test_options_that_json_cannot_hold_are_refused_when_the_transform_is_made(tmp_path):
    for value in (float("nan"), object()):
        with pytest.raises(UsageError, match="options: expected JSON values"):
            WriteShards(str(tmp_path), SCHEMA, options={"x": value})


def test_windows_do_not_divide_a_dataset(tmp_path):
    from apache_beam.transforms.window import FixedWindows, TimestampedValue

    with TestPipeline() as pipeline:
        (
            pipeline
            | beam.Create([TimestampedValue(record(n), 100 * n) for n in range(20)])
            | beam.WindowInto(FixedWindows(60))
            | WriteShards(str(tmp_path), SCHEMA, num_shards=2)
        )
    assert Manifest.read(str(tmp_path)).splits["train"].records == 20


def test_no_manifest_is_written_over_shards_that_are_not_on_disk(tmp_path):
    output = WriteShards(str(tmp_path), SCHEMA)._output
    results = [result(0, 5), result(1, 5)]
    commit = _Commit(output).process(None, PLAN.pack(), results, [], (), ())
    with pytest.raises(DataError, match="found no file"):
        next(commit)
    assert not (tmp_path / "manifest.json").exists()
    for done in results:
        (tmp_path / done.shard.file).write_bytes(bytes(done.shard.bytes))
    (manifest,) = _Commit(output).process(None, PLAN.pack(), results, [], (), ())
    assert Manifest.read(str(tmp_path)) == manifest
