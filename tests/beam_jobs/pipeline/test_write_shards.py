"""WriteShards, and the checks that nothing was lost."""

import re
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

import readers
from beam_jobs import DataError, Feature, JobError, Schema, UsageError, WriteShards
from beam_jobs.columns import Ragged
from beam_jobs.dataset.generations import begun
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.reconcile import reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import check_records
from beam_jobs.errors import named_as_arguments
from beam_jobs.jobs.passes import Learned
from beam_jobs.plan.shards import Plan, SplitPlan
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import frame_checksums, frame_lengths, pack_reject, unpack_reject
from beam_jobs.records.rejects import Reject
from beam_jobs.records.statistics import SplitStatistics, Statistics
from beam_jobs.writing import commit
from readers.format.manifest import File, Manifest
from readers.format.splits import Shard, Split
from readers.format.tfrecord import frame
from tests.support.datasets import crc32c, folder_of, records_of, rejects_of

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


def test_a_record_is_found_by_its_key_whatever_the_seed(tmp_path):
    for seed, options in ((7, {}), (0, {"seed": 7})):
        directory = tmp_path / str(seed)
        write(map(record, range(30)), directory, num_shards=4, seed=seed, options=options)
        source = readers.RecordSource(directory)
        assert [source[source.find(f"r{n}")]["name"] for n in range(30)] == [
            b"n%d" % n for n in range(30)
        ]


def test_records_that_do_not_fit_the_schema_are_rejected_and_the_rest_is_balanced(tmp_path, caplog):
    records = [record(n) for n in range(50)]
    records += [(f"bad{n}", {**record(1)[1], "x": np.ones(3)}) for n in range(7)]
    manifest = write(records, tmp_path, num_shards=5, max_rejects="all")
    assert [shard.records for shard in manifest.splits["train"].shards] == [10] * 5
    assert manifest.rejected == 7
    (warning,) = [record for record in caplog.records if record.name == "beam_jobs"]
    assert warning.levelname == "WARNING"
    assert warning.getMessage() == (
        "7 of 57 records were rejected and not written; the first: bad0: feature 'x': "
        f"expected float32 [None, 2], got float64 [3]; all are listed in "
        f"{folder_of(tmp_path)}/rejects/"
    )
    assert sorted(rejects_of(tmp_path)) == [f"bad{n}" for n in range(7)]


def failure(records, directory, **arguments):
    with pytest.raises(JobError) as caught:
        write(records, directory, **arguments)
    assert not (directory / "generations").exists()
    assert "<" not in str(caught.value) and "--" not in str(caught.value)
    return caught.value


def test_a_repeated_key_is_refused(tmp_path):
    error = failure([record(1), record(2), record(1)], tmp_path / "out")
    assert isinstance(error, UsageError)
    assert re.fullmatch(
        r"(duplicate key 'r1'|two records have the same key): every record needs a unique key; "
        r"two elements \(key, features\) have the same one",
        str(error),
    )


def test_a_directory_with_a_dataset_is_refused_before_the_pipeline_runs(tmp_path):
    (tmp_path / "generations").mkdir()
    manifest = Manifest(SCHEMA, {"train": Split(())}).to_bytes()
    (tmp_path / "generations/1.json").write_bytes(manifest)
    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([record(1)])
    message = f"directory {tmp_path}: a dataset is here already; add overwrite=True to replace it, or append=True to add to it"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        pairs | WriteShards(tmp_path, SCHEMA)
    pairs | "Overwrite" >> WriteShards(tmp_path, SCHEMA, overwrite=True)


def test_a_directory_to_which_a_job_writes_is_refused_before_the_pipeline_runs(tmp_path):
    output = replace(WriteShards(tmp_path, SCHEMA)._output, run="other")
    pairs = beam.Pipeline() | beam.Create([record(1)])
    message = f"^directory {tmp_path}: another job is writing here"
    with leased(output, "images", keeps=False), pytest.raises(UsageError, match=message):
        pairs | WriteShards(tmp_path, SCHEMA, overwrite=True)
    pairs | "Later" >> WriteShards(tmp_path, SCHEMA)


