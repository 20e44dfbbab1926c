"""`compact`: its shards are those of one job with all records that readers see."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs.changes.compact import compact
from tests.support.history import KEYS, batches, contents, of_generations, write

SEVERAL = st.lists(st.integers(0, 3), min_size=len(KEYS), max_size=len(KEYS))


@settings(max_examples=12, deadline=None)
@given(SEVERAL, st.sets(st.sampled_from(KEYS)), st.sampled_from([1, 3, "train=5,val=2", None]))
def test_a_compact_dataset_is_that_of_one_job(which, gone, num_shards):
    pairs = list(zip(KEYS, which, strict=True))
    several = [keys for n in range(3) if (keys := [key for key, m in pairs if m == n])]
    left = {key for keys in several for key in keys} - gone
    if not left:
        return
    with tempfile.TemporaryDirectory() as folder:
        living = of_generations(Path(folder, "living"), several, gone, num_shards=2)
        older = [f"{living}@{n + 1}" for n in range(len(several))]
        before = list(map(batches, older))
        manifest = compact(living, num_shards, "1k", processes=1)
        one = write(Path(folder, "one"), left, num_shards=num_shards, shard_size="1k")
        assert contents(living, manifest) == contents(Path(folder, "one"), one)
        for name, split in one.splits.items():
            assert manifest.splits[name].statistics == split.statistics
        assert readers.verify(living).ok
        assert batches(living) == batches(Path(folder, "one"))
        assert list(map(batches, older)) == before
