"""Appends: a dataset in several generations has the records and figures of one that was written at once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs import DataError, UsageError, write
from beam_jobs.__main__ import main
from beam_jobs.dataset import generations
from beam_jobs.writing import append
from readers.format.index import HASH, HASH_LOW
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from tests.support.datasets import order_hash, records_of, verified

SCHEMA = Schema(
    {"key": ("string", ()), "x": ("float32", (None,)), "label": ("int64", ()), "n": ("int64", ())}
)
SPLITS = {"train": 0.7, "val": 0.3}


def rows(keys, n=0):
    """Records whose values follow from their keys and a number."""
    return [
        (key, {"x": np.full(len(key), n, np.float32), "label": len(key) % 3, "n": n})
        for key in keys
    ]


def add(directory, keys, n=0, **how):
    how = {"splits": SPLITS, "seed": 5, "num_shards": 2, "processes": 1} | how
    return write(rows(keys, n), directory, SCHEMA, **how)


def numbers(directory, split):
    """Key -> its number `n`, of all records of a split."""
    if not Manifest.read(directory).splits[split].records:
        return {}
    source = readers.RecordSource(directory, split, ["key", "n"])
    found = [(record["key"].decode(), int(record["n"])) for record in source]
    assert len(dict(found)) == len(found)
    return dict(found)


def all_numbers(directory):
    return {split: numbers(directory, split) for split in SPLITS}


KEYS = st.sets(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=20)


@settings(max_examples=25, deadline=None)
@given(KEYS, st.lists(KEYS, min_size=1, max_size=2))
def test_appended_records_are_as_if_they_had_been_written_at_once(first, more):
    with tempfile.TemporaryDirectory() as folder:
        here, whole = Path(folder, "here"), Path(folder, "whole")
        add(here, sorted(first))
        every, before = set(first), []
        for keys in more:
            before.append((f"{here}@{Manifest.read(here).generation}", all_numbers(here)))
            if new := sorted(keys - every):
                add(here, new, append=True)
            every |= keys
        expected = add(whole, sorted(every))
        found = verified(here)
        assert all_numbers(here) == all_numbers(whole)
        for name, split in expected.splits.items():
            assert found.splits[name].statistics == split.statistics
        assert records_of(here).keys() == every
        for generation, seen in before:
            assert all_numbers(generation) == seen


@settings(max_examples=25, deadline=None)
@given(KEYS, KEYS, st.sampled_from(["error", "skip", "replace"]))
def test_an_existing_key_is_an_error_or_left_out_or_replaced(first, second, existing):
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "here")
        add(here, sorted(first))
        before = all_numbers(here)
        again = sorted(first & second)
        if existing == "error" and again:
            with pytest.raises(
                UsageError, match=f"has {len(again)} of these keys, such as {again[0]};"
            ):
                add(here, sorted(second), 1, append=True)
            assert Manifest.read(here).generation == 1 and all_numbers(here) == before
            return
        add(here, sorted(second), 1, append=True, existing=existing)
        found = {key: n for split in all_numbers(here).values() for key, n in split.items()}
        new = {key: 1 for key in second if existing == "replace" or key not in first}
        assert found == {**dict.fromkeys(first, 0), **new}
        assert all_numbers(f"{here}@1") == before
        for split in Manifest.read(here).splits.values():
            values = split.statistics.get("n", {}).get("count", 0), split.counts_of("label")
            assert values[0] == split.records == sum((values[1] or {}).values())
        assert readers.verify(here).ok
        splits = Manifest.read(here).splits.values()
        assert sum(split.duplicates for split in splits) == (
            len(again) if existing == "skip" and len(again) < len(second) else 0
        )


def test_an_append_reads_no_older_record(tmp_path):
    add(tmp_path, ["a", "b", "c"])
    shards = [shard.path for shard in Manifest.read(tmp_path).shards]
    contents = {path: (tmp_path / path).read_bytes() for path in shards}
    for path in shards:
        (tmp_path / path).unlink()
    add(tmp_path, ["d"], append=True)
    for path, data in contents.items():
        (tmp_path / path).write_bytes(data)
    assert records_of(tmp_path).keys() == {*"abcd"}


def test_the_keys_of_a_deleted_dataset_are_forgotten(tmp_path):
    add(tmp_path / "d", ["a", "b"])
    add(tmp_path / "d", ["c"], append=True)
    shutil.rmtree(tmp_path / "d")
    add(tmp_path / "d", ["x", "y"])
    add(tmp_path / "d", ["a", "b"], append=True)
    assert records_of(tmp_path / "d").keys() == {*"abxy"}


def test_the_same_append_again_changes_nothing(tmp_path):
    add(tmp_path, ["a", "b"])
    add(tmp_path, ["c"], append=True)
    content = (tmp_path / "manifest.json").read_bytes()
    add(tmp_path, ["c"], append=True)
    assert (tmp_path / "manifest.json").read_bytes() == content
    with pytest.raises(UsageError, match="has 1 of these keys, such as c;"):
        add(tmp_path, ["c"], 1, append=True)
    with pytest.raises(UsageError, match="has 1 of these keys, such as c;"):
        add(tmp_path, ["c", "d"], append=True)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"seed": 6}, "seed: found 6, but .* was written with 5"),
        ({"splits": {"train": 1}}, "has the splits train, val"),
        ({"overwrite": True}, "append, overwrite: expected one of both"),
        ({"existing": "drop"}, "existing 'drop': expected error, skip, replace"),
    ],
)
def test_what_does_not_suit_the_dataset_is_an_error(tmp_path, how, message):
    add(tmp_path, ["a", "b"])
    with pytest.raises(UsageError, match=message):
        add(tmp_path, ["c"], append=True, **how)
    with pytest.raises(
        UsageError, match=r"records have other features than .*; the first that differs is '"
    ):
        write(
            [{"y": 1}], tmp_path, Schema({"y": ("int64", ())}), splits=SPLITS, seed=5, append=True
        )
    with pytest.raises(UsageError, match="no dataset is here: drop"):
        add(tmp_path / "none", ["c"], append=True)
    assert Manifest.read(tmp_path).generation == 1


def test_of_two_appends_both_are_committed_and_nothing_is_encoded_again(tmp_path, monkeypatch):
    add(tmp_path, ["a", "b", "c"])
    original = append._newest

    def late(output, names):
        monkeypatch.undo()
        add_now(output)
        return original(output, names)

    def add_now(output):
        # The lease of the first append would stop the second one.
        (tmp_path / ".staging" / output.run / "lease").unlink()
        add(tmp_path, ["d", "e"], 1, append=True)

    monkeypatch.setattr(append, "_newest", late)
    add(tmp_path, ["f"], 2, append=True)
    assert {k: n for s in all_numbers(tmp_path).values() for k, n in s.items()} == {
        **dict.fromkeys("abc", 0),
        **dict.fromkeys("de", 1),
        "f": 2,
    }
    assert Manifest.read(tmp_path).generation == 3
    assert readers.verify(tmp_path).ok


def test_of_two_appends_with_one_key_the_second_ends_with_one_line(tmp_path, monkeypatch):
    add(tmp_path, ["a"])
    original = append._newest

    def late(output, names):
        monkeypatch.undo()
        (tmp_path / ".staging" / output.run / "lease").unlink()
        add(tmp_path, ["b"], 1, append=True)
        return original(output, names)

    monkeypatch.setattr(append, "_newest", late)
    with pytest.raises(
        DataError, match="another command added 1 of the same keys while this one ran; run it again"
    ):
        add(tmp_path, ["b", "c"], 2, append=True)
    assert {k: n for s in all_numbers(tmp_path).values() for k, n in s.items()} == {"a": 0, "b": 1}


STEPS = ["write_file", "sync_names", "delete_files", "drop_uploads"]


@pytest.mark.parametrize("step", range(7))
def test_a_killed_append_leaves_a_whole_dataset_and_the_next_one_ends_it(
    tmp_path, monkeypatch, step
):
    whole = tmp_path / "whole"
    for directory in (tmp_path / "here", whole):
        add(directory, ["a", "b", "c"])
    add(whole, ["c", "d"], 1, append=True, existing="replace")
    left, originals = step, {name: getattr(generations, name) for name in STEPS}

    def counted(name):
        def call(*arguments, **named):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return originals[name](*arguments, **named)

        return call

    here = tmp_path / "here"
    for name in STEPS:
        monkeypatch.setattr(generations, name, counted(name))
    try:
        add(here, ["c", "d"], 1, append=True, existing="replace")
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    assert readers.verify(here).ok
    add(here, ["c", "d"], 1, append=True, existing="replace")
    assert all_numbers(here) == all_numbers(whole)
    assert (here / "manifest.json").read_bytes() == (whole / "manifest.json").read_bytes()


def test_a_line_says_what_was_added(tmp_path):
    first = add(tmp_path, ["a", "b", "c"], splits={"train": 1})
    how = {"splits": {"train": 1}, "append": True}
    second = add(tmp_path, ["b", "d", "e"], existing="skip", **how)
    line = "added 2 records to train in generation 2; skipped 1 existing key"
    assert append.added_line(first, second, drops=False) == line
    third = add(tmp_path, ["a", "f"], existing="replace", **how)
    line = "added 2 records to train in generation 3; replaced 1 existing key"
    assert append.added_line(second, third, drops=False) == line


def test_a_dataset_with_added_features_or_a_part_says_what_comes_first(tmp_path):
    add(tmp_path / "d", ["a", "b"], splits={"train": 1})
    table = tmp_path / "t.csv"
    table.write_text("key,y\na,1\nb,2\n")
    columns = ["columns", str(tmp_path / "d"), "--name", "more", "--table", str(table)]
    assert main([*columns, "--key", "key", "--extra_features", "y:int64"]) == 0
    how = {"splits": {"train": 1}, "append": True}
    with pytest.raises(UsageError, match=r"columns .*/d --drop more\), append, and add them again"):
        add(tmp_path / "d", ["c"], **how)
    assert main(["columns", str(tmp_path / "d"), "--drop", "more"]) == 0
    add(tmp_path / "d", ["c"], **how)
    assert main(["select", str(tmp_path / "d"), "--key", "a", "--output", str(tmp_path / "s")]) == 0
    with pytest.raises(
        UsageError, match=r"is a part of a dataset: run beam-shards compact .*/s first"
    ):
        add(tmp_path / "s", ["e"], **how)


def test_new_classes_get_the_next_ids(tmp_path):
    add(tmp_path, ["a"], label_names=["cat", "dog"])
    assert add(tmp_path, ["b"], append=True).label_names == ("cat", "dog")
    with pytest.raises(DataError, match="added classes of label"):
        add(tmp_path, ["c"], append=True, label_names=["dog", "cat"])
    names = ["cat", "dog", "eel"]
    assert add(tmp_path, ["c"], append=True, label_names=names).label_names == tuple(names)


@settings(max_examples=50, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=3), KEYS, st.randoms())
def test_stored_keys_are_found_wherever_they_are(shards, others, random):
    """With records that a top-up moved to the end of a shard, and several generations in one split."""
    known, taken = {}, set()
    parts, first = [], 0
    for keys in shards:
        own = sorted(keys - taken, key=lambda key: order_hash(0, key))
        taken |= keys
        if len(own) > 2 and random.random() < 0.5:
            own.append(own.pop(random.randrange(len(own) - 1)))
        hashes = np.array([order_hash(0, key) for key in own], np.uint64)
        parts.append(
            {HASH: (hashes >> np.uint64(32)).astype(np.uint32), HASH_LOW: hashes.astype(np.uint32)}
        )
        known |= {key: first + row for row, key in enumerate(own)}
        first += len(own)
    import readers.format.lookup.stored_keys as module
    from readers.format.lookup.stored import StoredSplit

    manifest = Manifest(SCHEMA, {"train": readers.Split(())})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "open_generation", lambda path: ("", manifest, ""))
        patch.setattr(StoredSplit, "sections", lambda *_: iter(parts))
        module._shards.cache_clear()
        keys = sorted({*known, *others})
        found = StoredKeys("x", 0).find(np.array([order_hash(0, key) for key in keys], np.uint64))
        module._shards.cache_clear()
    assert [row for _, row in found.tolist()] == [known.get(key, -1) for key in keys]