def test_the_next_run_keeps_the_shards_of_one_that_failed_and_overwriting_makes_new_ones(
    tmp_path, monkeypatch
):
    def fail(*_):
        raise DataError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(commit, "commit", fail)
        error = failure(map(record, range(20)), tmp_path, num_shards=2)
    assert str(error) == "the disk is gone"
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tfrecord")}
    first = write(map(record, reversed(range(20))), tmp_path, num_shards=2)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.tfrecord")} == written
    assert [shard.records for shard in first.shards] == [10, 10]
    assert first.generation == 1

    # The same sizes, and other contents.
    changed = ("r7", {**record(7)[1], "name": "N7"})
    records = [changed if n == 7 else record(n) for n in range(20)]
    second = write(records, tmp_path, num_shards=2, overwrite=True)
    assert second.generation == 2
    assert records_of(tmp_path)["r7"]["name"].item() == b"N7"
    assert not set(written) & set(tmp_path.rglob("*.tfrecord"))
    assert second.job != first.job


def test_options_of_beam_keep_their_names():
    pattern = "^directory x: give --s3_access_key_id or seed$"
    with pytest.raises(UsageError, match=pattern), named_as_arguments():
        raise UsageError("--output x: give --s3_access_key_id or --seed")


def test_a_record_that_does_not_fit_the_schema_fails_with_the_reason_and_the_cure(tmp_path):
    bad = ("bad", {**record(1)[1], "x": np.ones((1, 2))})
    error = failure([record(1), bad], tmp_path / "out")
    assert isinstance(error, DataError)
    assert str(error) == (
        "bad: feature 'x': expected float32 [None, 2], got float64 [1, 2]; fix it, or pass "
        "max_rejects=0.01, say, to list such inputs in rejects/ and write the rest"
    )


def test_an_empty_pcollection_is_refused(tmp_path):
    assert "the inputs have no records" in failure([], tmp_path / "out").message


def test_elements_that_are_not_pairs_are_refused(tmp_path):
    assert "(key, features)" in failure([{"x": 1}], tmp_path / "out").message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"directory": ""}, "directory is empty: name a directory"),
        ({"directory": "a--b/*"}, "directory .*/a--b/*: expected a path without"),
        ({"num_shards": "val=1"}, "num_shards val=1: no split 'val', the splits are train"),
        ({"splits": {"train": 0.5}}, "splits train=0.5: the shares add up to 0.5, not 1"),
        ({"splits": "train=1"}, "splits 'train=1': expected a dict such as {'train': 0.8,"),
        ({"label_names": "cat"}, "label_names 'cat': expected texts, such as"),
        ({"max_rejects": -1}, "max_rejects -1: expected a number such as 20, a share"),
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
    packed = [pack_reject(body) if body is reject else body + b"rowk\x80" for body in bodies]
    payloads = Ragged.of(packed)
    lengths = frame_lengths(payloads).tolist()
    assert lengths == [16, 20, 0, 316]
    assert unpack_reject(payloads[2]) == reject
    checksums = frame_checksums(payloads, np.array(lengths))
    for row in (0, 1, 3):
        assert checksums[row].tobytes() == bodies[row][-4:]
        assert payloads[row][: lengths[row]] == bodies[row]
        assert payloads[row][lengths[row] :] == b"rowk\x80"
    assert frame_lengths(Ragged.of([])).tolist() == []


def test_two_keys_with_one_hash_are_not_duplicates():
    check_records(np.array([5, 5], np.uint64), [b"a", b"b"].__getitem__, "s", 2)


NAMES = ("train", "val")
FOLDER = "0123abcd"


