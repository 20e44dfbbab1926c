"""WriteShards, and the checks that nothing was lost."""

import re

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from beam_jobs import DataError, Feature, JobError, Schema, UsageError, WriteShards
from beam_jobs.dataset.directory import MARKER
from beam_jobs.dataset.reconcile import check_files, reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import check_records
from beam_jobs.pipeline.commit import _commit
from beam_jobs.pipeline.write_shards import _cure, _named_as_arguments
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import frame_lengths, pack_record, unpack_reject
from beam_jobs.records.ragged import Ragged
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import SplitStatistics, Statistics
from beam_jobs.storage.atomic import list_files
from readers.format.encode import Encoder
from readers.format.manifest import Manifest
from readers.format.splits import Shard
from readers.format.tfrecord import frame
from tests.support.datasets import records_of

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


def test_every_record_is_written_to_balanced_shards(tmp_path):
    manifest = write(map(record, range(103)), tmp_path, num_shards=8)
    sizes = [shard.records for shard in manifest.splits["train"].shards]
    assert sorted(sizes) == [12] + [13] * 7
    found = records_of(tmp_path)
    assert len(found) == 103
    for n in range(103):
        key, expected = record(n)
        np.testing.assert_array_equal(found[key]["x"], expected["x"])
        assert found[key]["name"].item().decode() == expected["name"]
        assert len(found[key]["parts"]) == len(expected["parts"])


def test_records_that_do_not_fit_the_schema_are_rejected_and_the_rest_is_balanced(tmp_path, caplog):
    records = [record(n) for n in range(50)]
    records += [(f"bad{n}", {**record(1)[1], "x": np.ones(3)}) for n in range(7)]
    manifest = write(records, tmp_path, num_shards=5, on_reject="skip")
    assert [shard.records for shard in manifest.splits["train"].shards] == [10] * 5
    assert manifest.rejected == 7
    (warning,) = [record for record in caplog.records if record.name == "beam_jobs"]
    assert warning.levelname == "WARNING"
    assert warning.getMessage() == (
        "7 of 57 records do not fit the schema and were not written; the first: bad0: feature 'x': "
        f"expected float32 [None, 2], got float64 [3]; all are listed in {tmp_path}/rejects/"
    )


def failure(records, directory, **arguments):
    with pytest.raises(JobError) as caught:
        write(records, directory, **arguments)
    assert not (directory / "manifest.json").exists()
    assert "<" not in str(caught.value) and "--" not in str(caught.value)
    return caught.value


def test_a_repeated_key_is_refused(tmp_path):
    error = failure([record(1), record(2), record(1)], tmp_path / "out")
    assert isinstance(error, UsageError)
    assert re.fullmatch(
        r"(duplicate key 'r1'|two records have the same key): every record needs a key of its own; "
        r"two elements \(key, features\) of the PCollection have the same one",
        str(error),
    )


