import copy
import dataclasses
import json
import posixpath
import re
import string
import urllib.parse
import uuid
from collections import Counter

import fsspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from readers.files.files import RefusedError
from readers.format import manifest
from readers.format.manifest import (
    DatasetError,
    File,
    Manifest,
    generation_file,
    join,
    newest_manifest,
)
from readers.format.remarks import Remarks
from readers.format.schema import Feature, Schema
from readers.format.splits import Shard, Split, checked_path, shard_name
from tests.support.datasets import write_numbers

FIRST = "4f2a9c01/train-00000-of-00002.tfrecord"
SECOND = "4f2a9c01/train-00001-of-00002.0be91f6d.tfrecord"
THIRD = "4f2a9c01/val-00000-of-00001.tfrecord"

MANIFEST = Manifest(
    schema=Schema({"image": Feature("uint8", (None, 4, 3)), "label": Feature("int64")}),
    splits={
        "train": Split(
            (
                Shard(FIRST, 3, 300, 0x0000ABCD, 192, 0x00000001, 0x00000002),
                Shard(SECOND, 2, 200, 0xFFFFFFFF, 256, 0x89ABCDEF, 0x80000000),
            ),
            rejected=1,
            statistics={"label": {"count": 5, "mean": 0.5}},
            duplicates=4,
        ),
        "val": Split((Shard(THIRD, 0, 0, 0, 0, 0, 0xFFFFFFFF),), rejected=2),
    },
    label_names=("Katze", "Köter"),
    class_names={"box_labels": ("Auto", "Tür")},
    vocabulary=7,
    tokenizer=9,
    files={
        "vocabulary.txt": File("4f2a9c01/vocabulary.txt", 0x0000001F),
        "tokenizer.json": File("4f2a9c01/tokenizer.json", 0xFEDCBA98),
    },
    rejects=("4f2a9c01/rejects/train-00000-of-00002.jsonl",),
    generation=3,
    job="0123456789abcdef",
    ancestors=("ab" * 32,),
    options={"seed": 0, "splits": {"train": 0.8}},
    versions={"beam-shards": "1.0"},
)

GOLDEN = """\
{
 "format_version": 2,
 "requires": [],
 "generation": 3,
 "ancestors": [
  "abababababababababababababababababababababababababababababababab"
 ],
 "job": "0123456789abcdef",
 "schema": {
  "image": {
   "dtype": "uint8",
   "shape": [
    null,
    4,
    3
   ],
   "encoding": "tensor"
  },
  "label": {
   "dtype": "int64",
   "shape": [],
   "encoding": "list"
  }
 },
 "label_names": [
  "Katze",
  "Köter"
 ],
 "class_names": {
  "box_labels": [
   "Auto",
   "Tür"
  ]
 },
 "vocabulary": 7,
 "tokenizer": 9,
 "files": {
  "vocabulary.txt": {
   "path": "4f2a9c01/vocabulary.txt",
   "crc32c": "0000001f"
  },
  "tokenizer.json": {
   "path": "4f2a9c01/tokenizer.json",
   "crc32c": "fedcba98"
  }
 },
 "rejected": 3,
 "rejects": [
  "4f2a9c01/rejects/train-00000-of-00002.jsonl"
 ],
 "splits": {
  "train": {
   "records": 5,
   "bytes": 500,
   "rejected": 1,
   "duplicates": 4,
   "statistics": {
    "label": {
     "count": 5,
     "mean": 0.5
    }
   },
   "shards": [
    {
     "path": "4f2a9c01/train-00000-of-00002.tfrecord",
     "records": 3,
     "bytes": 300,
     "crc32c": "0000abcd",
     "smallest_hash": "00000002",
     "index": {
      "bytes": 192,
      "crc32c": "00000001"
     }
    },
    {
     "path": "4f2a9c01/train-00001-of-00002.0be91f6d.tfrecord",
     "records": 2,
     "bytes": 200,
     "crc32c": "ffffffff",
     "smallest_hash": "80000000",
     "index": {
      "bytes": 256,
      "crc32c": "89abcdef"
     }
    }
   ]
  },
  "val": {
   "records": 0,
   "bytes": 0,
   "rejected": 2,
   "duplicates": 0,
   "statistics": {},
   "shards": [
    {
     "path": "4f2a9c01/val-00000-of-00001.tfrecord",
     "records": 0,
     "bytes": 0,
     "crc32c": "00000000",
     "smallest_hash": "ffffffff",
     "index": {
      "bytes": 0,
      "crc32c": "00000000"
     }
    }
   ]
  }
 },
 "options": {
  "seed": 0,
  "splits": {
   "train": 0.8
  }
 },
 "versions": {
  "beam-shards": "1.0"
 },
 "crc32c": "1d3a41c1"
}
"""

