"""`merge`: a dataset of the records of several, without their files or with copies."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs.changes.compact import compact
from beam_jobs.changes.merge import merge
from tests.support.history import KEYS, batches, contents, of_generations, write


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=len(KEYS), max_size=len(KEYS)),
    st.sets(st.sampled_from(KEYS)),
)
def test_a_merged_dataset_is_that_of_one_job(which, gone):
    sets = [[k for k, n in zip(KEYS, which, strict=True) if n == m] for m in range(3)]
    if not all(set(keys) - gone for keys in sets):
        return
    left = {key for keys in sets for key in keys} - gone
    with tempfile.TemporaryDirectory() as folder:
        first = of_generations(Path(folder, "a"), sets[:2], gone, num_shards=2)
        write(Path(folder, "far/b"), sets[2])
        shutil.copytree(Path(folder, "far/b"), Path(folder, "b"))
        several = [str(first), f"{folder}/b"]
        one = write(Path(folder, "one"), left | {*sets[2]}, num_shards=3)
        merged = merge(several, f"{folder}/merged")
        assert merged.base == ("../a", "../b") and readers.verify(f"{folder}/merged").ok
        assert {n: s.records for n, s in merged.splits.items()} == {
            n: s.records for n, s in one.splits.items()
        }
        # A merged dataset is compact in itself afterwards, and needs the others no longer.
        changed = compact(f"{folder}/merged", 3, processes=1)
        assert contents(Path(folder, "merged"), changed) == contents(Path(folder, "one"), one)
        for manifest in (changed,):
            assert manifest.base == ()
            assert [s.statistics for s in manifest.splits.values()] == [
                s.statistics for s in one.splits.values()
            ]
        shutil.rmtree(first), shutil.rmtree(f"{folder}/b")
        assert batches(f"{folder}/one") == batches(f"{folder}/merged")