def test_a_directory_with_a_dataset_is_refused_before_the_pipeline_runs(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([record(1)])
    message = f"directory {tmp_path}: a dataset is here already; add overwrite=True to replace it"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        pairs | WriteShards(tmp_path, SCHEMA)
    pairs | "Overwrite" >> WriteShards(tmp_path, SCHEMA, overwrite=True)


def test_options_of_beam_keep_their_names():
    pattern = "^directory x: give --s3_access_key_id or seed$"
    with pytest.raises(UsageError, match=pattern), _named_as_arguments():
        raise UsageError("--output x: give --s3_access_key_id or --seed")


def test_a_record_that_does_not_fit_the_schema_fails_with_the_reason_and_the_cure(tmp_path):
    bad = ("bad", {**record(1)[1], "x": np.ones((1, 2))})
    error = failure([record(1), bad], tmp_path / "out")
    assert isinstance(error, DataError)
    assert str(error) == (
        "bad: feature 'x': expected float32 [None, 2], got float64 [1, 2]; convert it with "
        "value.astype(np.float32), or pass on_reject='skip' to list such records in rejects/ and "
        "write the others"
    )


@pytest.mark.parametrize(
    ("dtype", "value", "cure"),
    [
        ("float32", np.zeros(2), "convert it with value.astype(np.float32), or"),
        ("int64", np.zeros(2, np.uint8), "convert it with value.astype(np.int64), or"),
        ("int64", np.zeros(2), "make it fit the schema, or"),  # Its fractions would be lost.
        ("float32", np.zeros(3, np.float32), "make it fit the schema, or"),
        ("float32", np.array(["a", "b"]), "make it fit the schema, or"),
        ("float32", np.zeros(2, "f4,f4"), "make it fit the schema, or"),
        ("float32", "text", "make it fit the schema, or"),
    ],
)
def test_the_cure_is_a_cast_if_only_the_dtype_differs_and_nothing_but_precision_is_lost(
    dtype, value, cure
):
    with pytest.raises(ValueError, match=r"^feature 'x': expected ") as caught:
        Encoder(Schema({"x": Feature(dtype, (2,))})).check({"x": value})
    assert _cure(str(caught.value)).startswith(cure)


def test_an_empty_pcollection_is_refused(tmp_path):
    assert "hold no record" in failure([], tmp_path / "out").message


def test_elements_that_are_not_pairs_are_refused(tmp_path):
    assert "(key, features)" in failure([{"x": 1}], tmp_path / "out").message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"directory": ""}, "directory is empty: name a directory"),
        ({"directory": "a--b/*"}, "directory .*/a--b/*: expected a path without"),
        ({"num_shards": "val=1"}, "num_shards val=1: no split 'val', splits has train"),
        ({"splits": {"train": 0.5}}, "splits train=0.5: the shares add up to 0.5, not 1"),
        ({"splits": "train=1"}, "splits 'train=1': expected a dict such as {'train': 0.8,"),
        ({"label_names": "cat"}, "label_names 'cat': expected texts, such as"),
        ({"on_reject": "ask"}, "on_reject='ask': expected 'skip' or 'fail'"),
        ({"schema": {"x": Feature("int64")}}, "schema {'x': .*: expected a Schema, such as"),
        (
            {"schema": Schema({"key": Feature("int64")})},
            "feature 'key' is int64 .*: expected string",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_words_of_python_when_the_transform_is_made(
    tmp_path, arguments, message
):
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(UsageError, match=f"^{pattern}"):
        WriteShards(**{"directory": tmp_path, "schema": SCHEMA, **arguments})


def test_a_payload_holds_a_record_or_a_reject():
    reject = Reject.of("k\udc80", "read", "why")
    bodies = [frame(b""), frame(b"body"), reject, frame(bytes(300))]
    payloads = Ragged.of([pack_record("k\udc80", body, b"row") for body in bodies])
    lengths = frame_lengths(payloads).tolist()
    assert lengths == [16, 20, 0, 316]
    assert unpack_reject(payloads[2]) == reject
    for row in (0, 1, 3):
        assert payloads[row][: lengths[row]] == bodies[row]
        assert payloads[row][lengths[row] :] == b"rowk\x80"
    assert frame_lengths(Ragged.of([])).tolist() == []


def test_two_keys_with_one_hash_are_not_duplicates():
    check_records(np.array([5, 5], np.uint64), [b"a", b"b"].__getitem__, "s", 2)


NAMES = ("train", "val")


def result(index, records, rejected=0, split=0, size=10):
    shard = Shard(f"{NAMES[split]}-{index:05d}-of-00002.tfrecord", records, size, 0, 7, 0)
    first = Reject("k", "decode", "why") if rejected else None
    return ShardResult(split, index, shard, rejected, first)


def plan_of(*records):
    return Plan(tuple(SplitPlan(n, 0, 1, 2, np.array([7], np.uint64)) for n in records))


PLAN = plan_of(10)


def test_reconciliation_sorts_the_results_of_every_split():
    a, b = [result(n, 5) for n in range(2)], [result(n, 3, split=1) for n in range(2)]
    found = reconcile(plan_of(10, 6), [b[1], a[1], b[0], a[0]], {1: 6, 0: 10}, NAMES)
    assert found == [a, b]


def test_the_last_of_several_results_for_a_shard_counts():
    before, after = [result(0, 6), result(1, 3, 1)], [result(0, 5), result(1, 4, 1)]
    assert reconcile(PLAN, before + after, {0: 9}, ("train",)) == [after]
    with pytest.raises(DataError, match="shards of 3 to 6 records, expected to differ by 1"):
        reconcile(PLAN, after + before, {0: 9}, ("train",))


@pytest.mark.parametrize(
    "results", [[result(0, 5)], [result(0, 5), result(1, 4)], [result(0, 5), result(1, 6)], []]
)
def test_reconciliation_fails_with_the_numbers_if_anything_is_missing(results):
    written = sum(r.shard.records for r in results)
    with pytest.raises(
        DataError, match=rf"split train: found 10 records, written {written}, rejected 0, {written}"
    ) as caught:
        reconcile(PLAN, results, {0: written}, ("train",))
    assert f"{len(results)} of 2 shards arrived" in caught.value.message


@pytest.mark.parametrize("counted", [{}, {0: 9}, {0: 11}, {1: 10}])
def test_records_missing_or_repeated_in_statistics_are_noticed(counted):
    with pytest.raises(DataError, match=rf"rejected 0, {counted.get(0, 0)} in the statistics"):
        reconcile(PLAN, [result(0, 5), result(1, 5)], counted, ("train",))


def test_a_job_with_only_rejects_fails_with_the_first():
    results = [
        ShardResult(0, 0, Shard("s", 0, 0, 0, 0, 0), 6, Reject("m", "decode", "why m")),
        ShardResult(0, 1, Shard("t", 0, 0, 0, 0, 0), 4, Reject("b", "decode", "why b")),
    ]
    with pytest.raises(DataError, match=r"all 10 records were rejected.*; the first: b: why b"):
        reconcile(PLAN, results, {}, ("train",))


def test_a_shard_or_index_of_another_size_is_noticed(tmp_path):
    def check(results):
        check_files(str(tmp_path), results, list_files(str(tmp_path)))

    written = result(0, 1, size=4)
    shard, index = tmp_path / written.shard.file, tmp_path / f"{written.shard.file}.index"
    shard.write_bytes(b"123")
    with pytest.raises(DataError, match="tfrecord: written with 4 bytes, found 3"):
        check([written])
    shard.write_bytes(b"1234")
    index.write_bytes(b"123456")
    with pytest.raises(DataError, match=r"tfrecord.index: written with 7 bytes, found 6"):
        check([written])
    index.write_bytes(b"1234567")
    check([written])
    check([ShardResult(0, 0, None, 3, Reject("k", "read", "why"))])


def test_options_that_are_not_json_are_refused_when_the_transform_is_made(tmp_path):
    for value in (float("nan"), object()):
        with pytest.raises(UsageError, match="options: expected JSON values"):
            WriteShards(str(tmp_path), SCHEMA, options={"x": value})


def statistics_of(count):
    statistics = Statistics(SCHEMA)
    statistics.records = count
    return SplitStatistics.of(0, statistics)


def commit_of(output, results, changed, count, schema=SCHEMA):
    """The commit of a job without class names and tokens."""
    statistics = statistics_of(count)
    return _commit(
        output, PLAN.pack(), results, changed, statistics, Summary.empty(1), {}, schema, (), ""
    )


def test_no_manifest_is_written_over_shards_that_are_not_on_disk(tmp_path):
    output = WriteShards(str(tmp_path), SCHEMA)._output
    results, changed = [result(0, 6), result(1, 4)], [result(0, 5), result(1, 5)]

    def commit(changed):
        return commit_of(output, results, changed, 10)

    with pytest.raises(DataError, match="found no file"):
        commit(changed)
    for done in changed:
        (tmp_path / done.shard.file).write_bytes(bytes(done.shard.bytes))
    with pytest.raises(DataError, match="index: written with 7 bytes, found no file"):
        commit(changed)
    for done in changed:
        (tmp_path / f"{done.shard.file}.index").write_bytes(bytes(done.shard.index_bytes))
    with pytest.raises(DataError, match="shards of 4 to 6 records"):
        commit([])
    assert not (tmp_path / "manifest.json").exists()
    manifest = commit(changed)
    assert Manifest.read(str(tmp_path)) == manifest
    assert [shard.records for shard in manifest.splits["train"].shards] == [5, 5]


def test_the_commit_leaves_only_the_files_of_the_dataset(tmp_path):
    output = WriteShards(str(tmp_path), SCHEMA)._output
    results = [result(0, 5), result(1, 4, 1)]
    mine = ["rejects/train-00001-of-00002.jsonl"]
    for done in results:
        mine += [done.shard.file, f"{done.shard.file}.index"]
    left = [
        "val-00002-of-00003.tfrecord",
        "train-00000-of-00003.tfrecord.index",
        MARKER,
        "vocabulary.txt",
        "tokenizer.json",
    ]
    left += ["rejects/train-00000-of-00002.jsonl", f".staging/{results[0].shard.file}.done"]
    for name in [*mine, *left]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(7 if name.endswith("index") else 10))
    commit_of(output, results, [], 9)
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {"manifest.json", *mine}
    assert not (tmp_path / ".staging").exists()
