"""`beam-shards diff`: keys of two generations, against sets in Python."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs import write
from readers.__main__ import main
from readers.diff import diff
from readers.format.manifest import DatasetError
from readers.format.schema import Schema

SCHEMA = Schema({"key": ("string", ()), "n": ("int64", ())})
KEYS = st.sets(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=9)


def add(directory, keys, **how):
    write([(key, {"n": 0}) for key in sorted(keys)], directory, SCHEMA, processes=1, **how)


@settings(max_examples=20, deadline=None)
@given(KEYS, KEYS)
def test_keys_are_counted_and_listed_by_where_they_are(mine, theirs):
    with tempfile.TemporaryDirectory() as folder:
        a, b = str(Path(folder, "a")), str(Path(folder, "b"))
        add(a, mine)
        add(b, theirs)
        counts = {
            "only_first": len(mine - theirs),
            "only_second": len(theirs - mine),
            "both": len(mine & theirs),
        }
        assert diff(a, b) == {"train": counts}
        keys = diff(a, b, lists_keys=True)["train"]
        assert set(keys["only_first"]) == mine - theirs
        assert set(keys["only_second"]) == theirs - mine


def test_generations_of_one_dataset_are_compared(tmp_path, capsys):
    add(tmp_path, ["a", "b"])
    add(tmp_path, ["b", "c"], append=True, existing="replace")
    assert main(["diff", f"{tmp_path}@1", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "train  0 removed, 1 added, 2 in both\n"
    assert main(["diff", f"{tmp_path}@2", f"{tmp_path}@1", "--keys"]) == 0
    assert capsys.readouterr().out == "- train  c\n"


def test_datasets_of_other_seeds_cannot_be_compared(tmp_path):
    add(tmp_path / "a", ["a"])
    add(tmp_path / "b", ["a"], seed=3)
    with pytest.raises(DatasetError, match="different seeds"):
        diff(str(tmp_path / "a"), str(tmp_path / "b"))
