"""The two passes over TFRecord files, and the features that the records keep."""

from __future__ import annotations

import itertools
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from beam_jobs.cli.reshard import ReshardedDatasetFlags
from beam_jobs.dataset.output import Output
from beam_jobs.errors import JobError, UsageError
from beam_jobs.jobs.passes import Learned
from beam_jobs.jobs.reshard.example_passes import ReshardFirstPass, ReshardSecondPass
from beam_jobs.jobs.reshard.examples import single_values
from beam_jobs.jobs.reshard.manifests import InputSplits, manifests_in, read_schema, splits_of
from beam_jobs.jobs.reshard.record_fit import with_features
from beam_jobs.jobs.reshard.reshard_job import UNKNOWN_SCHEMA, ReshardJob, reshard_job
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.source import Source
from readers.format.encode.records import Encoder
from readers.format.manifest import File, Manifest
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.support.archives import tarred, zipped
from tests.support.datasets import (
    NUMBERS,
    files_of,
    flip,
    numbers,
    write_dataset,
    write_numbers,
)
from tests.support.images import encoded
from tests.support.plain import example, sequence_example, tensor, write_plain

ID = Schema({"id": Feature("int64")})


def job_of(*paths, schema="", keep=(), drop=()):
    return reshard_job(Inputs.of([str(path) for path in paths]), schema, keep, drop)


def task_of(job):
    sources = [source for pattern in job.inputs.patterns for source in job.sources(pattern)]
    return Task.of([Chunk(source, 0, 0, 1, source.size) for source in sources])


def rules_of(**placement):
    return SplitRules(Placement(0, **{"splits": Splits(), **placement}))


def first(job, rules=None):
    """The keys, the rejects, and the merged guess of the first pass."""
    passed = ReshardFirstPass(rules=rules or rules_of(), spec=job)
    keys, rejects, guess = [], [], SchemaGuess()
    for found in passed.found(task_of(job)):
        assert len(found.keys) == len(found.splits) == len(found.sizes) == len(found.labels)
        keys += found.keys
        rejects += found.rejects
        if found.learned:
            guess.merge(found.learned)
    return keys, rejects, guess


def second(job, schema, rules=None):
    """The (key, frame) pairs, rejects, late rejects and statistics of the second pass."""
    output = Output("", schema, (rules or rules_of()).placement, (0,))
    passed = ReshardSecondPass(output, Learned(schema, {}), job)
    counter = passed.counter()
    frames, rejects, late = [], [], []
    for records in passed.encoded(task_of(job), counter):
        frames += zip(records.keys, map(bytes, records.frames), strict=True)
        rejects += records.rejects
        late += [reject for reject, _ in records.late]
    return frames, rejects, late, dict(counter.statistics())


def schema_file(tmp_path, schema):
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_json()))
    return str(tmp_path / "schema.json")


def errors_of(rejects):
    return {reject.key: reject.error for reject in rejects}


# One record, intact or broken.


NAMES = st.sampled_from(["id", "name", "vector", "id/shape", ""])
VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(st.floats(width=32), max_size=4).map(lambda values: np.array(values, np.float32)),
    st.lists(st.binary(max_size=9), min_size=1, max_size=3),
)
EXAMPLES = st.dictionaries(NAMES, VALUES, max_size=4).map(lambda values: example(**values))


@given(EXAMPLES, st.sets(st.sampled_from(["id", "name", "vector"])))
@settings(max_examples=40)
def test_kept_features_are_unchanged_and_the_others_are_dropped(record, chosen):
    found = tf.train.Example.FromString(with_features(memoryview(record), chosen.__contains__))
    whole = tf.train.Example.FromString(record).features.feature
    kept = {name: whole[name] for name in whole if name in chosen}
    assert {n: found.features.feature[n] for n in found.features.feature} == kept


def test_features_of_sequence_examples_are_chosen_by_the_same_names():
    whole = sequence_example({"id": 3, "other": 3}, steps=[3, 3], gone=[3])
    kept = with_features(memoryview(whole), {"id", "steps"}.__contains__)
    expected = tf.train.SequenceExample.FromString(sequence_example({"id": 3}, steps=[3, 3]))
    assert tf.train.SequenceExample.FromString(kept) == expected


@pytest.mark.parametrize(
    "flags, expected",
    [
        ({"keep": ("x",)}, "x x/shape"),
        ({"keep": ("y",)}, "y"),
        ({"keep": ("y/shape", "id")}, "id y/shape"),
        ({"drop": ("x",)}, "id y y/shape"),
        ({"drop": ("y",)}, "id x x/shape y/shape"),
    ],
)
def test_shapes_are_dropped_with_their_feature_but_not_another_feature_named_like_them(
    tmp_path, flags, expected
):
    # x/shape holds the shapes of x, y/shape something else.
    shapes = [(2, 3), (1, 2), (3, 1)]
    records = [
        example(
            **{"id": n, "x": np.ones(a * b, np.float32), "x/shape": [a, b], "y": 1.5, "y/shape": 7}
        )
        for n, (a, b) in enumerate(shapes)
    ]
    job = job_of(write_plain(tmp_path / "a", records), **flags)
    frames, _, late, _ = second(job, job.schema_of(first(job)[2]))
    assert late == []
    for record, (_, framed) in zip(records, frames, strict=True):
        found = tf.train.Example.FromString(framed[12:-4]).features.feature
        whole = tf.train.Example.FromString(record).features.feature
        assert sorted(found) == expected.split()
        assert all(found[name] == whole[name] for name in found)


