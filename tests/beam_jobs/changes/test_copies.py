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
from beam_jobs import DataError, UsageError, write
from beam_jobs.__main__ import main
from beam_jobs.changes import expire
from beam_jobs.changes import purge as purge_command
from beam_jobs.changes.compact import compact
from beam_jobs.changes.merge import merge
from beam_jobs.changes.purge import purge
from beam_jobs.dataset import changes, copies, generations
from readers.format.decode.records import parse_example
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import Manifest, open_generation
from tests.support.living import (
    SCHEMA,
    SPLITS,
    batches,
    command,
    files_of,
    living,
    record,
    write_living,
)

ALL = range(24)

SIMPLE = readers.Schema({"key": ("string", ()), "n": ("int64", ())})

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
        keys.update(bytes(key).decode() for key in found.get("key", (0, ()))[1])
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


def test_families_become_part_of_the_records(tmp_path):
    for name, gone, erased in (("a", [], []), ("b", ["k2", "k7", "k11"], ["k3", "k4", "k5"])):
        with_family(tmp_path / name)
        if gone:
            command("delete", tmp_path / name, *(f"--key={key}" for key in gone))
            purge(f"{tmp_path}/{name}", erased, processes=1)
        compact(f"{tmp_path}/{name}", 3, processes=1)
        left = [n for n in ALL if f"k{n}" not in (*gone, *erased)]
        write_living(tmp_path / f"plain-{name}", left, num_shards=3)
        assert_same(tmp_path / name, tmp_path / f"plain-{name}")


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


@settings(max_examples=10, deadline=None)
@given(ADDED, GONE, st.sets(st.sampled_from(ALL), max_size=3))
def test_nothing_but_the_keys_is_erased(added, gone, erased):
    if {*added} == {3}:
        return
    with tempfile.TemporaryDirectory() as folder:
        directory, plain = Path(folder, "photos"), Path(folder, "plain")
        history(directory, added, gone, num_shards=3)
        keys = {f"k{n}" for n in erased}
        before, model, had = (
            Manifest.read(directory),
            living(directory),
            files_with(directory, keys),
        )
        listed = {n: Manifest.read(f"{directory}@{n}") for n in range(1, before.generation + 1)}
        purged = [n for n, manifest in listed.items() if manifest.paths & had]
        kept = [n for n in listed if n not in purged and listed[n].splits["train"].records]
        was = {n: batches(f"{directory}@{n}", "train") for n in kept}
        stored = {f"k{n}" for n in ALL if added[n] < 3}
        receipt = purge(str(directory), keys, processes=1)
        assert not files_with(directory, keys) and not receipt["left"]
        left = {s: [n for n in numbers if n not in erased] for s, numbers in model.items()}
        assert living(directory) == left
        expected = {hashlib.sha256(key.encode()).hexdigest(): 1 for key in keys & stored}
        assert (receipt["keys"], receipt["generations"]) == (expected, purged)
        # Other shards keep their names, and other generations their batches.
        assert {shard.path for shard in before.shards} - had <= Manifest.read(directory).paths
        assert was == {n: batches(f"{directory}@{n}", "train") for n in kept}
        for n in purged:
            with pytest.raises(ValueError, match=f"generation {n} is not here;"):
                Manifest.read(f"{directory}@{n}")
        assert readers.verify(directory).ok
        if numbers := sorted(n for some in left.values() for n in some):
            write_living(plain, numbers, num_shards=3)
            for name, split in before.splits.items():
                if {shard.path for shard in split.shards} & had:
                    figures = [Manifest.read(d).splits[name].statistics for d in (directory, plain)]
                    assert figures[0] == figures[1]
            compact(str(directory), 3, processes=1)
            assert_same(directory, plain)


def test_a_state_of_a_purged_generation_ends_with_one_line(tmp_path):
    write_living(tmp_path / "photos", ALL)
    how = {"split": "train", "shuffle": True, "batching": "padded"}
    state = readers.as_numpy(str(tmp_path / "photos"), 3, **how).state()
    command("tag", tmp_path / "photos", "paper")
    key = f"k{living(tmp_path / 'photos')['train'][0]}"
    text = command(
        "purge", tmp_path / "photos", "--key", key, "--receipt", tmp_path / "receipt.json"
    )
    assert "erased 1 key: 1 records and rejects" in text and "tags: 1" in text
    assert key not in (tmp_path / "receipt.json").read_text()
    with pytest.raises(ValueError, match="generation 1 is not here;"):
        next(iter(readers.as_numpy(str(tmp_path / "photos"), 3, **how, state=state)))
    with pytest.raises(ValueError, match="no generation or tag 'paper'"):
        Manifest.read(f"{tmp_path}/photos@paper")


def counted(original, left):
    """A function that is killed when it is called for the n-th time, together with others that share the count."""

    def call(*arguments, **named):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return original(*arguments, **named)

    return call


NAMED = [(changes, "write_file"), (copies.ShardFile, "finish"), (copies.ShardFile, "commit")]
NAMED += [(generations, n) for n in ("write_file", "sync_names", "delete_files", "drop_uploads")]
NAMED += [(expire, "delete_files"), (purge_command, "delete_files")]