def result(index, records, rejected=0, split=0, size=10):
    name = f"{NAMES[split]}-{index:05d}-of-00002"
    shard = Shard(f"{FOLDER}/{name}.tfrecord", records, size, 0, 7, 0, 0)
    if not rejected:
        return ShardResult(split, index, shard, 0, None)
    first, listed = Reject("k", "decode", "why"), f"{FOLDER}/rejects/{name}.jsonl"
    return ShardResult(split, index, shard, rejected, first, rejects=listed)


def plan_of(*records):
    return Plan(tuple(SplitPlan(n, 0, 1, 2, np.array([7], np.uint64)) for n in records), FOLDER)


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
        ShardResult(0, 0, Shard("s", 0, 0, 0, 0, 0, 0), 6, Reject("m", "decode", "why m")),
        ShardResult(0, 1, Shard("t", 0, 0, 0, 0, 0, 0), 4, Reject("b", "decode", "why b")),
    ]
    with pytest.raises(DataError, match=r"all 10 records were rejected.*; the first: b: why b"):
        reconcile(PLAN, results, {}, ("train",))


def test_options_that_are_not_json_are_refused_when_the_transform_is_made(tmp_path):
    for value in (float("nan"), object()):
        with pytest.raises(UsageError, match="options: expected JSON values"):
            WriteShards(str(tmp_path), SCHEMA, options={"x": value})


def statistics_of(count):
    statistics = Statistics(SCHEMA)
    statistics.records = count
    return SplitStatistics.of(0, statistics)


def commit_of(output, results, changed, count, vocabulary=()):
    """The commit of a job without class names."""
    statistics, summary = statistics_of(count), Summary.empty(1)
    learned = Learned(SCHEMA, {}, vocabulary)
    return commit.commit_dataset(
        output, learned, summary, PLAN.pack(), statistics, results, changed
    )


def begun_at(directory):
    return begun(WriteShards(str(directory), SCHEMA, max_rejects="all")._output)


def files_of(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def write_files(directory, results):
    """Writes files of the sizes that results state."""
    for done in results:
        sizes = {done.shard.path: done.shard.bytes, f"{done.shard.path}.index": 7, done.rejects: 1}
        for name, size in sizes.items():
            if name:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / name).write_bytes(bytes(size))


def test_no_manifest_is_written_over_shards_that_are_not_on_disk(tmp_path):
    output = begun_at(tmp_path)
    results, changed = [result(0, 6), result(1, 4)], [result(0, 5), result(1, 5)]
    with pytest.raises(DataError, match="found no file"):
        commit_of(output, results, changed, 10)
    write_files(tmp_path, changed)
    with pytest.raises(DataError, match="shards of 4 to 6 records"):
        commit_of(output, results, [], 10)
    assert not (tmp_path / "manifest.json").exists()
    assert not (tmp_path / "generations").exists()
    manifest = commit_of(output, results, changed, 10)
    assert Manifest.read(str(tmp_path)) == manifest
    assert [shard.records for shard in manifest.splits["train"].shards] == [5, 5]


def test_the_commit_leaves_only_the_files_that_the_manifest_names(tmp_path):
    results = [result(0, 5), result(1, 4, 1)]
    changed = Shard(f"{FOLDER}/train-00000-of-00002.00ff00ff.tfrecord", 5, 10, 0, 7, 0, 0)
    write_files(tmp_path, results)
    mine = files_of(tmp_path)
    write_files(tmp_path, [ShardResult(0, 0, changed, 0, None)])
    for name in ("tokenizer.json", "train-00000-of-00002.tfrecord.done"):
        (tmp_path / FOLDER / name).write_bytes(b"left")
    manifest = commit_of(begun_at(tmp_path), results, [], 9, vocabulary=(b"", b"[UNK]", b"one"))
    name = f"{FOLDER}/vocabulary.txt"
    assert manifest.paths == mine | {name}
    assert files_of(tmp_path) == mine | {name, "manifest.json", "generations/1.json"}
    assert manifest.files == {"vocabulary.txt": File(name, crc32c((tmp_path / name).read_bytes()))}
