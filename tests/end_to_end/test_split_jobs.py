"""Splits with exact shares, by label and by group, in whole jobs."""

import json
from collections import Counter

import numpy as np

from tests.support.commands import ONE, run
from tests.support.datasets import balanced, records_of


def write_recordings(folder, lengths):
    """Files of a label and a person each: `a/p3-0.npy`."""
    for name, length in lengths.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / f"{name}.npy", np.zeros((length, 1), np.float32))


def counts_of(out):
    """(label, split) -> number of records, and key of a file -> the splits of its records."""
    counts, splits = Counter(), {}
    for key, record in records_of(out).items():
        counts[int(record["label"]), record["split"]] += 1
        splits.setdefault(key.partition("#")[0], set()).add(record["split"])
    return counts, splits


def test_windows_give_every_split_its_share_of_each_label_and_stay_with_their_recording(tmp_path):
    lengths = {f"{label}/{n}": 8 for label in "ab" for n in range(10)}
    write_recordings(tmp_path / "in", lengths | {"c/0": 80, "c/1": 40, "c/2": 40})
    flags = ["--window", 4, "--stratify", "--splits", "train=0.5,val=0.3,test=0.2"]
    arguments = ["sensors", "--input", tmp_path / "in", *flags]
    assert run(*arguments, *ONE, "--output", tmp_path / "o") == 0
    balanced(tmp_path / "o")
    counts, splits = counts_of(tmp_path / "o")
    assert all(len(found) == 1 for found in splits.values())
    assert [counts[0, s] for s in ("train", "val", "test")] == [10, 6, 4]
    assert [counts[1, s] for s in ("train", "val", "test")] == [10, 6, 4]
    assert [counts[2, s] for s in ("train", "val", "test")] == [20, 10, 10]


def test_people_are_dealt_to_folds_of_equal_shares_of_each_label(tmp_path):
    names = {f"{'ab'[p % 2]}/p{p}-{n}": 3 for p in range(12) for n in range(1 + p % 3)}
    write_recordings(tmp_path / "in", names)
    flags = ["sensors", "--input", tmp_path / "in", "--group_by", r"p\d+", "--stratify"]
    out = tmp_path / "o"
    assert run(*flags, "--folds", 3, *ONE, "--output", out) == 0
    balanced(out)
    counts, splits = counts_of(out)
    person = {}
    for key, found in splits.items():
        person.setdefault(key.split("-")[0], set()).update(found)
    assert all(len(found) == 1 for found in person.values())
    assert counts == {(label, f"fold{k}"): 4 for label in (0, 1) for k in range(3)}
    options = json.loads((out / "manifest.json").read_text())["options"]
    assert (options["folds"], options["stratify"]) == ("3", True)