def compacted(folder):
    compact(f"{folder}/photos", 3, processes=1)


def purged(folder):
    purge(f"{folder}/photos", {"k3", "k7"}, processes=1)


def merged(folder):
    merge([f"{folder}/photos", f"{folder}/more"], f"{folder}/both")


@pytest.mark.parametrize("run", [compacted, purged, merged])
def test_a_killed_command_is_repeated_to_the_same_bytes(tmp_path, monkeypatch, run):
    write_living(tmp_path / "a/photos", range(12))
    write_living(tmp_path / "a/photos", range(12, 20), append=True)
    write_living(tmp_path / "a/more", range(30, 40))
    shutil.copytree(tmp_path / "a", tmp_path / "plain")
    run(tmp_path / "plain")
    for step in range(100):
        shutil.copytree(tmp_path / "a", tmp_path / f"b{step}")
        left = [None] * step
        with monkeypatch.context() as patched:
            for module, name in NAMED:
                patched.setattr(module, name, counted(getattr(module, name), left))
            try:
                run(tmp_path / f"b{step}")
                break
            except KeyboardInterrupt:
                pass
        # The newest generation is whole.
        for name in {"photos", "more", "both"} & {
            p.name for p in (tmp_path / f"b{step}").iterdir()
        }:
            if (tmp_path / f"b{step}" / name / "generations").exists():
                assert readers.verify(tmp_path / f"b{step}" / name).ok
        run(tmp_path / f"b{step}")
        assert files_of(tmp_path / f"b{step}") == files_of(tmp_path / "plain")
    assert step > 8


def deleted(folder):
    command("delete", f"{folder}/photos", "--key", "k3", "--key", "k7")


@pytest.mark.parametrize("second", [deleted, purged])
@pytest.mark.parametrize("first", [compacted, purged])
def test_of_two_commands_at_once_one_commits(tmp_path, monkeypatch, first, second):
    write_living(tmp_path / "photos", ALL)
    seen = StoredSplit.flags

    def overtaken(*arguments):
        monkeypatch.undo()
        with pytest.raises(UsageError, match="another job is writing here: "):
            second(tmp_path)
        monkeypatch.setattr("beam_jobs.dataset.lease.refuse_if_busy", lambda _: None)
        monkeypatch.setattr("beam_jobs.dataset.lease._runs", lambda *_: {})
        second(tmp_path)
        return seen(*arguments)

    monkeypatch.setattr(StoredSplit, "flags", overtaken)
    # After a purge, the files are gone that the first one reads.
    with pytest.raises(
        (DataError, UsageError), match=r"another job|is missing|No such file"
    ) as caught:
        first(tmp_path)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert readers.verify(tmp_path / "photos").ok
    expected = {*ALL} - {3, 7}
    assert {n for numbers in living(tmp_path / "photos").values() for n in numbers} == expected


def test_a_purge_says_what_it_did_not_find_and_looks_for_a_place_of_its_receipt_first(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write([("a", {"n": 1}), ("b", {"n": 2})], "d", SIMPLE, processes=1)
    command = ["purge", "d", "--key", "a", "--key", "z", "--receipt"]
    assert main([*command, "none/receipt.json"]) == 2
    assert "there is no directory" in capsys.readouterr().err
    assert len(readers.RecordSource("d")) == 2
    assert main([*command, "receipt.json"]) == 0
    assert "1 key: in no file below" in capsys.readouterr().out
    assert len(readers.RecordSource("d")) == 1


def test_files_of_another_writer_are_not_purged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write([("a", {"n": 1})], "made", SIMPLE, processes=1)
    (tmp_path / "theirs").mkdir()
    (shard,) = (tmp_path / "made").rglob("*.tfrecord")
    shard.rename(tmp_path / "theirs/train-00000-of-00001.tfrecord")
    (tmp_path / "theirs/more.jsonl").write_text("[1]\n")
    assert main(["index", "theirs", "--output", "theirs"]) == 0
    assert main(["purge", "theirs", "--key", "a"]) == 2
    assert "another writer's files" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--keys", "--rows"])
def test_a_missing_file_of_the_user_is_a_mistake_and_a_missing_shard_is_named(
    tmp_path, monkeypatch, capsys, flag
):
    monkeypatch.chdir(tmp_path)
    write([("a", {"n": 1}), ("b", {"n": 2})], "d", SIMPLE, processes=1)
    assert main(["delete", "d", flag, "none.txt"]) == 2
    assert "none.txt: cannot be read" in capsys.readouterr().err
    (shard,) = (tmp_path / "d").rglob("*.tfrecord")
    shard.unlink()
    for arguments in (["delete", "d", "--key", "a"], ["compact", "d"]):
        assert main(arguments) == 2
        assert (
            f"{shard}: the manifest lists this shard, but it is missing" in capsys.readouterr().err
        )


def test_a_folder_of_other_files_is_not_a_dataset(tmp_path):
    (tmp_path / "cat.jpg").touch()
    with pytest.raises(readers.DatasetError, match=r"no manifest\.json here"):
        compact(str(tmp_path))
