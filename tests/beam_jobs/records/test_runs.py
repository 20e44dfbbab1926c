"""Runs of encoded records: every record is found in the ranges of its shard, once."""

import functools

import numpy as np
import pytest

from beam_jobs.columns import Ragged
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import DataError
from beam_jobs.plan.shards import Plan, SplitPlan, shards_of
from beam_jobs.records import runs
from beam_jobs.records.blocks import Block
from beam_jobs.records.runs import BundleRuns, RunBuilder, RunIndex, locate
from beam_jobs.records.spool import Spool, SpoolReader

PLACES = {"disk": True, "elsewhere": False}


def plan_of(*boundaries: list[int], record_bytes: int = 100) -> Plan:
    splits = [np.array(sorted(found), np.uint64) for found in boundaries]
    return Plan(tuple(SplitPlan(1000, 0, record_bytes, len(found) + 1, found) for found in splits))


def block_of(rng: np.random.Generator, count: int, splits: int = 2) -> Block:
    payloads = [rng.bytes(int(rng.integers(0, 60))) for _ in range(count)]
    hashes = rng.integers(0, 2**64, count, np.uint64)
    return Block(hashes, rng.integers(0, splits, count).astype(np.uint8), Ragged.of(payloads))


def rows_of(block: Block) -> list[tuple[int, int, bytes]]:
    return list(zip(block.splits.tolist(), block.hashes.tolist(), block.payloads, strict=True))


@pytest.fixture(params=PLACES)
def spool(request, tmp_path, monkeypatch) -> Spool:
    """A spool on a disk, and one whose files are read as those of a store are."""
    monkeypatch.setattr(Spool, "on_disk", PLACES[request.param])
    return Spool(str(tmp_path))


def read(spool: Spool, locators: list[bytes]) -> list[tuple[int, int, bytes]]:
    """All records of some blocks, by their places in files."""
    found = []
    with SpoolReader(spool) as reader:
        places = list(reader.blocks(locators))
        for number, at, block in places:
            reader.files[number].seek(at)
            data = reader.files[number].read(len(block.payloads.data))
            payloads = Ragged(block.payloads.lengths, data, block.payloads.ends)
            found += rows_of(Block(block.hashes, block.splits, payloads))
    return found


def located(indexes: list[RunIndex], plan: Plan, neighbours: int = 1) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    assign = functools.partial(shards_of, plan, neighbours=neighbours)
    for index in indexes:
        for key, locators in locate(RunIndex.unpack(index.pack()), assign):
            found.setdefault(key, []).append(locators)
    return found


@pytest.mark.parametrize(
    ("shards", "known", "neighbours"), [(1, True, 1), (2, False, 1), (40, True, 3), (40, False, 3)]
)
def test_every_record_is_in_the_ranges_of_its_shard(spool, monkeypatch, shards, known, neighbours):
    monkeypatch.setattr(runs, "RUN_BYTES", 5_000)
    monkeypatch.setattr(runs, "_UNKNOWN_BYTES", 300)
    monkeypatch.setattr(runs, "_KNOWN_BYTES", 700)
    monkeypatch.setattr(runs, "_INDEX_BLOCKS", 7)
    monkeypatch.setattr(runs, "LOCATED_BYTES", 2_000)
    rng = np.random.default_rng(shards)
    plan = plan_of(*(rng.integers(0, 2**64, shards - 1, np.uint64).tolist() for _ in range(2)))
    assign = functools.partial(shards_of, plan)
    builder = RunBuilder(spool, assign if known else None)
    blocks = [block_of(rng, n % 90) for n in range(40)]
    indexes = [index for block in blocks for index in builder.add(block)] + list(builder.finish())
    assert len(indexes) >= 9
    found = located(indexes, plan, neighbours)
    expected: dict[int, list] = {}
    for block in blocks:
        keys = shards_of(plan, block.splits, block.hashes, neighbours).tolist()
        for key, row in zip(keys, rows_of(block), strict=True):
            expected.setdefault(key, []).append(row)
    assert set(found) >= set(expected)
    for key, locators in found.items():
        rows = read(spool, locators)
        splits = np.array([row[0] for row in rows], np.uint8)
        hashes = np.array([row[1] for row in rows], np.uint64)
        ours = shards_of(plan, splits, hashes, neighbours) == key
        assert ours.all() or not known
        kept = [row for row, mine in zip(rows, ours.tolist(), strict=True) if mine]
        assert sorted(kept) == sorted(expected.get(key, []))


def test_a_process_writes_one_file_for_each_bundle_on_a_disk_and_one_for_each_run_elsewhere(
    spool, tmp_path, monkeypatch
):
    monkeypatch.setattr(runs, "RUN_BYTES", 1)
    rng = np.random.default_rng(0)
    for _ in range(2):
        builder = RunBuilder(spool)
        for _ in range(3):
            assert len(list(builder.add(block_of(rng, 5)))) == 1
        assert list(builder.finish()) == []
    assert len(list(tmp_path.iterdir())) == (2 if spool.on_disk else 6)


def test_a_bundle_that_failed_leaves_no_open_file_and_its_records_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RUN_BYTES", 1)
    builder = RunBuilder(Spool(str(tmp_path)))
    list(builder.add(block_of(np.random.default_rng(0), 5)))
    assert list(tmp_path.iterdir())
    builder.give_up()
    assert not list(tmp_path.iterdir())
    assert list(builder.finish()) == []


def test_every_process_of_a_pool_writes_what_it_holds_at_the_end_of_a_bundle(tmp_path):
    plan = plan_of([2**63], [])
    assign = functools.partial(shards_of, plan)
    rng, spool, pool = np.random.default_rng(0), Spool(str(tmp_path)), Pool(2)
    try:
        for bundle in "ab":
            held = BundleRuns(spool, bundle)
            blocks = [block_of(rng, 5) for _ in range(100)]
            first = list(pool.map(held.add, ((block, assign) for block in blocks)))
            assert not any(first)
            indexes = [index for found in pool.each(held.finish) for index in found]
            locators = [one for found in located(indexes, plan).values() for one in found]
            rows = [row for block in blocks for row in rows_of(block)]
            assert sorted(read(spool, locators)) == sorted(rows)
            assert not any(pool.each(held.finish))
        held.add(blocks[0], assign)
        held.give_up()
        assert held.finish() == []
    finally:
        pool.close()


# What goes wrong.


def write_one(spool: Spool) -> bytes:
    builder = RunBuilder(spool)
    list(builder.add(block_of(np.random.default_rng(0), 20, 1)))
    ((_, locators),) = located(list(builder.finish()), plan_of([])).items()
    return b"".join(locators)


def test_every_damaged_byte_of_a_block_is_noticed(spool, tmp_path):
    locators = write_one(spool)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), 31):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError, match=r"records are missing or damaged in .*damaged"):
            read(spool, [locators])
    file.write_bytes(whole)
    assert len(read(spool, [locators])) == 20


def test_a_short_or_missing_file_is_a_data_error(spool, tmp_path):
    locators = write_one(spool)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(DataError, match="records are missing or damaged in"):
            read(spool, [locators])
        file.unlink(missing_ok=True)