TRAIN = ("splits", "train")
SHARD = (*TRAIN, "shards", 0)
ABSENT = object()


def changed(path: tuple, value) -> dict:
    """The JSON of the manifest with one value replaced or removed."""
    manifest = copy.deepcopy(MANIFEST.to_json())
    inside = manifest
    for key in path[:-1]:
        inside = inside[key]
    if value is ABSENT:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return manifest


def paths(value, path=()) -> list[tuple]:
    """The path of every field that the format itself defines."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list) and path[-1] == "shards":
        items = enumerate(value)
    for key, inner in items:
        if not {"statistics", "options", "versions"} & set(path):
            found += paths(inner, (*path, key))
    return found


def test_golden_text_is_written_and_read():
    assert MANIFEST.to_bytes().decode() == GOLDEN
    assert Manifest.from_json(json.loads(GOLDEN)) == MANIFEST
    assert Manifest.from_bytes(GOLDEN.encode()) == MANIFEST


def test_a_manifest_has_the_checksum_of_all_bytes_before_it(tmp_path):
    data = MANIFEST.to_bytes()
    cure = ".*, so it is damaged or was edited; copy it again from where the job wrote it, or run the job again$"
    for wrong, found in (
        (data.replace(b"Katze", b"Matze"), "it states [0-9a-f]{8} and has [0-9a-f]{8}"),
        (data.replace(b'"mean": 0.5', b'"mean": 0.7'), "it states [0-9a-f]{8} and has"),
        (data.replace(b'"vocabulary"', b' "vocabulary"'), "it states [0-9a-f]{8} and has"),
        (data.rstrip(), "it states none"),
        (json.dumps(MANIFEST.to_json()).encode(), "it states none"),
    ):
        (tmp_path / "manifest.json").write_bytes(wrong)
        with pytest.raises(DatasetError, match=f"its CRC32C is wrong: {found}{cure}"):
            Manifest.read(tmp_path)


@pytest.mark.parametrize("bit", range(8))
def test_no_changed_bit_of_a_manifest_is_read(bit):
    data = MANIFEST.to_bytes()
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 1 << bit
        with pytest.raises((ValueError, RecursionError)):
            Manifest.from_bytes(bytes(wrong))


def test_totals_are_summed_over_the_shards():
    assert MANIFEST.split("train").records == 5
    assert MANIFEST.split("train").bytes == 500
    assert MANIFEST.rejected == 3
    assert MANIFEST.duplicates == 4


def test_the_paths_are_those_of_all_files_but_the_manifests():
    assert [shard.path for shard in MANIFEST.shards] == [FIRST, SECOND, THIRD]
    shards = {f"{path}{suffix}" for path in (FIRST, SECOND, THIRD) for suffix in ("", ".index")}
    beside = {f"4f2a9c01/{name}" for name in ("vocabulary.txt", "tokenizer.json")}
    assert MANIFEST.paths == {*shards, *beside, *MANIFEST.rejects}


def test_the_error_for_an_unknown_split_lists_the_splits():
    with pytest.raises(ValueError, match="unknown split 'test': the dataset has train, val"):
        MANIFEST.split("test")


@pytest.mark.parametrize("version", [1, 0, -1, True, "2", None])
def test_only_a_newer_version_is_from_a_later_release(version):
    cure = (
        ": a later release of beam-shards wrote the dataset; upgrade beam-shards, or, in Python, "
        "read the shards as TFRecord files with schema="
    )
    with pytest.raises(ValueError, match=re.escape(f"this package reads version 2{cure}") + "$"):
        Manifest.from_json(changed(("format_version",), 3))
    with pytest.raises(ValueError, match=r"this package reads version 2; run the job again$"):
        Manifest.from_json(changed(("format_version",), version))


def test_the_names_of_files_are_those_of_the_format():
    names = manifest.MANIFEST, manifest.VOCABULARY, manifest.TOKENIZER, manifest.INDEX_SUFFIX
    assert names == ("manifest.json", "vocabulary.txt", "tokenizer.json", ".index")
    assert generation_file(12) == "generations/12.json"
    words = manifest.PADDING, manifest.UNKNOWN, manifest.UNKNOWN_ID, manifest.RESERVED_IDS
    assert words == (b"", b"[UNK]", 1, 2)


def labelled(*figures, records: int = 1, **options) -> Manifest:
    """A manifest of a split for each of some statistics of the label."""
    splits = {
        f"s{n}": Split((Shard(shard_name(f"s{n}", 0, 1), records, 9, 0, 9, 0, 0),), statistics=each)
        for n, each in enumerate(figures)
    }
    return Manifest(options.pop("schema", MANIFEST.schema), splits, **options)


def label(**figures) -> dict:
    return {"label": figures}


def test_the_number_of_classes_follows_from_their_names_or_from_the_labels():
    found = labelled(label(min=2, max=4), label(min=1, max=3), {})
    assert (found.label_range, found.num_classes) == ((1, 4), 5)
    assert labelled(label(min=0, max=0)).num_classes == 1
    negative = labelled(label(min=-1, max=4))
    assert (negative.label_range, negative.num_classes) == ((-1, 4), None)
    named = labelled(label(min=2, max=4), label_names=("a", "b"))
    assert (named.label_range, named.num_classes) == ((2, 4), 2)
    for without in (
        labelled({}),
        labelled(label(min=0.5, max=1.5)),
        labelled({"label": 5}),
        labelled(label(min=1, max=2), schema=Schema({"other": Feature("int64")})),
        labelled(label(min=1, max=2), schema=Schema({"label": Feature("float32")})),
    ):
        assert (without.label_range, without.num_classes) == (None, None)


def test_values_are_counted_in_all_splits_or_in_none():
    first, second = label(values={"0": 2, "-3": 1}), label(values={"0": 5})
    assert labelled(first, second).counts_of("label") == {0: 7, -3: 1}
    for uncounted in ({}, label(min=1), {"label": 5}, label(values=5), label(values={"0": "x"})):
        assert labelled(first, uncounted).counts_of("label") is None
        assert labelled(uncounted, records=0).counts_of("label") == {}
    assert labelled(label(values={"0": 1, "a": 2})).counts_of("label") is None
    assert labelled(label(values={"0": 1, "1": "x"})).counts_of("label") is None


def test_a_printed_manifest_is_two_tables():
    features, splits = str(MANIFEST).split("\n\n")
    assert [line.split()[0] for line in features.splitlines()[1:]] == ["image", "label"]
    assert {"train", "val"} <= {line.split()[0] for line in splits.splitlines()}


def test_what_is_not_given_is_empty():
    alone = Manifest(MANIFEST.schema, {"train": Split(())})
    assert (alone.label_names, alone.class_names, alone.files) == ((), {}, {})
    assert (alone.vocabulary, alone.tokenizer, alone.options, alone.versions) == (0, 0, {}, {})
    split = alone.split("train")
    assert (split.rejected, split.statistics, split.duplicates) == (0, {}, 0)
    assert split.remarks == {}
    assert (alone.rejects, alone.generation, alone.job, alone.ancestors) == ((), 1, "", ())


def test_a_manifest_holds_no_number_that_json_lacks():
    with pytest.raises(ValueError, match="not JSON compliant"):
        dataclasses.replace(MANIFEST, options={"share": float("nan")}).to_bytes()
    text = dataclasses.replace(MANIFEST, options={"name": "\u00fc"}).to_bytes()
    assert "\u00fc".encode() in text


def test_an_error_repeats_the_beginning_of_a_wrong_value():
    long = "x" * 300
    for path, value, start in [
        ((*SHARD, "path"), f"../{long}", "path " + repr(f"../{long}"[:200])),
        ((*SHARD, "crc32c"), long, "found " + repr(long[:80])),
        (("label_names",), long, "expected list, found " + repr(long[:80])),
        (("files", "vocabulary.txt", "crc32c"), long, "found " + repr(long[:80])),
    ]:
        with pytest.raises(ValueError, match=re.escape(start) + "(?!x)"):
            Manifest.from_json(changed(path, value))


REQUIRED = [
    path
    for path in paths(MANIFEST.to_json())
    # A feature, a split or a shard may be absent, as long as the rest adds up.
    if path[:-1] not in {("schema",), ("splits",), (*TRAIN, "shards"), ("splits", "val", "shards")}
    and path[:-1] not in {("class_names",), ("files",)}
]


@pytest.mark.parametrize("path", REQUIRED, ids=str)
def test_the_error_for_a_missing_field_names_it(path):
    with pytest.raises(ValueError, match=r"missing|format version None|a feature is") as caught:
        Manifest.from_json(changed(path, ABSENT))
    assert path[0] in ("format_version", "schema") or repr(path[-1]) in str(caught.value)


def test_remarks_are_stated_only_if_there_are_some():
    split = dataclasses.replace(MANIFEST.splits["train"], remarks=Remarks({"cut": (3, "a")}))
    remarked = dataclasses.replace(MANIFEST, splits={**MANIFEST.splits, "train": split})
    stated = remarked.to_json()["splits"]["train"]["remarks"]
    assert stated == [{"text": "cut", "records": 3, "example": "a"}]
    assert "remarks" not in remarked.to_json()["splits"]["val"]
    assert Manifest.from_json(remarked.to_json()) == remarked
    assert remarked.remarks == {"cut": (3, "a")}
    for wrong in (
        "cut",
        [{"text": "cut"}],
        [stated[0] | {"records": 0}],
        [stated[0] | {"text": 1}],
    ):
        broken = remarked.to_json()
        broken["splits"]["train"]["remarks"] = wrong
        with pytest.raises(ValueError, match=r"remarks|missing|wrong type"):
            Manifest.from_json(broken)


def test_remarks_are_in_utf_8_and_short_however_often_they_are_merged():
    once, twice = Remarks(), Remarks()
    once.add("\udcff" * 300, "\ud800")
    twice.merge(once)
    twice.merge(once)
    ((text, (count, key)),) = twice.items()
    assert (len(text), text[:7], count, key) == (300, r"\udcff"[:6] + "\\", 2, r"\ud800")
    assert Remarks.from_json(json.loads(json.dumps(twice.to_json()).encode())) == twice


def test_the_counts_of_remarks_do_not_depend_on_their_order():
    rng = np.random.default_rng(7)
    added = [(f"remark {n}", f"key {rng.integers(9)}") for n in rng.integers(0, 90, 4000)]
    expected = Counter(text for text, _ in added)
    for _ in range(3):
        rng.shuffle(added)
        parts = [Remarks() for _ in range(5)]
        for number, (text, key) in enumerate(added):
            parts[number % 5].add(str(text), str(key))
        whole = Remarks()
        for part in parts:
            whole.merge(part)
        kept = sorted(expected)[:50]
        assert whole == {
            text: (expected[text], min(k for t, k in added if t == text)) for text in kept
        }


WRONG = [None, 1.5, -1, True, "text", [1], {"a": 1}, [[["a", "b"]]]]
FITTING = [
    (("options",), {"a": 1}),
    (("versions",), {"a": 1}),
    ((*TRAIN, "statistics"), {"a": 1}),
    (("splits", "val", "statistics"), {"a": 1}),
    (("schema", "image", "shape"), [1]),
    (("schema", "label", "shape"), [1]),
    (("job",), "text"),
    *((path, "text") for path in paths(MANIFEST.to_json()) if path[-1] == "path"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_values_of_the_wrong_type_are_refused_in_every_field(wrong):
    for path in paths(MANIFEST.to_json()):
        if (path, wrong) not in FITTING:
            with pytest.raises(ValueError):
                pytest.fail(f"{path} takes it: {Manifest.from_json(changed(path, wrong))}")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("vocabulary",), -1, "vocabulary: expected a count, found -1"),
        (("rejected",), 4, "4 rejected, but the splits add up to 3"),
        (("label_names",), "ab", "label_names: expected list, found 'ab'"),
        (("label_names",), ["a", 1], "label_names: expected a list of text"),
        (("ancestors",), [1], "ancestors: expected a list of text"),
        (("generation",), -1, "generation: expected a count, found -1"),
        (("class_names", "box_labels"), "ab", "class_names: expected lists of text"),
        (("splits",), [], "splits: expected dict"),
        ((*TRAIN, "records"), 6, "split train: 6 records, but its shards add up to 5"),
        ((*TRAIN, "bytes"), 501, "split train: 501 bytes, but its shards add up to 500"),
        ((*TRAIN, "rejected"), float("inf"), "rejected: expected int, found 'inf'"),
        ((*SHARD, "records"), -3, "train-00000-of-00002.tfrecord: records: expected a count"),
        ((*SHARD, "records"), 10**30, "train-00000-of-00002.tfrecord: records: expected a count"),
        ((*SHARD, "crc32c"), "xyz", "crc32c must be 8 hex digits, found 'xyz'"),
        ((*SHARD, "crc32c"), "-0000001", "crc32c must be 8 hex digits"),
        ((*SHARD, "index", "bytes"), -3, "train-00000-of-00002.tfrecord: bytes: expected a count"),
        ((*SHARD, "index", "crc32c"), "xyz", "00002.tfrecord: crc32c must be 8 hex digits"),
        ((*SHARD, "smallest_hash"), "xyz", "00002.tfrecord: smallest_hash must be 8 hex digits"),
        (("vocabulary",), 0, "0 ids, and vocabulary.txt is among its files"),
        (("files", "tokenizer.json"), ABSENT, "9 ids, and tokenizer.json is not among its files"),
        (("files",), [], "files: expected dict"),
        (("files", "vocabulary.txt"), None, "wrong type"),
        (
            ("files", "vocabulary.txt", "crc32c"),
            "1F",
            "vocabulary.txt: crc32c must be 8 hex digits",
        ),
        (("schema",), {}, "at least one feature"),
        (("schema", "label", "dtype"), "int65", "feature 'label': unknown dtype 'int65'"),
    ],
)
def test_the_error_for_a_wrong_value_names_field_and_value(path, value, message):
    with pytest.raises(ValueError, match=message):
        Manifest.from_json(changed(path, value))


PATHS = [(*SHARD, "path"), ("files", "vocabulary.txt", "path"), ("rejects",)]


def with_path(field, path):
    """The JSON of the manifest with a path in one of its fields."""
    return changed(field, [path] if field == ("rejects",) else path)


OUTSIDE = [
    "",
    "..",
    "/etc/passwd",
    "a/../../b",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\..\\b",
    "C:\\a",
    "gs://bucket/a",
    "zip::a",
    "%2e%2e/a",
    "a?b",
    "a#b",
    "a\0",
    "a\n",
    "../" + "x" * 10_000,
    None,
    {},
]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: repr(path)[:20])
@pytest.mark.parametrize("field", PATHS, ids=str)
def test_a_path_that_could_leave_the_dataset_is_refused(field, path):
    with pytest.raises(ValueError, match=r"path .*: expected a path inside the dataset") as caught:
        Manifest.from_json(with_path(field, path))
    assert len(str(caught.value)) < 400


@given(st.text(st.sampled_from("./\\%2eE:~?#* \0\u2025a"), max_size=12) | st.text())
@example(SECOND.replace("00001", "00002"))
def test_a_path_that_is_taken_lies_inside_the_dataset_in_files_and_urls(path):
    try:
        checked_path(path)
    except ValueError:
        return
    url = urllib.parse.urlsplit(f"https://host/d/{path}")
    assert (url.query, url.fragment) == ("", "")
    for found in (f"/d/{path}", urllib.parse.unquote(url.path)):
        assert posixpath.normpath(found) == f"/d/{path}"
    assert fsspec.core.split_protocol(path)[0] is None and "::" not in path
    for field in PATHS:
        assert path in Manifest.from_json(with_path(field, path)).paths


@given(st.lists(st.sampled_from(["a", "b.c"]), min_size=1), st.data())
def test_a_part_that_is_empty_or_of_dots_makes_a_path_invalid(parts, data):
    assert checked_path("/".join(parts))
    parts.insert(data.draw(st.integers(0, len(parts))), data.draw(st.sampled_from(["", ".", ".."])))
    with pytest.raises(ValueError, match="expected a path inside the dataset"):
        checked_path("/".join(parts))


@given(st.lists(st.sampled_from(["channels", "later"]) | st.text(min_size=9), min_size=1))
@example([1])
def test_a_manifest_that_requires_what_is_unknown_is_refused(names):
    message = (
        f"it requires {min(map(str, names))!r}: a later release of beam-shards wrote the dataset; "
    )
    with pytest.raises(ValueError, match="^" + re.escape(message + "upgrade beam-shards")):
        Manifest.from_json(changed(("requires",), names))


def test_fields_that_are_unknown_are_skipped():
    value = {**MANIFEST.to_json(), "later": {"train": 5}}
    value["splits"]["train"]["later"] = {"clip": []}
    value["splits"]["train"]["shards"][0]["more"] = 1
    assert Manifest.from_json(value) == MANIFEST


def test_shards_are_named_as_tensorflow_datasets_names_them():
    assert shard_name("train", 0, 16) == "train-00000-of-00016.tfrecord"
    assert shard_name("val", 99999, 123456) == "val-99999-of-123456.tfrecord"


@pytest.mark.parametrize(
    ("directory", "path"),
    [
        ("shards", "shards/x"),
        ("/", "/x"),
        ("", "x"),
        (".", "./x"),
        ("gs://bucket/", "gs://bucket/x"),
        ("file:///", "file:///x"),
    ],
)
def test_a_file_is_joined_to_a_directory_on_any_filesystem(directory, path):
    assert join(directory, "x") == path


def test_a_manifest_is_read_from_any_local_directory(tmp_path, monkeypatch):
    directory = tmp_path / "a[1] *?"
    directory.mkdir()
    (directory / "manifest.json").write_bytes(MANIFEST.to_bytes())
    for path in (directory, str(directory), f"{directory}/", f"file://{directory}"):
        assert Manifest.read(path) == MANIFEST
    monkeypatch.chdir(directory)
    assert Manifest.read("") == Manifest.read(".") == MANIFEST


@pytest.fixture
def memory():
    directory = f"memory://{uuid.uuid4().hex}"
    yield directory
    fsspec.filesystem("memory").rm(directory, recursive=True)


@pytest.mark.parametrize("below", ["", "/", "/deep/er"])
def test_a_manifest_is_read_from_any_fsspec_filesystem(memory, below):
    with fsspec.open(join(memory + below, "manifest.json"), "wb") as file:
        file.write(MANIFEST.to_bytes())
    assert Manifest.read(memory + below) == MANIFEST


def write_generations(directory, newest, copy):
    """Writes some generations, and as `manifest.json` the one of a number; none for None."""
    numbers = {*range(1, newest + 1), *filter(None, [copy])}
    for number in numbers:
        data = dataclasses.replace(MANIFEST, generation=number).to_bytes()
        files = [generation_file(number)] * (number <= newest) + ["manifest.json"] * (
            number == copy
        )
        for name in files:
            with fsspec.open(join(str(directory), name), "wb", auto_mkdir=True) as file:
                file.write(data)
    return directory


@pytest.mark.parametrize(
    ("newest", "copy", "found"),
    [(1, 1, 1), (1, None, 1), (3, None, 3), (3, 2, 3), (4, 1, 4), (3, 3, 3), (0, 7, 7), (2, 7, 7)],
)
def test_the_newest_generation_is_found_when_the_copy_is_older_or_missing(
    tmp_path, memory, newest, copy, found
):
    for directory in (tmp_path, memory):
        write_generations(directory, newest, copy)
        assert Manifest.read(directory) == dataclasses.replace(MANIFEST, generation=found)


def test_generations_before_the_copy_need_not_be_there(tmp_path):
    write_generations(tmp_path, 5, 3)
    for number in (1, 2, 3):
        (tmp_path / generation_file(number)).unlink()
    assert Manifest.read(tmp_path).generation == 5


@pytest.mark.parametrize("copy", [1, None])
def test_a_generation_that_states_another_number_is_an_error_that_names_its_file(tmp_path, copy):
    write_generations(tmp_path, 2, copy)
    wrong = tmp_path / generation_file(2)
    for number in (1, 3, 10**15):
        wrong.write_bytes(dataclasses.replace(MANIFEST, generation=number).to_bytes())
        with pytest.raises(DatasetError) as caught:
            Manifest.read(tmp_path)
        assert str(caught.value) == f"{wrong}: it states that it is generation {number}"


@pytest.mark.parametrize("name", ["manifest.json", "generations/2.json"])
def test_the_error_for_a_damaged_generation_begins_with_its_path(tmp_path, name):
    damaged = write_generations(tmp_path, 2, 1) / name
    data = damaged.read_bytes()
    for wrong in (b"", data[:-9], data.replace(b"Katze", b"Matze")):
        damaged.write_bytes(wrong)
        with pytest.raises(DatasetError) as caught:
            Manifest.read(tmp_path)
        assert str(caught.value).startswith(f"{damaged}: ")


@pytest.mark.parametrize("where", ["local", "memory"])
def test_the_error_for_a_missing_manifest_states_what_to_do(tmp_path, where):
    directory = {"local": str(tmp_path), "memory": f"memory://{uuid.uuid4().hex}"}[where]
    with pytest.raises(DatasetError) as caught:
        Manifest.read(directory)
    assert str(caught.value) == (
        f"{directory}: no manifest.json here, so this is not a finished dataset; run the job "
        "again, or, in Python, set schema= to read TFRecord files without a manifest"
    )


def test_the_error_for_the_folder_of_an_unfinished_job_says_so(tmp_path):
    (tmp_path / "1234abcd").mkdir()
    (tmp_path / "1234abcd" / "train-00000-of-00040.tfrecord.done").touch()
    with pytest.raises(DatasetError) as caught:
        Manifest.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: not a finished dataset: its job still runs or was killed; the same command "
        "again keeps the shards that are done"
    )


def test_a_missing_directory_is_called_missing(tmp_path):
    with pytest.raises(DatasetError, match=r"/none: no such directory$"):
        Manifest.read(str(tmp_path / "none"))


def test_a_file_is_not_a_dataset_and_the_error_names_the_one_that_it_is_in(tmp_path):
    dataset = write_numbers(tmp_path / "numbers")
    (tmp_path / "alone").touch()
    for file, folder in (
        (next(dataset.glob("*.tfrecord")), f", {dataset}"),
        (tmp_path / "alone", ""),
    ):
        with pytest.raises(DatasetError) as caught:
            Manifest.read(file)
        expected = (
            f"{file} is a file: expected the directory of a dataset{folder}; or, in Python, set"
        )
        assert str(caught.value).startswith(expected)


def test_a_file_of_a_dataset_is_not_its_name(tmp_path):
    (tmp_path / "manifest.json").touch()
    with pytest.raises(DatasetError) as caught:
        Manifest.read(tmp_path / "manifest.json")
    assert str(caught.value) == f"{tmp_path}/manifest.json is a file: name its folder, {tmp_path}"


def test_the_error_for_files_of_another_writer_names_the_command_that_indexes_them(tmp_path):
    (tmp_path / "old.tfrecord.gz").write_bytes(b"")
    with pytest.raises(DatasetError) as caught:
        Manifest.read(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}: no manifest.json here, so this is not a finished dataset; run the job again, or, in Python, set "
        "schema= to read TFRecord files without a manifest; beam-shards index "
        f"{tmp_path} --output DIR makes a dataset of the files here"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expecting value"),
        (GOLDEN.encode()[:-60], "Expecting|Unterminated"),
        (b"\xff\xfe\xfd\xfc", "Expecting value|codec can't decode"),
        (b'{"a": "\xff"}', "codec can't decode"),
        (b"[" * 100_000, "recursion"),
        (b"[]", "expected a JSON object, got list"),
        (b"{}", "format version None"),
        (
            b'{"format_version": 2, "requires": [], "schema": 5}',
            "a schema maps names to features, got int",
        ),
        (b'{"format_version": ' + b"1" * 5000 + b"}", "limit"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_the_error_for_an_invalid_manifest_begins_with_its_path(tmp_path, text, message):
    (tmp_path / "manifest.json").write_bytes(text)
    with pytest.raises(DatasetError, match=message) as caught:
        Manifest.read(str(tmp_path))
    assert str(caught.value).startswith(f"{tmp_path}/manifest.json: ")


def test_the_error_for_an_unknown_filesystem_names_the_path():
    with pytest.raises(
        DatasetError, match=r"^nosuch://a/manifest.json: unknown scheme: expected a path, s3://"
    ):
        Manifest.read("nosuch://a")


def test_the_sampling_rate_is_that_of_the_stored_recordings():
    def rate(**options):
        return Manifest(Schema({"signal": ("int16", (None,))}), {}, options=options).sample_rate

    texts = ("16kHz", "50", " 0.5 Hz", "column:rate", "", None, True, "x", "1e99")
    assert [rate(rate=text) for text in texts] == [16_000, 50, 0.5, *[0] * 6]
    stated = {"sample_rate": 44_100.5, "rate": "5Hz"}
    assert rate(**stated, resample="8kHz") == 8_000
    assert rate(**stated, resample="") == 44_100.5
    assert rate(**stated, map="features:log_mel") == 0


def test_a_file_with_another_checksum_than_the_manifest_states_is_refused():
    files = {"vocabulary.txt": File("vocabulary.txt", 0x364B3FB7)}
    stated = dataclasses.replace(MANIFEST, files=files)
    stated.check_file("vocabulary.txt", b"abc")
    with pytest.raises(ValueError, match="CRC32C is c1d04330, the manifest states 364b3fb7"):
        stated.check_file("vocabulary.txt", b"a")


def test_words_are_without_the_punctuation_of_ascii():
    """As docs/read/augmentation.md says."""
    assert {*manifest.PUNCTUATION} == {*string.punctuation.encode()}


def test_a_next_generation_that_may_not_be_read_is_none_unless_credentials_are_refused(tmp_path):
    write_numbers(tmp_path, (3,))

    def reads(error):
        def read(path):
            if path.endswith("manifest.json"):
                return (tmp_path / "manifest.json").read_bytes()
            raise error

        return newest_manifest(str(tmp_path), read)

    assert reads(PermissionError("403"))[1].generation == 1
    with pytest.raises(RefusedError):
        reads(RefusedError("401"))
