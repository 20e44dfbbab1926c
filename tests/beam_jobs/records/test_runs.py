"""Runs of encoded records: every record is found in the ranges of its shard, once."""

import functools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_jobs.engines.pool import Pool
from beam_jobs.errors import DataError
from beam_jobs.plan import run_ranges
from beam_jobs.plan.run_ranges import groups_of, locate, neighbours_of
from beam_jobs.plan.shards import Plan, SplitPlan, shards_of
from beam_jobs.records import runs
from beam_jobs.records.blocks import Block
from beam_jobs.records.ragged import Ragged
from beam_jobs.records.runs import Held, RunBuilder, RunIndex
from beam_jobs.records.spool import Spool
from beam_jobs.records.spool_reader import SpoolReader

HASHES = st.integers(0, 2**64 - 1)
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
            found += rows_of(
                Block(block.hashes, block.splits, Ragged(block.payloads.lengths, data))
            )
    return found


def located(indexes: list[RunIndex], plan: Plan, neighbours: int = 1) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for index in indexes:
        for key, locator in locate(RunIndex.unpack(index.pack()), plan, neighbours):
            found.setdefault(key, []).append(locator.pack())
    return found


@pytest.mark.parametrize("neighbours", [1, 3])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("shards", [1, 2, 40])
def test_every_record_is_in_the_ranges_of_its_shard(spool, monkeypatch, shards, known, neighbours):
    monkeypatch.setattr(runs, "RUN_BYTES", 5_000)
    monkeypatch.setattr(runs, "_UNKNOWN_BYTES", 300)
    monkeypatch.setattr(runs, "_KNOWN_BYTES", 700)
    monkeypatch.setattr(runs, "_INDEX_BLOCKS", 7)
    monkeypatch.setattr(run_ranges, "LOCATED_BYTES", 2_000)
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
        keys = groups_of(assign(block.splits, block.hashes), neighbours).tolist()
        for key, row in zip(keys, rows_of(block), strict=True):
            expected.setdefault(key, []).append(row)
    assert set(found) >= set(expected)
    for key, locators in found.items():
        rows = read(spool, locators)
        splits = np.array([row[0] for row in rows], np.uint8)
        hashes = np.array([row[1] for row in rows], np.uint64)
        ours = groups_of(assign(splits, hashes), neighbours) == key
        assert ours.all() or not known
        kept = [row for row, mine in zip(rows, ours.tolist(), strict=True) if mine]
        assert sorted(kept) == sorted(expected.get(key, []))


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), HASHES, st.binary(max_size=9)), max_size=9)),
    st.lists(st.sets(HASHES, max_size=6), min_size=3, max_size=3),
    st.booleans(),
)
def test_any_records_and_boundaries(tmp_path_factory, parts, boundaries, known):
    spool = Spool(str(tmp_path_factory.mktemp("spool")))
    plan = plan_of(*boundaries)
    assign = functools.partial(shards_of, plan)
    builder, rows = RunBuilder(spool, assign if known else None), []
    indexes = []
    for part in parts:
        splits, hashes, payloads = ([row[n] for row in part] for n in range(3))
        block = Block(np.array(hashes, np.uint64), np.array(splits, np.uint8), Ragged.of(payloads))
        rows += part
        indexes += builder.add(block)
    indexes += builder.finish()
    found = []
    for key, locators in located(indexes, plan).items():
        for split, hash_, payload in read(spool, locators):
            (owner,) = assign(np.array([split], np.uint8), np.array([hash_], np.uint64)).tolist()
            if owner == key:
                found.append((split, hash_, payload))
    assert sorted(found) == sorted(rows)


def test_records_of_a_run_are_sorted_by_split_and_hash(tmp_path):
    spool, rng = Spool(str(tmp_path)), np.random.default_rng(0)
    builder = RunBuilder(spool)
    blocks = [block_of(rng, 50) for _ in range(4)]
    (index,) = [index for block in blocks for index in builder.add(block)] + list(builder.finish())
    rows = read(spool, located([index], plan_of([], []))[0])
    assert rows == sorted(rows) and len(rows) == sum((b.splits == 0).sum() for b in blocks)


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


@pytest.mark.parametrize("processes", [1, 3])
def test_every_process_of_a_pool_writes_what_it_holds_at_the_end_of_a_bundle(tmp_path, processes):
    plan = plan_of([2**63], [])
    assign = functools.partial(shards_of, plan)
    rng, spool, pool = np.random.default_rng(0), Spool(str(tmp_path)), Pool(processes)
    try:
        for bundle in "ab":
            held = Held(spool, bundle)
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


def test_runs_are_merged_where_shards_times_runs_are_too_many_requests(monkeypatch):
    monkeypatch.setattr(run_ranges, "MOST_RANGES", 100)
    monkeypatch.setattr(run_ranges, "RUN_BYTES", 1_000)
    # Two splits of 1,000 records of 10 bytes each are 20 runs.
    assert neighbours_of(plan_of([1], [], record_bytes=10)) == 1
    assert neighbours_of(plan_of(list(range(8)), [], record_bytes=10)) == 4
    assert groups_of(np.array([0, 3, 4, 1 << 17, (1 << 17) + 7]), 4).tolist() == [
        0,
        0,
        1,
        1 << 17,
        (1 << 17) + 1,
    ]


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
    for at in range(0, len(whole), 7):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(DataError, match=r"records are gone from .*damaged"):
            read(spool, [locators])
    file.write_bytes(whole)
    assert len(read(spool, [locators])) == 20


def test_a_short_or_missing_file_is_a_data_error(spool, tmp_path):
    locators = write_one(spool)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(DataError, match="records are gone from"):
            read(spool, [locators])
        file.unlink(missing_ok=True)


def test_threads_may_read_at_once(spool):
    locators = write_one(spool)
    expected = read(spool, [locators])
    with ThreadPoolExecutor(4) as threads:
        assert all(f == expected for f in threads.map(lambda _: read(spool, [locators]), range(8)))


def test_files_are_closed_after_reading(spool):
    with SpoolReader(spool) as reader:
        list(reader.blocks([write_one(spool)]))
        assert not reader.files[0].closed
    assert reader.files[0].closed