def test_features_outside_the_schema_are_kept_unless_keep_is_given(tmp_path):
    path = write_plain(tmp_path / "a", [example(id=1, other=2, more=3)])
    schema = Schema({"id": Feature("int64"), "more": Feature("int64")})
    file = schema_file(tmp_path, schema)
    for flags, expected in (({"drop": ("more",)}, ["id", "other"]), ({"keep": ("id",)}, ["id"])):
        job = job_of(path, schema=file, **flags)
        ((_, framed),) = second(job, job.schema_of(SchemaGuess()))[0]
        assert sorted(tf.train.Example.FromString(framed[12:-4]).features.feature) == expected


def test_sizes_are_those_of_the_features_that_are_kept(tmp_path):
    records = [example(id=n, image=bytes(5000)) for n in range(50)] + [b"no Example"]
    write_plain(tmp_path / "a", records)
    for drop, size in (((), len(records[0]) + 16), (("image",), len(example(id=1)) + 16)):
        passed = ReshardFirstPass(rules=rules_of(), spec=job_of(tmp_path / "a", drop=drop))
        (found,) = passed.found(task_of(passed.spec))
        assert abs(found.sizes[:50].mean() - size) < 0.1 * size


def test_only_a_single_text_or_integer_decides_a_split():
    record = memoryview(
        example(text="füñf", number=-7, texts=["a", "b"], numbers=[1, 2], real=1.5, raw=b"\xff")
    )
    wanted = {"text", "number", "texts", "numbers", "real", "missing"}
    assert single_values(record, wanted) == {"text": "füñf", "number": -7}
    assert single_values(record, {"raw"}) == {}


# Files in both passes.


def test_records_keep_their_bytes_and_both_passes_report_the_same_broken_ones(tmp_path):
    rng = np.random.default_rng(3)
    records = [
        example(id=n, vector=rng.normal(size=3).astype(np.float32), name=f"record {n}")
        for n in range(300)
    ]
    # Three bytes in a list of floats.
    cut_floats = b"\x0a\x0e\x0a\x0c\x0a\x01v\x12\x07\x12\x05\x0a\x03abc"
    framed = [frame(record) for record in records]
    framed[7] = frame(b"")
    framed[8] = frame(b"not an Example")
    framed[9] = frame(cut_floats)
    damaged = bytearray(framed[200])
    damaged[-1] ^= 1
    framed[200] = bytes(damaged)
    data = b"".join(framed)
    (tmp_path / "a.tfrecord").write_bytes(data + b"end")
    job = job_of(tmp_path / "a.tfrecord")
    keys, rejects, guess = first(job)
    starts = np.cumsum([0, *map(len, framed)]).tolist()
    assert errors_of(rejects) == {
        "a.tfrecord#8": f"byte {starts[7]:,}: not an Example: it is empty",
        "a.tfrecord#201": f"byte {starts[200]:,}: its checksum does not match its data",
        "a.tfrecord#301": f"byte {starts[300]:,}: cut off after 3 bytes",
    }
    # Whether a record is an Example, the second pass sees.
    assert keys == [f"a.tfrecord#{n + 1}".encode() for n in sorted({*range(300)} - {7, 200})]
    whole = sorted({*range(300)} - {7, 8, 9, 200})
    schema = job.schema_of(guess)
    assert schema == Schema({**NUMBERS, "vector": Feature("float32", (3,), "list")})
    frames, again, late, statistics = second(job, schema)
    expected = [f"a.tfrecord#{n + 1}".encode() for n in whole]
    assert frames == list(zip(expected, [framed[n] for n in whole], strict=True))
    assert again == rejects
    found = errors_of(late)
    assert found.pop("a.tfrecord#9").startswith(f"byte {starts[8]:,}: not an Example: ")
    assert found == {"a.tfrecord#10": f"byte {starts[9]:,}: not an Example: the floats are cut off"}
    figures = statistics[0].to_json()
    ids = np.array(whole)
    assert figures["id"]["mean"] == pytest.approx(ids.mean())
    assert figures["id"]["std"] == pytest.approx(ids.std())
    assert (figures["id"]["count"], figures["vector"]["count"]) == (len(whole), 3 * len(whole))


BROKEN = st.one_of(
    EXAMPLES,
    st.integers(0, 9).map(lambda n: example(id=n)),
    st.binary(max_size=40),
    st.tuples(EXAMPLES, st.integers(0, 100)).map(lambda pair: pair[0][: pair[1]]),
)


