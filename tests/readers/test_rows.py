"""Datasets with rows that are gone, and subsets: each is compared with a dataset that has only the other records."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from readers.format.lookup.rows import RowList, pack_rows
from readers.format.manifest import Manifest
from tests.support.datasets import SIGNALS, flip, signals, write_dataset

COUNTS = 7, 4, 9, 1


def write(directory, counts=COUNTS, gone=()):
    """A dataset with a shard for each count, without the records that are gone."""
    lengths = np.random.default_rng(5).integers(0, 9, sum(counts)).tolist()
    records, firsts = signals(lengths), np.cumsum([0, *counts])
    shards = [
        [record for row, record in enumerate(records[first:stop], first) if row not in gone]
        for first, stop in itertools.pairwise(firsts)
    ]
    return write_dataset(directory, SIGNALS, {"train": shards, "val": [signals([3, 1])]})


def list_rows(directory, kind, rows):
    """Adds a list of rows to the split `train`."""
    manifest = Manifest.read(directory)
    train = manifest.splits["train"]
    data = pack_rows(np.array(sorted(rows), np.int64), train.stored)
    name = f"train.{kind}"
    (directory / name).write_bytes(data)
    listed = RowList(name, len(rows), google_crc32c.value(data))
    split = dataclasses.replace(train, **{kind: listed})
    changed = dataclasses.replace(manifest, splits={**manifest.splits, "train": split})
    (directory / "manifest.json").write_bytes(changed.to_bytes())
    return directory


def values(batches):
    return [{n: [np.array(v).tolist() for v in a] for n, a in batch.items()} for batch in batches]


def all_of(directory, how):
    """The number of batches and their values, or the message of the error."""
    try:
        batches = readers.as_numpy(directory, 3, **how)
        return len(batches), values(batches)
    except ValueError as error:
        return str(error)


GONE = st.sets(st.integers(0, sum(COUNTS) - 1), max_size=sum(COUNTS) - 1)

HOW = st.fixed_dictionaries(
    {
        "shuffle": st.sampled_from(
            [
                False,
                True,
                readers.Order(by="interleave"),
                readers.Order(by="interleave", buffer=5),
                readers.Order(by="interleave", shuffle=False),
            ]
        ),
        "split": st.sampled_from(["train", "train[2:]", "train[:50%]", "val+train", "train[1:3]"]),
        "batching": st.sampled_from(
            [
                "padded",
                "ragged",
                readers.Padded(buckets={"signal": [3, 6]}),
                readers.Packed({"signal": 12}),
            ]
        ),
        "repeat": st.sampled_from([1, 2]),
        "shard": st.sampled_from([None, (0, 2), (1, 2)]),
    }
)


@settings(max_examples=60, deadline=None)
@given(GONE, HOW, st.booleans(), st.integers(0, 4))
def test_rows_that_are_gone_are_as_if_they_had_not_been_written(gone, how, lists_seen, step):
    every = set(range(sum(COUNTS)))
    with tempfile.TemporaryDirectory() as folder:
        plain = write(Path(folder, "plain"), gone=gone)
        rows = ("rows", every - gone) if lists_seen else ("gone", gone)
        changed = list_rows(write(Path(folder, "changed")), *rows)
        assert readers.verify(changed).ok
        expected = all_of(plain, how)
        assert all_of(changed, how) == expected
        if isinstance(expected, str):
            return
        # A state after some steps continues in the same way.
        begun = readers.as_numpy(changed, 3, **how)
        rest = values(begun)[step:]
        begun = readers.as_numpy(changed, 3, **how)
        list(itertools.islice(begun, step))
        resumed = readers.as_numpy(changed, 3, **how, state=begun.state().to_json())
        assert values(resumed)[: len(rest)] == rest


def test_records_are_found_by_number(tmp_path):
    gone = {0, 5, 6, 7, 20}
    source = readers.RecordSource(list_rows(write(tmp_path), "gone", gone), "train")
    left = [row for row in range(21) if row not in gone]
    assert len(source) == 16
    assert [int(source[number]["label"]) for number in range(16)] == left
    assert [int(record["label"]) for record in source] == left
    assert [int(record["label"]) for record in source.__getitems__([3, 15, 0])] == [4, 19, 1]


def test_a_damaged_record_is_replaced_by_one_that_is_not_gone(tmp_path):
    write(tmp_path)
    shard = Manifest.read(tmp_path).splits["train"].shards[0].path
    list_rows(tmp_path, "gone", {2})
    flip(tmp_path / shard, 30)
    with pytest.raises(readers.CorruptRecordError, match="record 0 at byte 0"):
        list(readers.as_numpy(tmp_path, 4, split="train", batching="ragged"))
    (batch, *_) = readers.as_numpy(tmp_path, 4, split="train", batching="ragged", on_corrupt="skip")
    assert batch["label"].tolist() == [1, 1, 3, 4]


def test_a_subset_of_rows_is_a_dataset(tmp_path):
    write(tmp_path)
    some = [11, 3, 19, 4]
    subset = readers.Rows(tmp_path, some)
    source = readers.RecordSource(subset, "train")
    assert [int(record["label"]) for record in source] == sorted(some)
    half = readers.RecordSource(readers.Rows(tmp_path, [0, 2]), "train[10:]")
    assert [int(record["label"]) for record in half] == [10, 12]
    batches = readers.as_numpy(subset, 4, split="train", batching="padded", shuffle=True)
    assert sorted(next(batches)["label"].tolist()) == sorted(some)
    both = readers.as_numpy(
        [subset, readers.Rows(tmp_path, [0])], 9, split="train", columns=["label"]
    )
    assert next(both)["label"].tolist() == [3, 4, 11, 19, 0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([0, 21], "rows from 0 to 21, but train has 21 records"),
        ([-1], "rows from -1 to -1, but"),
        ([4, 2, 4], "row 4 occurs twice"),
        ([0.5], "expected a list of row numbers, got float64"),
        ([True, False], "expected a list of row numbers, got bool"),
    ],
)
def test_rows_that_do_not_exist_are_errors(tmp_path, rows, message):
    write(tmp_path)
    with pytest.raises(ValueError, match=message):
        readers.RecordSource(readers.Rows(tmp_path, rows), "train")


def test_an_empty_subset_has_no_batches(tmp_path):
    write(tmp_path)
    assert (
        list(readers.as_numpy(readers.Rows(tmp_path, []), 4, split="train", columns=["label"]))
        == []
    )


def test_a_mixture_of_subsets_opens_their_dataset_once(tmp_path):
    write(tmp_path)
    mix = readers.Mix({readers.Rows(tmp_path, range(k, 21, 7)): 1 for k in range(7)})
    batches = readers.as_numpy(mix, 7, split="train", columns=["label"], shuffle=True, repeat=None)
    labels = np.concatenate([next(batches)["label"] for _ in range(300)]) % 7
    assert np.bincount(labels).tolist() == pytest.approx([300] * 7, abs=37)
    assert len(batches._source.plan.parts) == len(COUNTS)


@pytest.mark.parametrize("damage", ["flip", "missing", "too_many"])
def test_a_damaged_list_of_rows_is_an_error(tmp_path, damage):
    list_rows(write(tmp_path), "gone", {1, 5})
    path = tmp_path / "train.gone"
    if damage == "flip":
        flip(path, 1)
    elif damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() * 2)
    with pytest.raises((readers.DatasetError, FileNotFoundError), match=r"train\.gone"):
        readers.RecordSource(tmp_path, "train")
    assert [problem.file for problem in readers.verify(tmp_path).problems] == [str(path)]


def test_generations_are_read_by_number_tag_and_state(tmp_path):
    write(tmp_path)
    folder = tmp_path / "generations"
    folder.mkdir()
    first = Manifest.read(tmp_path)
    data = first.to_bytes()
    (folder / "1.json").write_bytes(data)
    import hashlib

    sha256 = hashlib.sha256(data).hexdigest()
    begun = readers.as_numpy(tmp_path, 3, split="train", columns=["label"], shuffle=True)
    list(itertools.islice(begun, 2))
    state = begun.state()
    rest = values(begun)
    list_rows(tmp_path, "gone", set(range(10)))
    second = dataclasses.replace(Manifest.read(tmp_path), generation=2, ancestors=(sha256,))
    for name in ("generations/2.json", "manifest.json"):
        (tmp_path / name).write_bytes(second.to_bytes())
    assert len(readers.RecordSource(tmp_path, "train")) == 11
    assert len(readers.RecordSource(f"{tmp_path}@1", "train")) == 21
    (tmp_path / "tags").mkdir()
    (tmp_path / "tags/paper").write_text(f"1 {sha256}\n")
    assert len(readers.RecordSource(f"{tmp_path}@paper", "train")) == 21
    how = {"split": "train", "columns": ["label"], "shuffle": True}
    assert values(readers.as_numpy(tmp_path, 3, **how, state=state)) == rest
    (folder / "1.json").unlink()
    with pytest.raises(readers.DatasetError, match="generation 1 is not here any more"):
        readers.as_numpy(tmp_path, 3, **how, state=state)
    with pytest.raises(readers.DatasetError, match="no generation or tag 'other'"):
        readers.RecordSource(f"{tmp_path}@other")
    (tmp_path.parent / f"{tmp_path.name}@1").symlink_to(tmp_path)
    assert len(readers.RecordSource(f"{tmp_path}@1", "train")) == 11


def test_a_base_outside_of_the_parent_folder_has_to_be_allowed(tmp_path, monkeypatch):
    source = write(tmp_path / "deep/source")
    for base in ("../deep/source", str(source), "../../source", "../deep"):
        value = json.loads((source / "manifest.json").read_bytes())
        value["base"], value["requires"] = [base], ["base"]
        for split in value["splits"].values():
            for shard in split["shards"]:
                inside = shard["path"] if base != "../deep" else f"source/{shard['path']}"
                shard["path"] = f"{base}/{inside}"
        other = tmp_path / "view"
        other.mkdir(exist_ok=True)
        text = Manifest.from_json(value).to_bytes()
        (other / "manifest.json").write_bytes(text)
        monkeypatch.delenv("BEAM_SHARDS_BASES", raising=False)
        if base.startswith("../deep"):
            assert len(readers.RecordSource(other, "train")) == 21
            continue
        with pytest.raises(readers.DatasetError, match="if you trust it, set BEAM_SHARDS_BASES="):
            readers.RecordSource(other, "train")
        if base == str(source):
            monkeypatch.setenv("BEAM_SHARDS_BASES", f"/none,{tmp_path}/deep")
            assert len(readers.RecordSource(other, "train")) == 21


@given(
    GONE.filter(lambda gone: len(gone) < sum(COUNTS) - 3),
    st.sampled_from(["train", "train[3:]", "val+train"]),
    st.integers(0, 20),
)
@settings(max_examples=20, deadline=None)
def test_a_condition_chooses_what_python_chooses(gone, split, limit):
    with tempfile.TemporaryDirectory() as folder:
        directory = list_rows(write(Path(folder, "d")), "gone", gone)
        where = f"label < {limit} and len(signal) % 3 != 1 or label in [2, 15]"
        every = readers.RecordSource(directory, split)
        expected = [
            int(record["label"])
            for record in every
            if eval(where, {"label": int(record["label"]), "signal": record["signal"]})
        ]
        # The features of the condition need not be read.
        some = readers.RecordSource(readers.Rows(directory, where=where), split, ["signal"])
        assert len(some) == len(expected)
        some = readers.RecordSource(readers.Rows(directory, where=where), split)
        assert [int(record["label"]) for record in some] == expected


def test_each_class_has_its_exact_share_of_a_mixture(tmp_path):
    labels = np.random.default_rng(3).zipf(1.3, 400) % 40
    records = [
        {**record, "label": int(label)}
        for record, label in zip(signals([1] * 400), labels, strict=True)
    ]
    write_dataset(tmp_path, SIGNALS, {"train": [records[:150], records[150:]]})
    classes = np.unique(labels).tolist()
    mix = readers.Mix({readers.Rows(tmp_path, where=f"label == {c}"): 1 for c in classes})
    batches = readers.as_numpy(mix, 64, columns=["label"], shuffle=True, repeat=None)
    seen = np.concatenate([next(batches)["label"] for _ in range(50)])
    counts = np.bincount(seen, minlength=max(classes) + 1)[classes]
    assert counts.tolist() == pytest.approx([len(seen) / len(classes)] * len(classes), abs=4)
