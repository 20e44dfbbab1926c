"""The row of a key, and the sections of indexes, compared with a scan of plain lists."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.dataset.topup import moves_by_records
from readers.format.lookup.keys import order_seed
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import DatasetError, Generation, Manifest
from readers.format.schema import Schema
from readers.format.splits import Split
from readers.shards.find import find
from readers.shards.resolving.datasets import dataset_plan
from tests.support.datasets import flip, in_memory, write_shard


def whole(seed, key):
    """The hash of a key, by docs/internals/format.md."""
    keyed = seed.to_bytes(8, "little", signed=True)
    found = hashlib.blake2b(key, digest_size=8, key=keyed, person=b"order").digest()
    return int.from_bytes(found, "little")


def write_split(folder, hashes):
    """A split whose shards have records with the given hashes, and of which each has its row as a number."""
    shards, before = [], 0
    for number, of_shard in enumerate(hashes):
        path = folder / f"{number:05d}.tfrecord"
        rows = np.arange(before, before + len(of_shard))
        before += len(of_shard)
        whole = np.array(of_shard, np.uint64)
        halves = {"hash": whole >> np.uint64(32), "hash/low": whole & np.uint64(0xFFFFFFFF)}
        numbers = {name: half.astype(np.uint32) for name, half in halves.items()}
        numbers["value/row"] = rows
        shards.append(write_shard(path, [b"x"] * len(of_shard), sections=numbers))
    return StoredSplit(str(folder), Manifest(Schema({"row": "int64"}), {}), Split(tuple(shards)))


def found_row(split, seed, key):
    """The row of the first record with a key; None without."""
    manifest = Manifest(Schema({"key": "string"}), {"a": split.split}, options={"seed": seed})
    try:
        return find(dataset_plan(Generation(split.directory, manifest, ""), "a"), key)
    except KeyError:
        return None


def topped_up(hashes, counts, lost):
    """The hashes in the shards of one job, of which some records were rejected when shards were written.

    Args:
        counts: How many records each shard should have.
        lost: Whether each record is rejected.
    """
    kept = sorted(h for h, gone in zip(hashes, lost, strict=False) if not gone)
    ends = np.cumsum([0, *counts])
    shards = [kept[a:b] for a, b in zip(ends, [*ends[1:-1], None], strict=False)][: len(counts)]
    moves = moves_by_records([len(shard) for shard in shards])
    stay = [list(shard) for shard in shards]
    for donor, first, _, _ in moves:
        stay[donor] = stay[donor][: min(first, len(stay[donor]))]
    for donor, first, records, receiver in moves:
        stay[receiver] += shards[donor][first : first + records]
    return stay


KEYS = [b"a/%d.jpg" % n for n in range(60)]


@st.composite
def generations(draw):
    """The hashes in the shards of several jobs; few different hashes, so that some are equal."""
    found = []
    for _ in range(draw(st.integers(0, 4))):
        hashes = [whole(3, key) for key in draw(st.lists(st.sampled_from(KEYS), max_size=40))]
        counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
        lost = draw(st.lists(st.booleans(), min_size=len(hashes), max_size=len(hashes)))
        found += topped_up(hashes, counts, lost)
    return found


@given(generations(), st.lists(st.sampled_from([*KEYS, b"b", "é".encode()]), max_size=5))
@settings(deadline=None, max_examples=60)
def test_a_key_is_found_wherever_it_is(tmp_path_factory, hashes, keys):
    split = write_split(tmp_path_factory.mktemp("split"), hashes)
    every = [hash_ for shard in hashes for hash_ in shard]
    for key in keys:
        row = found_row(split, 3, key)
        assert whole(3, key) not in every if row is None else every[row] == whole(3, key)
    assert split.hashes().tolist() == every
    read = list(split.sections(["value/row", "hash"]))
    assert [part["hash"].tolist() for part in read] == [[h >> 32 for h in some] for some in hashes]
    assert [row for part in read for row in part["value/row"].tolist()] == list(range(len(every)))


def test_a_key_that_was_not_moved_needs_the_index_of_its_shard_only(tmp_path):
    hashes = sorted(whole(0, key) for key in KEYS)
    split = write_split(tmp_path, [hashes[n : n + 6] for n in range(0, 60, 6)])
    (tmp_path / "gone").mkdir()
    for row, hash_ in enumerate(hashes):
        key = next(key for key in KEYS if whole(0, key) == hash_)
        kept = f"{row // 6:05d}.tfrecord.index"
        gone = [file for file in tmp_path.glob("*.index") if file.name != kept]
        for file in gone:
            file.rename(tmp_path / "gone" / file.name)
        assert found_row(split, 0, key) == row
        for file in gone:
            (tmp_path / "gone" / file.name).rename(file)


def test_a_text_is_the_key_of_its_utf8(tmp_path):
    names = ["é", b"\xff".decode("utf-8", "surrogateescape"), ""]
    hashes = [whole(-1, name.encode("utf-8", "surrogateescape")) for name in names]
    split = write_split(tmp_path, [hashes])
    assert [found_row(split, -1, name) for name in names] == [0, 1, 2]


def test_indexes_in_a_store_and_on_a_disk_are_checked(tmp_path, monkeypatch):
    split = write_split(tmp_path, [np.arange(40_000) << 32, np.arange(5) << 32])
    with in_memory(tmp_path) as remote:
        for directory in (str(tmp_path), remote):
            read = [
                part["hash"].tolist()
                for part in replace(split, directory=directory).sections(["hash"])
            ]
            assert read == [list(range(40_000)), list(range(5))]
    path, other = (tmp_path / f"0000{n}.tfrecord.index" for n in (0, 1))
    intact = path.read_bytes()
    for error, change in [
        ("damaged at byte", lambda: flip(path, 300_000)),
        ("not an index of this format .the CRC32C of its head", lambda: flip(path, 100)),
        ("5 records, the manifest states 40000", lambda: path.write_bytes(other.read_bytes())),
        ("the manifest lists this index, but it is missing", path.unlink),
    ]:
        change()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / error[:3]))  # Without copies.
        with in_memory(tmp_path) as remote:
            for directory in (str(tmp_path), remote):
                with pytest.raises((DatasetError, FileNotFoundError), match=f"d.index: {error}"):
                    list(replace(split, directory=directory).sections(["hash"]))
        path.write_bytes(intact)
    with pytest.raises(DatasetError, match=r"no section 'value/label', it has offset, hash"):
        list(split.sections(["value/label"]))


def test_only_datasets_that_are_ordered_by_keys_have_a_seed():
    def of(**options):
        return order_seed(Manifest(Schema({"x": "int64"}), {}, options=options))

    assert (of(), of(job="images", seed=-3)) == (0, -3)
    with pytest.raises(DatasetError, match="keeps those of a reshard job"):
        of(job="reshard", seed=3)
    with pytest.raises(DatasetError, match="has seed"):
        of(seed="1")