@given(st.lists(BROKEN, min_size=1, max_size=20), st.booleans(), st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_second_pass_encodes_the_records_that_the_first_one_found(
    tmp_path, records, learned, keep
):
    (tmp_path / "a").write_bytes(b"".join(map(frame, records)))
    job = ReshardJob(Inputs.of([str(tmp_path / "a")]), None if learned else ID)
    try:
        keys, rejects, guess = first(job)
        schema = job.schema_of(guess)
    except JobError:
        return
    if keep:
        job = ReshardJob(job.inputs, schema, keep=tuple(schema)[:1])
    frames, again, late, _ = second(job, schema)
    assert again == rejects
    done = [key for key, _ in frames] + [reject.key.encode() for reject in late]
    assert sorted(done) == sorted(keys)
    assert len(keys) + len(rejects) == len(records)
    if not keep:
        numbers = [int(key.rpartition(b"#")[2]) - 1 for key, _ in frames]
        assert [data for _, data in frames] == [frame(records[number]) for number in numbers]
    if learned:
        assert all(": not an Example: " in reject.error for reject in late)


def test_records_that_do_not_fit_a_given_schema_are_late_rejects_with_their_place(tmp_path):
    records = [example(id=1), example(id=[1, 2]), example(other=1), example(id=b"x"), example(id=5)]
    path = Path(write_plain(tmp_path / "a", records))
    job = job_of(path, schema=schema_file(tmp_path, ID))
    keys, rejects, guess = first(job)
    assert (len(keys), rejects) == (5, [])
    frames, again, late, statistics = second(job, job.schema_of(guess))
    assert [key for key, _ in frames] == [b"a#1", b"a#5"]
    assert again == []
    size = [len(frame(record)) for record in records]
    assert errors_of(late) == {
        "a#2": f"byte {size[0]}: feature 'id' (int64 [], list): 2 values do not fill shape []",
        "a#3": f"byte {sum(size[:2])}: feature 'id' is missing: the Example has other",
        "a#4": f"byte {sum(size[:3])}: feature 'id' (int64 [], list): the Example holds a list of "
        "bytes, not of integers",
    }
    assert all(reject.stage == "decode" for reject in late)
    assert statistics[0].to_json()["id"]["mean"] == 3


RGB, GRAY = np.full((2, 3, 3), 7, np.uint8), np.full((2, 3), 7, np.uint8)
JPEG, GRAY_JPEG = encoded(Image.fromarray(RGB), "JPEG"), encoded(Image.fromarray(GRAY), "JPEG")
PNG = encoded(Image.fromarray(RGB), "PNG")
AGREE = "; all records of a dataset must agree: leave out the files that differ"


def give(name, dtype, shape, encoding):
    entry = {name: {"dtype": dtype, "shape": shape, "encoding": encoding}}
    return f"; to keep such records, give a --schema with {json.dumps(entry)}"


@pytest.mark.parametrize(
    ("usual", "odd", "error"),
    [
        (
            {"x": 1},
            {"x": [1, 2]},
            "2 values do not fill shape []" + give("x", "int64", [None], "list"),
        ),
        (
            {"x": 1},
            {},
            "feature 'x' is missing: the Example has id" + give("x", "int64", [None], "list"),
        ),
        ({"x": 1}, {"x": 1.5}, "the Example holds a list of floats, not of integers" + AGREE),
        (
            {"x": "a"},
            {"x": b"\xff"},
            "expected UTF-8, found other bytes" + give("x", "string", [], "list"),
        ),
        ({"x": JPEG}, {"x": PNG}, "found png" + give("x", "uint8", [None, None, 3], "source")),
        (
            {"x": GRAY_JPEG},
            {"x": JPEG},
            "found an image with colours" + give("x", "uint8", [None, None, 3], "jpeg"),
        ),
        (
            {"x": tensor(np.ones((2, 3)))},
            {"x": tensor(np.ones((2, 4)))},
            "expected [2, 3], found [2, 4]" + give("x", "float64", [None, None], "tensor"),
        ),
        (
            {"x": tensor(np.ones((2, 3)))},
            {"x": tensor(np.ones((2, 3), np.int32))},
            "expected a tensor of float64, found int32" + give("x", "string", [], "list"),
        ),
        (
            {},
            {"y": 7},
            "feature 'y': the first records of all files lack it"
            + give("y", "int64", [None], "list"),
        ),
        (
            {"x": [*range(6)], "x/shape": [2, 3]},
            {"x": [*range(6)], "x/shape": [3, 2]},
            "feature 'x/shape': expected [2, 3], found [3, 2]" + AGREE,
        ),
    ],
    ids=itertools.count(),
)
def test_records_that_do_not_fit_the_first_ones_are_rejects_with_the_schema_that_holds_both(
    tmp_path, monkeypatch, usual, odd, error
):
    monkeypatch.setattr("beam_jobs.jobs.reshard.example_passes.LEARNED", 40)
    records = [example(id=n, **usual) for n in range(60)]
    records[50] = example(id=50, **odd)
    job = job_of(write_plain(tmp_path / "a", records))
    keys, rejects, guess = first(job)
    assert (len(keys), rejects, guess.records) == (60, [], 40)
    frames, _, (late,), statistics = second(job, job.schema_of(guess))
    assert len(frames) == 59 and b"a#51" not in dict(frames)
    assert statistics[0].records == 59
    assert (late.key, late.stage) == ("a#51", "decode")
    assert re.fullmatch(r"byte [\d,]+: (feature 'x' \(.*\): )?" + re.escape(error), late.error)
    # All of them are written with the schema that the reason names.
    if give := re.search(r"--schema with (.*)", late.error):
        wider = job.schema_of(guess).to_json() | json.loads(give[1])
        job = job_of(tmp_path / "a", schema=schema_file(tmp_path, Schema.from_json(wider)))
        frames, _, late, _ = second(job, job.schema_of(SchemaGuess()))
        assert (len(frames), late) == (60, [])


@pytest.mark.parametrize(
    ("usual", "odd", "count", "encoding", "error"),
    [
        (JPEG, b"", 6, "jpeg", "found neither JPEG nor PNG"),
        (JPEG, b"GIF89a", 6, "jpeg", "found neither JPEG nor PNG"),
        (tensor(np.ones(2)), b"", 6, "tensor", "expected a tensor of float64, found 0"),
        (b"text", b"\xff", 200, "text", "expected UTF-8, found other bytes"),
        (JPEG, b"", 4, "list", ""),  # a quarter
        (b"text", b"\xff", 90, "list", ""),
    ],
    ids=itertools.count(),
)
def test_bytes_are_what_most_are_and_the_others_are_rejects(
    tmp_path, usual, odd, count, encoding, error
):
    records = [example(x=usual)] * (count - 1) + [example(x=odd)]
    job = job_of(write_plain(tmp_path / "a", records))
    schema = job.schema_of(first(job)[2])
    assert schema["x"].encoding == encoding
    _, _, late, _ = second(job, schema)
    assert [(reject.key, error in reject.error) for reject in late] == [
        (f"a#{count}", True)
    ] * bool(error)


def test_steps_and_lists_of_steps_that_do_not_fit_the_first_ones_are_rejects(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.jobs.reshard.example_passes.LEARNED", 2)
    odd = [
        sequence_example({"id": 1}, x=[[1, 2, 3]], words=["a"]),
        sequence_example({"id": 1}, x=[[1, 2]], words=[b"\xff"]),
        sequence_example({"id": 1}, x=[[1, 2]], words=["a"], more=[1.5]),
    ]
    usual = sequence_example({"id": 1}, x=[[1, 2]], words=["a"])
    job = job_of(write_plain(tmp_path / "a", [usual, usual, *odd, usual]))
    frames, _, late, _ = second(job, job.schema_of(first(job)[2]))
    assert [key for key, _ in frames] == [b"a#1", b"a#2", b"a#6"]
    one, two, three = errors_of(late).values()
    assert one.endswith(give("x", "int64", [None, None], "list steps"))
    assert "'words'" in two and "expected UTF-8" in two
    assert "feature 'more': the first" in three
    assert three.endswith(give("more", "float32", [None, None], "list steps"))


def test_features_that_are_dropped_need_not_be_those_of_the_first_records(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.jobs.reshard.example_passes.LEARNED", 2)
    records = [example(id=n, x=1) for n in range(9)] + [example(id=9, x=[1, 2])]
    for flags in ({"drop": ("x",)}, {"keep": ("id",)}):
        job = job_of(write_plain(tmp_path / "a", records), **flags)
        frames, _, late, _ = second(job, job.schema_of(first(job)[2]))
        assert (len(frames), late) == (10, [])


def test_ranges_of_a_file_are_learned_from_as_files_are(tmp_path, monkeypatch):
    monkeypatch.setattr("beam_jobs.jobs.reshard.example_passes.LEARNED", 2)
    frames = [frame(example(id=n) if n < 7 else example(id=n, late=1.0)) for n in range(9)]
    (tmp_path / "a").write_bytes(b"".join(frames))
    job = job_of(tmp_path / "a")
    source = task_of(job).chunks[0].source
    cut = sum(map(len, frames[:6]))
    chunks = Chunk(source, 0, cut, 1, cut), Chunk(source, cut, source.size, 7, source.size - cut)
    passed = ReshardFirstPass(rules=rules_of(), spec=job)
    whole = SchemaGuess()
    for found in passed.found(Task.of(chunks)):
        whole.merge(found.learned)
    assert whole.records == 4
    assert job.schema_of(whole) == Schema(
        {"id": Feature("int64"), "late": ("float32", (None,), "list")}
    )


def test_invalid_feature_names_are_accepted_if_a_schema_is_given(tmp_path):
    path = write_plain(tmp_path / "a", [example(**{"id": n, "a\\b": 1}) for n in range(20)])
    with pytest.raises(UsageError, match=r"^a#1: feature name"):
        first(job_of(path))
    job = job_of(path, schema=schema_file(tmp_path, ID))
    assert len(first(job)[0]) == len(second(job, ID)[0]) == 20


def test_a_file_that_cannot_be_read_is_one_reject(tmp_path):
    write_plain(tmp_path / "a", [example(id=1)])
    (tmp_path / "b").symlink_to(tmp_path / "nothing")
    (tmp_path / "c").write_bytes(b"\x78\x9c" + bytes(20))
    keys, rejects, _ = first(job_of(tmp_path / "*"))
    assert keys == [b"a#1"]
    found = errors_of(rejects)
    assert found.pop("b").startswith("cannot be read: [Errno 2] No such file")
    assert found.pop("c").startswith("compressed with ZLIB, expected GZIP")
    assert found == {}


def test_a_feature_decides_the_split_and_records_without_it_are_rejects(tmp_path):
    sites = ["train", "val", "val", None, "test", 7]
    records = [example(id=n, **({"site": s} if s else {})) for n, s in enumerate(sites)]
    path = write_plain(tmp_path / "a", records[:-1])
    splits = Splits(("train", "val"), (0.5, 0.5))
    job = job_of(path)
    rules = rules_of(splits=splits, split_column="site")
    keys, rejects, guess = first(job, rules)
    assert keys == [b"a#1", b"a#2", b"a#3"]
    found = errors_of(rejects)
    assert "no column 'site'" in found["a#4"]
    assert "'test'" in found["a#5"] and "train, val" in found["a#5"]
    frames, again, late, statistics = second(job, job.schema_of(guess), rules)
    assert ([key for key, _ in frames], again, late) == (keys, rejects, [])
    assert {split: found.records for split, found in statistics.items()} == {0: 1, 1: 2}


def test_records_of_shards_keep_the_split_in_the_name_of_their_shard(tmp_path):
    folder = write_numbers(tmp_path / "a-b#1")
    flip(folder / "train-00001-of-00004.tfrecord", 40)
    job = job_of(tmp_path)
    assert job.splits == InputSplits(("train", "val"))
    rules = rules_of(splits=Splits.of_shards(["val", "train"]))
    keys, rejects, guess = first(job, rules)
    frames, again, _, statistics = second(job, job.schema_of(guess), rules)
    assert ([key for key, _ in frames], again) == (keys, rejects)
    assert {split: found.records for split, found in statistics.items()} == {0: 3, 1: 19}
    passed = ReshardFirstPass(rules=rules, spec=job)
    rejected = [split.rejected for split in passed.read(task_of(job)).summary.splits]
    assert rejected == [0, 1]


def test_the_splits_of_files_are_those_that_their_manifests_list(tmp_path):
    write_numbers(tmp_path / "a")
    write_dataset(tmp_path / "b", NUMBERS, {"test": [[]], "val": [numbers(0, 2)], "none": []})
    (tmp_path / "c").mkdir()
    a, b, c = (str(tmp_path / name) for name in "abc")
    train, val = "train-00002-of-00004.tfrecord", "val-00000-of-00001.tfrecord"
    test = "test-00000-of-00001.tfrecord"

    def found(files):
        return splits_of(files, manifests_in(files))

    assert found({b: [val, test], a: [train]}) == InputSplits(("train", "test", "val"))
    assert found({a: [val]}) == InputSplits(("val",))
    assert found({c: [train]}) == InputSplits(suggested=("train",))
    assert found({a: [val], c: [train]}).lone == f"{c} has no manifest.json"
    assert found({a: ["x"]}).lone == f"{a}/manifest.json does not list x"
    (tmp_path / "c" / "manifest.json").write_text("{}")
    assert "c/manifest.json: format version None" in found({c: [train]}).lone


def test_new_splits_of_a_dataset_with_splits_are_noted(tmp_path):
    job = job_of(write_numbers(tmp_path / "in"))
    note = ReshardedDatasetFlags(splits="train=0.8,val=0.2").note(job)
    assert "the splits of the input, train, val, are not kept" in note
    assert ReshardedDatasetFlags().note(job) == ""


@pytest.mark.parametrize(
    ("files", "suggested"),
    [
        (["train-00000-of-00002.tfrecord", "train-00001-of-00002.tfrecord"], ("train",)),
        (["mnist-test.tfrecord-00000-of-00001"], ("mnist-test",)),
        (["val-00000-of-00001", "a-b-00000-of-00001.tfrecord.gz"], ("a-b", "val")),
        (["a.tfrecord", "1-of-2.tfrecord", "x-3.tfrecord"], ()),
    ],
)
def test_names_of_shards_suggest_splits_if_there_is_no_manifest(files, suggested):
    assert splits_of({"a": files}, {"a": None}) == InputSplits(suggested=suggested)


@pytest.mark.parametrize(("archive", "pack"), [("a.tar", tarred), ("a.zip", zipped)])
def test_a_manifest_in_an_archive_is_read(tmp_path, archive, pack):
    folder = write_numbers(tmp_path / "in")
    named = replace(Manifest.read(str(folder)), label_names=("a", "b"))
    (folder / "manifest.json").write_bytes(named.to_bytes())
    shards = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    (tmp_path / archive).write_bytes(pack([(f"c/{name}", data) for name, data in shards]))
    packed = job_of(tmp_path / archive)
    assert packed.splits == InputSplits(("train", "val"))
    assert packed.class_names == job_of(folder).class_names == {"label": ("a", "b")}
    assert packed.given == job_of(folder).given
    (tmp_path / "b.tar").write_bytes(tarred([s for s in shards if s[0] != "manifest.json"]))
    assert job_of(tmp_path / "b.tar").splits == InputSplits(suggested=("train", "val"))


def test_the_manifest_is_found_above_the_folder_of_a_job(tmp_path):
    folder = write_numbers(tmp_path / "in")
    manifest = Manifest.read(str(folder))
    splits = {
        name: replace(
            split, shards=tuple(replace(s, path=f"20240131/{s.path}") for s in split.shards)
        )
        for name, split in manifest.splits.items()
    }
    (folder / "20240131").mkdir()
    for path in folder.glob("*.tfrecord*"):
        path.rename(folder / "20240131" / path.name)
    (folder / "manifest.json").write_bytes(replace(manifest, splits=splits).to_bytes())
    members = [(p, p.relative_to(tmp_path)) for p in sorted(folder.rglob("*")) if p.is_file()]
    packed = zipped([(str(name), path.read_bytes()) for path, name in members])
    (tmp_path / "a.zip").write_bytes(packed)
    for source in (folder, folder / "20240131", tmp_path / "a.zip"):
        job = job_of(source)
        assert (job.splits, job.given) == (InputSplits(("train", "val")), NUMBERS)
        assert job.class_names == {"label": ("cat", "dog")}
        assert len(first(job)[0]) == 23
    (folder / "manifest.json").unlink()
    assert job_of(folder).splits == InputSplits(suggested=("train", "val"))


# The features that exist, and those that are kept.


def guess_of(record):
    guess = SchemaGuess()
    guess.learn("a#1", memoryview(record))
    return guess


def test_a_missing_feature_is_refused_with_a_list_of_all_features():
    inputs = Inputs((), "")
    guess = guess_of(example(id=1, name="x"))
    for job, needed in (
        (ReshardJob(inputs, keep=("id", "nam")), ()),
        (ReshardJob(inputs, drop=("nam",)), ()),
        (ReshardJob(inputs), {"nam"}),
        (ReshardJob(inputs, given=Schema({"id": ("int64", ()), "name": ("string", ())})), {"nam"}),
    ):
        with pytest.raises(UsageError, match="no feature 'nam': the records have id, name"):
            job.schema_of(guess, needed)
    with pytest.raises(UsageError, match="--drop id,name: no feature would be left"):
        ReshardJob(inputs, drop=("id", "name")).schema_of(guess)


def test_the_schema_has_the_features_that_are_kept():
    inputs = Inputs((), "")
    guess = guess_of(example(id=1, name="x", real=0.5))
    assert list(ReshardJob(inputs).schema_of(guess)) == ["id", "name", "real"]
    assert list(ReshardJob(inputs, keep=("real", "id")).schema_of(guess)) == ["id", "real"]
    assert list(ReshardJob(inputs, drop=("name",)).schema_of(guess, {"name"})) == ["id", "real"]
    assert ReshardJob(inputs).schema_of(SchemaGuess()) is UNKNOWN_SCHEMA


def test_other_files_beside_shards_are_skipped(tmp_path):
    write_numbers(tmp_path / "in")
    (tmp_path / "in" / "train-00000-of-00004.tfrecord.idx").write_text("0 91\n")
    (tmp_path / "in" / "train-00000-of-00004.tfrecord.done").write_text("{}")
    for name in ("README.md", "labels.txt", "dataset_info.json", "table.CSV"):
        (tmp_path / "in" / name).write_text("text")
    (tmp_path / "in" / "rejects").mkdir()
    (tmp_path / "in" / "rejects" / "train-00000-of-00004.jsonl").write_text("{}\n")
    job = job_of(tmp_path / "in")
    assert job.given == NUMBERS
    assert job.class_names == {"label": ("cat", "dog")}
    assert all(chunk.source.key.endswith(".tfrecord") for chunk in task_of(job).chunks)
    assert len(first(job)[0]) == 23
    with pytest.raises(UsageError, match="no TFRecord files among these"):
        job_of(tmp_path / "in" / "*.txt", tmp_path / "in" / "*.i*")


def dataset(tmp_path, name, schema=NUMBERS, **manifest):
    records = [{n: r[n] for n in schema} for r in numbers(0, 3)]
    return write_dataset(tmp_path / name, schema, {"train": [records]}, **manifest)


def test_datasets_with_different_meanings_of_labels_are_refused(tmp_path):
    dataset(tmp_path, "a", label_names=("cat", "dog"))
    dataset(tmp_path, "b", label_names=("dog", "cat"))
    dataset(tmp_path, "c", label_names=("cat", "dog"))
    dataset(tmp_path, "d", label_names=("cat", "dog"), class_names={"box_labels": ("x",)})
    dataset(tmp_path, "e", NUMBERS.select(("id",)), label_names=("cat", "dog"))
    dataset(tmp_path, "f", label_names=("cat", "dog"), options={"box_order": "xyxy"})
    write_plain(tmp_path / "plain", [example(id=1)])
    assert job_of(tmp_path / "a", tmp_path / "c").class_names == {"label": ("cat", "dog")}
    for other in "bdef":
        with pytest.raises(UsageError, match="reshard them one by one") as caught:
            job_of(tmp_path / "a", tmp_path / other)
        assert f"{tmp_path}/a and {tmp_path}/{other} differ" in caught.value.message
    with pytest.raises(UsageError, match="reshard them one by one"):
        job_of(tmp_path / "a", tmp_path / "b", tmp_path / "plain")
    with pytest.raises(UsageError, match=f"{tmp_path} has no manifest.json: reshard them one"):
        job_of(tmp_path / "a", tmp_path / "plain")
    # A given schema applies to all.
    given = str(tmp_path / "a" / "manifest.json")
    both = job_of(tmp_path / "a", tmp_path / "plain", schema=given)
    assert both.class_names == {"label": ("cat", "dog")}
    with pytest.raises(UsageError, match="reshard them one by one"):
        job_of(tmp_path / "a", tmp_path / "b", schema=given)
    dataset(tmp_path, "numbers")
    assert job_of(tmp_path / "numbers", tmp_path / "plain").given is None


def test_channels_keep_their_names_and_are_not_mixed_with_others(tmp_path):
    schema = Schema({"signal": ("float32", (None, 2)), "id": ("int64", ())})
    records = [{"signal": np.ones((3, 2), np.float32), "id": 1}]
    for name, order in (("a", ["x", "y"]), ("b", ["y", "x"])):
        options = {"channel_names": {"signal": order}, "channel_units": {"signal": ["g", ""]}}
        write_dataset(tmp_path / name, schema, {"train": [records]}, options=options)
    assert job_of(tmp_path / "a").facts == {
        "channel_names": {"signal": ["x", "y"]},
        "channel_units": {"signal": ["g", ""]},
    }
    assert not any(job_of(tmp_path / "a", drop=("signal",)).facts.values())
    with pytest.raises(UsageError, match="differ in features, labels, tokens, channels or box"):
        job_of(tmp_path / "a", tmp_path / "b")


def test_vocabularies_and_tokenizers_are_kept_unless_the_tokens_are_dropped(tmp_path):
    schema = Schema({"id": ("int64", ()), "tokens": ("int64", (None,), "list")})
    records = [{"id": 1, "tokens": np.array([2, 3])}]
    for name, words in (("a", b"one\ntwo\n"), ("b", b"two\none\n"), ("c", b"one\n")):
        files = {"vocabulary.txt": File("0123abcd/words", google_crc32c.value(words))}
        write_dataset(tmp_path / name, schema, {"train": [records]}, vocabulary=4, files=files)
        (tmp_path / name / "0123abcd").mkdir()
        (tmp_path / name / "0123abcd/words").write_bytes(words)
    assert job_of(tmp_path / "a").vocabulary == (b"", b"[UNK]", b"one", b"two")
    assert job_of(tmp_path / "a", drop=("tokens",)).vocabulary == ()
    # Features that have other names are none that a vocabulary is known to describe.
    renamed = Schema({"id": ("int64", ()), "ids": ("int64", (None,), "list")})
    words = {"vocabulary.txt": File("words", google_crc32c.value(b"one\ntwo\n"))}
    other = [{"id": 1, "ids": np.array([2, 3])}]
    write_dataset(tmp_path / "named", renamed, {"train": [other]}, vocabulary=4, files=words)
    (tmp_path / "named" / "words").write_bytes(b"one\ntwo\n")
    assert job_of(tmp_path / "named", keep=("ids",)).vocabulary[2:] == (b"one", b"two")
    with pytest.raises(UsageError, match="differ in features, labels, tokens, channels or box"):
        job_of(tmp_path / "a", tmp_path / "b")
    with pytest.raises(
        UsageError, match=r"vocabulary.txt has 3 tokens, expected 4 as in manifest.json; or giv"
    ):
        job_of(tmp_path / "c")
    stated = {"vocabulary.txt": File("vocabulary.txt", google_crc32c.value(b"one\nthree\n"))}
    write_dataset(tmp_path / "d", schema, {"train": [records]}, vocabulary=4, files=stated)
    (tmp_path / "d" / "vocabulary.txt").write_bytes(b"one\ntwo\n")
    with pytest.raises(UsageError, match=r"manifest.json: vocabulary.txt: its CRC32C is \w+, the"):
        job_of(tmp_path / "d")
    copied = tmp_path / "copied.json"
    copied.write_bytes((tmp_path / "b" / "manifest.json").read_bytes())
    write_plain(tmp_path / "plain", [example(id=1, tokens=[2, 3])])
    job = job_of(tmp_path / "plain", schema=str(tmp_path / "b" / "manifest.json"))
    assert (job.given, job.vocabulary[2:]) == (schema, (b"two", b"one"))
    with pytest.raises(UsageError, match=r"--schema .*copied.json: .*No such file.*abcd/words"):
        job_of(tmp_path / "plain", schema=str(copied))
    (tmp_path / "b" / "0123abcd/words").unlink()
    with pytest.raises(UsageError, match=r"b/manifest.json: .*No such file.*or give a --schema"):
        job_of(tmp_path / "b")
    stated = {"tokenizer.json": File("tokenizer.json", google_crc32c.value("{ü}".encode()))}
    write_dataset(tmp_path / "d", schema, {"train": [records]}, tokenizer=9, files=stated)
    (tmp_path / "d" / "tokenizer.json").write_text("{ü}")
    assert job_of(tmp_path / "d").tokenizer == "{ü}"
    assert job_of(tmp_path / "d", keep=("id",)).tokenizer == ""


def test_class_names_are_dropped_with_their_feature(tmp_path):
    schema = Schema({"id": ("int64", ()), "label": ("int64", ()), "box_labels": ("int64", ())})
    names = {"label_names": ("cat", "dog"), "class_names": {"box_labels": ("car",)}}
    records = [{"id": 1, "label": 0, "box_labels": 0}]
    write_dataset(tmp_path / "a", schema, {"train": [records]}, **names)
    assert job_of(tmp_path / "a", drop=("label",)).class_names == {"box_labels": ("car",)}
    assert job_of(tmp_path / "a", keep=("id", "label")).class_names == {"label": ("cat", "dog")}


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "manifest.json: Expecting property name"),
        ("[]", "manifest.json: expected a JSON object, got list"),
        ("[" * 100_000, "manifest.json: .*recursion"),
        (b"\x80{}", "manifest.json: .*decode"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused_with_the_cure(tmp_path, text, message):
    write_plain(tmp_path / "a", [example(id=1)])
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(UsageError, match=f"{message}.*; or give a --schema"):
        job_of(tmp_path / "a")


def test_a_schema_is_read_from_a_manifest_or_alone(tmp_path):
    write_numbers(tmp_path / "in")
    assert read_schema(f"{tmp_path}/in/manifest.json").schema == NUMBERS
    (tmp_path / "own.json").write_text(json.dumps(NUMBERS.to_json()))
    assert read_schema(f"{tmp_path}/own.json").schema == NUMBERS
    named = Schema({"schema": Feature("int64")})
    (tmp_path / "named.json").write_text(json.dumps({"schema": named.to_json()}))
    assert read_schema(f"{tmp_path}/named.json").schema == named


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "Expecting value"),
        ("[1]", "a schema maps names to features, got list"),
        ("{}", "a schema needs at least one feature"),
        ('{"schema": {"a": 1}}', "feature 'a': a feature is {dtype, shape, encoding}, got 1"),
        ('{"a": {"dtype": "int63", "shape": [], "encoding": ""}}', "unknown dtype 'int63'"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_file_that_is_not_a_schema_is_refused(tmp_path, text, message):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(UsageError, match=f"^--schema {tmp_path}/s.json: ") as caught:
        read_schema(f"{tmp_path}/s.json")
    assert message in caught.value.message
    with pytest.raises(UsageError, match=r"--schema .*/none.json: .*No such file"):
        read_schema(f"{tmp_path}/none.json")


def test_statistics_equal_those_of_the_job_that_wrote_the_dataset(tmp_path):
    rng = np.random.default_rng(0)
    schema = Schema(
        {
            "label": Feature("int64"),
            "signal": Feature("float32", (None, 3)),
            "raw": Feature("uint8", (4, 4, 3), "raw"),
            "text": Feature("string"),
            "texts": Feature("string", (None,)),
        }
    )
    encoder, records = RecordEncoder(Encoder(schema)), []
    for n in range(100):
        record = {
            "label": n % 3,
            "signal": rng.normal(size=(n % 9, 3)).astype(np.float32),
            "raw": rng.integers(0, 255, (4, 4, 3), np.uint8),
            "text": f"text {n}",
            "texts": np.array([b"a"] * (n % 4), object),
        }
        encoder.encode(0, record)
        records.append(record)
    write_dataset(tmp_path / "a", schema, {"train": [records[:50], records[50:]]})
    before = files_of(tmp_path / "a")
    job = job_of(tmp_path / "a")
    *_, late, found = second(job, job.schema_of(SchemaGuess()))
    ((_, expected),) = encoder.statistics()
    assert (late, found[0].state()) == ([], expected.state())
    assert files_of(tmp_path / "a") == before


def test_members_of_archives_are_files(tmp_path):
    data = b"".join(frame(example(id=n)) for n in range(5))
    indexes = [("x.tfrecord.idx", b"0 1"), ("x.tfrecord.index", b"")]
    (tmp_path / "a.zip").write_bytes(zipped([("x.tfrecord", data), *indexes]))
    stored = zipped([("y.tfrecord", data)], zipfile.ZIP_STORED)
    (tmp_path / "b.zip").write_bytes(stored)
    keys, rejects, _ = first(job_of(tmp_path / "a.zip", tmp_path / "b.zip"))
    assert rejects == []
    names = ("a.zip/x.tfrecord", "b.zip/y.tfrecord")
    assert keys == [f"{name}#{n}".encode() for name in names for n in range(1, 6)]


def test_a_source_known_to_be_broken_is_one_reject():
    source = Source("a.zip/x", error="no such member")
    job = ReshardJob(Inputs((), ""))
    passed = ReshardFirstPass(rules=rules_of(), spec=job)
    (found,) = passed.found(Task.of((Chunk(source, 0, 0, 1, 0),)))
    assert [str(reject) for reject in found.rejects] == ["a.zip/x: no such member"]
