"""Families of features: each dataset is compared with one whose shards have all features of a record."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from readers.format.encode.records import Encoder
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.head import shown_records
from tests.readers.test_rows import COUNTS, GONE, HOW, all_of, list_rows
from tests.support.datasets import flip, plain_sections, write_dataset, write_shard

SCHEMA = Schema(
    {
        "label": ("int64", ()),
        "signal": ("float32", (None, 2)),
        "clip": ("float32", (3,)),
        "words": ("string", (None,), "list"),
        "name": ("string", ()),
        "mask": ("uint8", (2, 3, 1), "png"),
        "score": ("float64", ()),
    }
)

# Feature -> its family; the others are in the shards of the split.
DIVIDED = st.dictionaries(st.sampled_from([*SCHEMA]), st.sampled_from("ab"), max_size=6)


def records(count, seed=3):
    import io

    from PIL import Image

    random, found = np.random.default_rng(seed), []
    for row in range(count):
        mask = io.BytesIO()
        Image.fromarray(random.integers(0, 255, (2, 3), np.uint8)).save(mask, "png")
        found.append(
            {
                "label": row,
                "signal": random.random((int(random.integers(0, 9)), 2), np.float32),
                "clip": random.random(3, np.float32),
                "words": [f"w{row}"] * int(random.integers(0, 4)),
                "name": f"record {row}",
                "mask": mask.getvalue(),
                "score": row / 7,
            }
        )
    return found


def write(directory, families=None, counts=COUNTS):
    """A dataset with the same records in the same shards, given the family of some of its features."""
    every, firsts = records(sum(counts) + 4), np.cumsum([0, *counts])
    shards = [every[a : a + n] for a, n in zip(firsts.tolist(), counts, strict=False)]
    splits = {"train": shards, "val": [every[-4:-1], every[-1:]]}
    groups = dict[str, list[str]]()
    for name in SCHEMA:
        groups.setdefault((families or {}).get(name, ""), []).append(name)
    found, written = groups.setdefault("", []), dict[str, Manifest]()
    if not found:  # A dataset has features in its shards.
        found.append(groups[max(groups)].pop())
    for family, names in groups.items():
        if names:
            schema = SCHEMA.select(names)
            some = {
                split: [[{n: r[n] for n in names} for r in part] for part in parts]
                for split, parts in splits.items()
            }
            written[family] = Manifest.read(write_dataset(directory / family, schema, some))
            (directory / family / "manifest.json").unlink()
    manifest = written.pop("")
    of_split = {
        name: dataclasses.replace(
            split,
            families={
                family: tuple(
                    dataclasses.replace(shard, path=f"{family}/{shard.path}")
                    for shard in other.splits[name].shards
                )
                for family, other in written.items()
            },
        )
        for name, split in manifest.splits.items()
    }
    names = {family: tuple(other.schema) for family, other in written.items()}
    whole = dataclasses.replace(manifest, schema=SCHEMA, splits=of_split, families=names)
    (directory / "manifest.json").write_bytes(whole.to_bytes())
    return directory


COLUMNS = st.none() | st.lists(st.sampled_from([*SCHEMA]), min_size=1, unique=True)


@settings(max_examples=60, deadline=None)
@given(DIVIDED, GONE, HOW, COLUMNS)
def test_readers_see_one_record(families, gone, how, columns):
    with tempfile.TemporaryDirectory() as folder:
        plain = list_rows(write(Path(folder, "plain")), "gone", gone)
        changed = list_rows(write(Path(folder, "changed"), families), "gone", gone)
        assert readers.verify(changed).ok
        if isinstance(how["batching"], readers.Padded):
            columns = columns and [*{*columns, "signal"}]
        if isinstance(how["batching"], readers.Packed):
            columns = ["signal"]
        how |= {"columns": columns}
        assert all_of(changed, how) == all_of(plain, how)


@settings(max_examples=20, deadline=None)
@given(DIVIDED, DIVIDED, COLUMNS)
def test_records_are_the_same_by_number_together_and_in_a_list(one, other, columns):
    with tempfile.TemporaryDirectory() as folder:
        plain = write(Path(folder, "plain"))
        some, more = write(Path(folder, "one"), one), write(Path(folder, "other"), other)
        expected = readers.RecordSource([plain, plain], "train", columns)
        found = readers.RecordSource([some, more], "train", columns)
        for source in (expected, found):
            assert len(source) == 2 * sum(COUNTS)
        numbers = [3, 40, 0, 21, 20] * 10
        for a, b in zip(
            [*found, *found.__getitems__(numbers), found[22]],
            [*expected, *expected.__getitems__(numbers), expected[22]],
            strict=True,
        ):
            assert list(a) == list(b)
            assert all(np.array_equal(a[name], b[name]) for name in a)
        where = "label % 3 == 1 and score < 2 and len(signal) > len(words)"
        counts = [
            len(readers.RecordSource(readers.Rows(path, where=where), "train", columns))
            for path in (plain, some)
        ]
        assert counts[0] == counts[1] > 0


CLIP = {"clip": "a", "words": "a", "mask": "a"}


def test_files_without_the_chosen_features_are_not_opened(tmp_path):
    write(tmp_path, CLIP)
    for file in (tmp_path / "a").iterdir():
        file.unlink()
    batches = readers.as_numpy(tmp_path, 5, columns=["label", "score"], split="train")
    assert sum(len(batch["label"]) for batch in batches) == sum(COUNTS)
    with pytest.raises(FileNotFoundError, match="a/train-00000"):
        readers.as_numpy(tmp_path, 5, columns=["label", "clip"], split="train")
    write(tmp_path, CLIP)
    for file in tmp_path.glob("*.tfrecord*"):
        file.unlink()
    (batch, *_) = readers.as_numpy(tmp_path, 5, columns=["clip", "mask"], split="train")
    assert batch["clip"].shape == (5, 3)
    assert len(readers.RecordSource(tmp_path, "train", ["clip"])) == sum(COUNTS)


@pytest.mark.parametrize("columns", [["label", "clip"], ["label", "words", "clip"]])
@pytest.mark.parametrize("damaged", [("", "a"), ("a", "a"), ("a", "")])
def test_a_damaged_record_of_one_file_is_a_damaged_record(tmp_path, damaged, columns):
    """Record 1 is damaged in the first file, record 2 in the second."""
    write(tmp_path, CLIP)
    train = Manifest.read(tmp_path).splits["train"]
    for row, family in enumerate(damaged, 1):
        path = tmp_path / (train.families["a"] if family else train.shards)[0].path
        raw = path.read_bytes()
        at = 0
        for _ in range(row):
            at += 16 + int.from_bytes(raw[at : at + 8], "little")
        flip(path, at + 20)
    how = {"split": "train", "columns": columns, "batching": "ragged"}
    first = "a/train-00000" if damaged[0] else rf"{tmp_path.name}/train-00000"
    with pytest.raises(readers.CorruptRecordError, match=f"{first}.*record 1 at byte"):
        list(readers.as_numpy(tmp_path, 4, **how))
    (batch, *_) = readers.as_numpy(tmp_path, 4, **how, on_corrupt="skip")
    assert batch["label"].tolist() == [0, 3, 3, 3]
    assert [clip.tolist() for clip in batch["clip"]] == [
        records(4)[row]["clip"].tolist() for row in (0, 3, 3, 3)
    ]
    source = readers.RecordSource(tmp_path, "train", columns, on_corrupt="skip")
    assert [int(source[row]["label"]) for row in (0, 1, 2)] == [0, 3, 3]
    assert len(readers.verify(tmp_path).problems) == 2


def test_a_picture_that_is_wrong_names_its_file(tmp_path):
    write(tmp_path, CLIP)
    manifest = Manifest.read(tmp_path)
    schema = SCHEMA.select(["clip", "mask", "words"])
    shard = manifest.splits["train"].families["a"][0]
    every = [{**{n: r[n] for n in schema}, "mask": b"no picture"} for r in records(COUNTS[0])]
    encoder = Encoder(schema)
    checked = [encoder.check(record) for record in every]
    sections = plain_sections(schema, checked, [0] * len(every))
    new = write_shard(tmp_path / shard.path, [*map(encoder.pack, checked)], sections=sections)
    new = dataclasses.replace(new, path=shard.path)
    train = manifest.splits["train"]
    family = {"a": (new, *train.families["a"][1:])}
    splits = {**manifest.splits, "train": dataclasses.replace(train, families=family)}
    changed = dataclasses.replace(manifest, splits=splits)
    (tmp_path / "manifest.json").write_bytes(changed.to_bytes())
    with pytest.raises(readers.RecordError, match=r"a/train-00000.*record 0 at byte 0.*mask"):
        list(readers.as_numpy(tmp_path, 4, split="train", columns=["label", "mask"]))


def test_work_on_records_sees_the_features_of_all_files(tmp_path):
    write(tmp_path, CLIP)
    batches = readers.as_numpy(
        tmp_path,
        4,
        split="train[2:6]",
        columns=["label", "clip", "mask"],
        decoders={"mask": readers.decoders.Resize(4)},
        map=lambda record, key: {"sum": record["label"] + record["clip"].sum(), **record},
    )
    (batch,) = batches
    expected = [row + records(6)[row]["clip"].sum() for row in range(2, 6)]
    assert batch["sum"] == pytest.approx(expected)
    assert batch["mask"].shape == (4, 4, 4, 1)


def test_tensorflow_zips_the_files(tmp_path):
    write(tmp_path, CLIP)
    train = Manifest.read(tmp_path).splits["train"]
    both = [
        tf.data.TFRecordDataset([str(tmp_path / shard.path) for shard in shards])
        for shards in (train.shards, train.families["a"])
    ]
    for row, (one, other) in enumerate(tf.data.Dataset.zip(*both)):
        # Serialized messages can be appended to each other.
        example = tf.train.Example.FromString(one.numpy() + other.numpy())
        assert example.features.feature["label"].int64_list.value[:] == [row]
        assert example.features.feature["clip"].float_list.value[:] or "clip" in (
            example.features.feature
        )
    assert row + 1 == sum(COUNTS)


@pytest.mark.parametrize(
    "shuffle",
    [False, readers.Order(by="global"), readers.Order(by="interleave", buffer=7)],
)
def test_windows_and_the_cache_of_a_store_have_all_files(tmp_path, shuffle):
    plain, changed = write(tmp_path / "plain"), write(tmp_path / "changed", CLIP)
    store = fsspec.filesystem("memory")
    for file in changed.rglob("*.*"):
        store.pipe(f"/families/{file.relative_to(changed)}", file.read_bytes())
    how = {"split": "train", "batching": "padded", "shuffle": shuffle, "repeat": 2}
    for columns in (["label", "clip", "words"], ["clip", "words"], ["label"]):
        expected = all_of(plain, {**how, "columns": columns})
        cache = readers.Cache(tmp_path / f"cache{len(columns)}")
        for others in ({}, {"cache": cache}, {"cache": cache}):
            assert all_of("memory://families", {**how, "columns": columns, **others}) == expected
        kept = len([*Path(cache.directory).glob("*.shard")])
        assert kept == len(COUNTS) * (2 if len(columns) == 3 else 1)
    store.rm("/families", recursive=True)


def test_other_verbs_read_them(tmp_path):
    write(tmp_path, CLIP)
    assert readers.check(tmp_path).records == sum(COUNTS) + 4
    page = readers.report(tmp_path, tmp_path.parent / "report.html")
    assert "clip" in Path(page).read_text()
    assert any(line.startswith("  clip") for line in shown_records(str(tmp_path), "train", 1))
    assert any("clip" in line for line in str(readers.open(tmp_path)).splitlines())
