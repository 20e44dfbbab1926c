"""Commands that copy records, or refer to files of other datasets: each is compared with one write of what is left."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs import UsageError, write
from beam_jobs.changes.compact import compact
from beam_jobs.changes.merge import merge
from beam_jobs.changes.purge import purge
from readers.format.decode.records import parse_example
from readers.format.manifest import Manifest, open_generation
from tests.support.living import (
    SCHEMA,
    SPLITS,
    batches,
    command,
    living,
    record,
    write_living,
)

ALL = range(24)

# For each record the generation that adds it (3: none), and the records that are deleted afterwards.
ADDED = st.lists(st.integers(0, 3), min_size=len(ALL), max_size=len(ALL))
GONE = st.sets(st.sampled_from(ALL))


def history(directory, added, gone, **how):
    """A dataset of several generations; returns the numbers of its records."""
    several = [[n for n in ALL if added[n] == g] for g in range(3)]
    several = [numbers for numbers in several if numbers]
    for number, numbers in enumerate(several):
        write_living(directory, numbers, append=bool(number), **how)
    stored = {n for numbers in several for n in numbers}
    if stored & gone:
        command("delete", directory, *(f"--key=k{n}" for n in stored & gone))
    return sorted(stored - gone)


def keys_of(path):
    """The keys in a TFRecord file, found in its bytes."""
    data, keys, at = path.read_bytes(), set(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        found = parse_example(data[at + 12 : at + 12 + size], {"key"})
        keys.add(bytes(found["key"][1][0]).decode())
        at += size + 16
    return keys


def files_with(directory, keys):
    paths = Path(directory).rglob("*.tfrecord")
    return {str(path.relative_to(directory)) for path in paths if keys_of(path) & keys}


def assert_same(directory, plain):
    """Compares all shards, indexes and statistics of two datasets byte for byte, but not their names."""
    ours, theirs = Manifest.read(directory), Manifest.read(plain)
    assert [*ours.splits] == [*theirs.splits]
    for name, split in ours.splits.items():
        other = theirs.splits[name]
        assert split.statistics == other.statistics
        assert [dataclasses.replace(s, path="") for s in split.shards] == [
            dataclasses.replace(s, path="") for s in other.shards
        ]
        for shard, same in zip(split.shards, other.shards, strict=True):
            for end in ("", ".index"):
                found = Path(directory, shard.path + end).read_bytes()
                assert found == Path(plain, same.path + end).read_bytes()
    assert readers.verify(directory).ok


@settings(max_examples=15, deadline=None)
@given(ADDED, GONE, st.sampled_from([1, 3, "train=5,val=2", None]))
def test_a_compact_dataset_is_that_of_one_write(added, gone, num_shards):
    if {*added} == {3}:
        return
    with tempfile.TemporaryDirectory() as folder:
        directory, plain = Path(folder, "photos"), Path(folder, "plain")
        left = history(directory, added, gone)
        older = [f"{directory}@{n + 1}" for n in range(Manifest.read(directory).generation)]
        was = [
            batches(path, "train") for path in older if Manifest.read(path).splits["train"].records
        ]
        compact(str(directory), num_shards, "1k", processes=1)
        if not left:
            assert living(directory) == {"train": [], "val": []}
            return
        write_living(plain, left, num_shards=num_shards, shard_size="1k")
        assert_same(directory, plain)
        assert was == [
            batches(path, "train") for path in older if Manifest.read(path).splits["train"].records
        ]
        # The same command has nothing to do.
        number = Manifest.read(directory).generation
        assert compact(str(directory), num_shards, "1k").generation == number


def with_family(directory):
    """A dataset of all records, whose features `label` and `levels` are in files of a family."""
    parts, others = [], ("label", "levels")
    for number, names in enumerate(([name for name in SCHEMA if name not in others], others)):
        rows = [(f"k{n}", {name: v for name, v in record(n).items() if name in names}) for n in ALL]
        part = f"{directory}{number or ''}"
        parts.append(write(rows, part, SCHEMA.select([*names]), splits=SPLITS, num_shards=2))
    base, family = parts
    folder = family.shards[0].path.split("/")[0]
    Path(f"{directory}1", folder).rename(Path(directory, folder))
    splits = {
        name: dataclasses.replace(
            split,
            families={"more": family.splits[name].shards},
            statistics=split.statistics | family.splits[name].statistics,
        )
        for name, split in base.splits.items()
    }
    sha256 = open_generation(str(directory)).sha256
    fields = {"schema": SCHEMA, "families": {"more": others}, "splits": splits}
    whole = dataclasses.replace(base, **fields, generation=2, ancestors=(sha256,))
    for name in ("generations/2.json", "manifest.json"):
        Path(directory, name).write_bytes(whole.to_bytes())


@pytest.mark.parametrize("gone", [set(), {2, 7, 11}])
def test_families_become_part_of_the_records(tmp_path, gone):
    with_family(tmp_path / "photos")
    if gone:
        command("delete", tmp_path / "photos", *(f"--key=k{n}" for n in gone))
    compact(str(tmp_path / "photos"), 3, processes=1)
    write_living(tmp_path / "plain", [n for n in ALL if n not in gone], num_shards=3)
    assert_same(tmp_path / "photos", tmp_path / "plain")


@settings(max_examples=10, deadline=None)
@given(ADDED, GONE, ADDED, GONE)
def test_a_merged_dataset_has_the_records_of_all(added, gone, others, gone_too):
    others = [n if one == 3 else 3 for n, one in zip(others, added, strict=True)]
    if {*added} == {3} or {*others} == {3}:
        return
    with tempfile.TemporaryDirectory() as folder:
        first, second, output, plain = (Path(folder, n) for n in ("a", "far/b", "both", "plain"))
        left = [*history(first, added, gone), *history(second, others, gone_too)]
        merge([str(first), str(second)], str(output))
        assert Manifest.read(output).base == ("../a", "../far/b")
        assert readers.verify(output).ok
        assert sum(map(len, living(output).values())) == len(left)
        # The same command has nothing to do.
        assert merge([str(first), str(second)], str(output)).generation == 1
        compact(str(output), 3, processes=1)
        shutil.rmtree(first), shutil.rmtree(second)
        if left:
            write_living(plain, sorted(left), num_shards=3)
            assert_same(output, plain)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"numbers": [3, 30]}, "1 keys are in several datasets: k3"),
        ({"seed": 1}, r"/b has another seed \(1, not None\) than .*/a: .* beam-shards reshard"),
        ({"label_names": [*"abcd"]}, "/b has other classes, .* of feature 'label' than"),
        (
            {"schema": SCHEMA.select(["key", "label"])},
            r"another feature '\w+' \(missing, not float32",
        ),
    ],
)
def test_datasets_that_differ_are_not_merged(tmp_path, how, message):
    write_living(tmp_path / "a", ALL)
    schema, numbers = how.pop("schema", SCHEMA), how.pop("numbers", [40, 41])
    rows = [(f"k{n}", {k: v for k, v in record(n).items() if k in schema}) for n in numbers]
    write(rows, tmp_path / "b", schema, splits=SPLITS, **how)
    with pytest.raises(UsageError, match=message):
        merge([f"{tmp_path}/a", f"{tmp_path}/b"], f"{tmp_path}/both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(UsageError, match="a dataset is here already"):
        merge([f"{tmp_path}/a"], f"{tmp_path}/b")


@settings(max_examples=12, deadline=None)
@given(ADDED, GONE, st.sets(st.sampled_from(ALL), max_size=3), st.booleans())
def test_nothing_but_the_keys_is_erased(added, gone, erased, is_whole):
    if {*added} == {3}:
        return
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder, "photos")
        if is_whole:
            with_family(directory)
        else:
            history(directory, added, gone, num_shards=3)
        keys = {f"k{n}" for n in erased}
        before, model = Manifest.read(directory), living(directory)
        had = files_with(directory, keys)
        listed = {n: Manifest.read(f"{directory}@{n}") for n in range(1, before.generation + 1)}
        kept = {
            n: batches(f"{directory}@{n}", "train")
            for n, m in listed.items()
            if not had & m.paths and m.splits["train"].records
        }
        stored = set().union(*(keys_of(p) for p in directory.rglob("*.tfrecord")))
        receipt = purge(str(directory), keys, processes=1)
        assert not files_with(directory, keys)
        assert living(directory) == {
            s: [n for n in ns if n not in erased] for s, ns in model.items()
        }
        assert receipt["keys"].keys() == {
            hashlib.sha256(k.encode()).hexdigest() for k in keys & stored
        }
        assert receipt["generations"] == [
            n for n, manifest in listed.items() if manifest.paths & had
        ]
        # Other shards keep their names, and other generations their batches.
        after = Manifest.read(directory)
        others = {shard.path for shard in before.shards} - had
        assert others <= after.paths
        assert kept == {n: batches(f"{directory}@{n}", "train") for n in kept}
        assert readers.verify(directory).ok
        plain = Path(folder, "plain")
        left = sorted(n for ns in living(directory).values() for n in ns)
        if left:
            compact(str(directory), 3, processes=1)
            write_living(plain, left, num_shards=3)
            if not is_whole:
                assert_same(directory, plain)
