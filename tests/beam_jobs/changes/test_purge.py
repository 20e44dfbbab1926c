"""`purge`: no file below a dataset has the keys, and nothing else changes."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import readers
from beam_jobs.changes.purge import purge
from readers.format.manifest import Manifest
from tests.support.history import KEYS, keys_of, of_generations


def shards_with(directory, keys):
    """The files with the keys, found in their bytes."""
    paths = [p for p in Path(directory).rglob("*.tfrecord") if {*keys_of(p)} & {*keys}]
    return {str(path.relative_to(directory)) for path in paths}


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=len(KEYS), max_size=len(KEYS)),
    st.sets(st.sampled_from(KEYS), max_size=9),
    st.sets(st.sampled_from(KEYS), max_size=3),
)
def test_nothing_but_the_keys_is_erased(which, gone, erased):
    several = [[k for k, n in zip(KEYS, which, strict=True) if n == m] for m in range(2)]
    if not all(several):
        return
    with tempfile.TemporaryDirectory() as folder:
        living = of_generations(Path(folder, "living"), several, gone, num_shards=3)
        before, had = Manifest.read(living), shards_with(living, erased)
        names = {n: Manifest.read(f"{living}@{n}").paths for n in range(1, before.generation + 1)}
        of_before = keys_by_split(living)
        receipt = purge(str(living), erased, processes=1)
        assert not shards_with(living, erased)
        assert keys_by_split(living) == {
            name: [key for key in keys if key not in erased] for name, keys in of_before.items()
        }
        after = Manifest.read(living)
        assert {*before.paths} & {*after.paths} >= {
            s.path for s in before.shards if s.path not in had
        }
        assert {*receipt["rewritten"]} == had
        assert receipt["generations"] == [n for n, paths in names.items() if paths & had]
        stored = {key for keys in several for key in keys} & erased
        assert receipt["keys"] == {hashlib.sha256(k.encode()).hexdigest(): 1 for k in stored}
        assert readers.verify(living).ok


def keys_by_split(directory):
    found = {}
    for split in Manifest.read(directory).splits:
        source = readers.RecordSource(directory, split, ["key"])
        found[split] = [record["key"].decode() for record in source]
    return found
