"""Writers of shards: the files they write, and shards of earlier runs that they keep."""

import json
import os
import pickle
import random
import resource
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from beam_jobs.columns import Ragged
from beam_jobs.dataset.encoded_records import write_spooled
from beam_jobs.dataset.output import Output
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import ShardWriter
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.file_shards import FileShards, Loader, Pieces
from beam_jobs.jobs.passes import Learned
from beam_jobs.jobs.sensors.sensor_job import SensorJob
from beam_jobs.pipeline import write_runs
from beam_jobs.plan.placement import Placement, Splits
from beam_jobs.plan.shards import Plan, SplitPlan, shards_of
from beam_jobs.records.blocks import Block, pack_reject
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunBuilder, locate
from beam_jobs.records.spool import Spool
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import Labels
from beam_jobs.sources.source import Source, pack_reference
from readers.format.decode.records import Decoder
from readers.format.encode.records import Encoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import frame
from tests.support.datasets import flip, plain_sections, sections_of, write_recordings

SCHEMA = Schema({"key": Feature("string"), "x": Feature("uint8", (None,))})


def output_of(directory: Path, schema: Schema = SCHEMA, **changes) -> Output:
    placement = Placement(0, Splits(("train", "val"), (0.5, 0.5)))
    return Output(str(directory), schema, placement, (0, 0), run="run", **changes)


def plan_of(records: int, rejected: int = 0) -> Plan:
    """A plan whose second split has one shard with these records."""
    empty = np.empty(0, np.uint64)
    splits = SplitPlan(3, 0, 50, 1, empty), SplitPlan(records, rejected, 50, min(records, 1), empty)
    return Plan(splits, FOLDER)


KEY = 1 << 17
FOLDER = "0123abcd"
NAME = f"{FOLDER}/val-00000-of-00001.tfrecord"
REJECTS = f"{FOLDER}/rejects/val-00000-of-00001.jsonl"


def example(number: int, size: int = 20) -> bytes:
    value = np.full(size + number % 7, number, np.uint8)
    return Encoder(SCHEMA).encode({"key": f"k{number}", "x": value})


def payload_of(key: str, body: bytes) -> bytes:
    """What a shard gets for a serialized Example of `SCHEMA`, whose row has the length of `x`."""
    length = len(Decoder(SCHEMA).decode(body)["x"])
    return frame(body) + length.to_bytes(4, "little") + key.encode()


def blocks_of(rows: list[tuple[int, bytes]], per_block: int = 3) -> list[bytes]:
    parts = [rows[at : at + per_block] for at in range(0, len(rows), per_block)]
    return [
        Block(
            np.array([hash_ for hash_, _ in part], np.uint64),
            np.ones(len(part), np.uint8),
            Ragged.of([payload for _, payload in part]),
        ).pack()
        for part in parts
    ]


def encoded(rng: random.Random, records: int, rejects: int = 0, size: int = 20):
    """Rows of a block in the order of their hashes, and (hash, Example) of those that are records."""
    hashes = sorted(rng.getrandbits(64) for _ in range(records + rejects))
    bad = set(rng.sample(range(records + rejects), rejects))
    rows, examples = [], []
    for n, hash_ in enumerate(hashes):
        if n in bad:
            rows.append((hash_, pack_reject(Reject.of(f"k{n}", "encode", "why"))))
        else:
            examples.append((hash_, example(n % 256, size)))
            rows.append((hash_, payload_of(f"k{n}", examples[-1][1])))
    return rows, examples


def spooled(spool: Spool, plan: Plan, blocks: list[bytes]) -> list[bytes]:
    """The locators of blocks, each of which becomes a run in a file of its own."""
    locators = []
    for block in blocks:
        builder = RunBuilder(spool)
        indexes = [*builder.add(Block.unpack(block)), *builder.finish()]
        located = [found for index in indexes for found in locate(index, partial(shards_of, plan))]
        assert {key for key, _ in located} == {KEY}
        locators += [packed for _, packed in located]
    return locators


def write_encoded(
    output: Output, plan: Plan, blocks: list[bytes], schema: Schema = SCHEMA
) -> ShardResult:
    with tempfile.TemporaryDirectory() as directory:
        spool = Spool(directory)
        locators = spooled(spool, plan, blocks)
        locators = [b"".join(locators[:3]), *locators[3:]]
        return write_spooled(output, plan.pack(), schema, spool, (KEY, locators))


def check_shard(
    directory: Path,
    result: ShardResult,
    examples: list[tuple[int, bytes]],
    schema: Schema = SCHEMA,
    name: str = NAME,
) -> None:
    """Asserts that the shard holds these (hash, Example), and that checksum, index and result agree."""
    path = directory / name
    data = b"".join(frame(item) for _, item in examples)
    assert path.read_bytes() == data
    assert (result.split, result.index) == (1, 0)
    assert result.shard.path == name
    assert (result.shard.records, result.shard.bytes) == (len(examples), len(data))
    assert result.shard.crc32c == google_crc32c.value(data)
    index = (directory / f"{name}.index").read_bytes()
    assert (result.shard.index_bytes, result.shard.index_crc32c) == (
        len(index),
        int.from_bytes(index[12:16], "little"),
    )
    sections = sections_of(path)
    ends = np.cumsum([0, *(len(frame(item)) for _, item in examples)])
    np.testing.assert_array_equal(sections.pop("offset"), ends)
    records = [Decoder(schema).decode(item) for _, item in examples]
    hashes = [hash_ for hash_, _ in examples]
    expected = plain_sections(schema, records, hashes)
    assert result.shard.smallest_hash == min(hashes) >> 32
    assert sections.keys() == expected.keys()
    for name, numbers in expected.items():
        np.testing.assert_array_equal(sections[name], numbers, strict=True)


def files_of(directory: Path) -> list[str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return sorted(str(path.relative_to(directory)) for path in files)


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize(("records", "size"), [(1, 20), (100, 20), (3, 3 << 20)])
def test_encoded_records_are_written_in_the_order_of_their_hashes(
    tmp_path, monkeypatch, records, size, on_disk
):
    monkeypatch.setattr(Spool, "on_disk", on_disk)
    rng = random.Random(0)
    rows, examples = encoded(rng, records, size=size)
    rng.shuffle(rows)
    result = write_encoded(output_of(tmp_path), plan_of(records), blocks_of(rows))
    check_shard(tmp_path, result, examples)
    assert not result.kept
    assert (result.rejected, result.first_reject) == (0, None)
    assert files_of(tmp_path) == [NAME, f"{NAME}.done", f"{NAME}.index"]


def test_a_shard_may_have_records_of_more_tasks_than_files_may_be_open(tmp_path):
    rows, examples = encoded(random.Random(2), 300)
    (tmp_path / "spool").mkdir()
    spool = Spool(str(tmp_path / "spool"))
    locators = spooled(spool, plan_of(300), blocks_of(rows, 1))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        output, sides = output_of(tmp_path / "out"), (plan_of(300).pack(), Learned(SCHEMA, {}))
        result = write_runs._writer(output, spool, *sides)((KEY, locators))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    check_shard(tmp_path / "out", result, examples)


def test_rejects_are_listed_by_shard(tmp_path):
    rows, examples = encoded(random.Random(2), 7, 4)
    result = write_encoded(output_of(tmp_path), plan_of(7, 4), blocks_of(rows[::-1]))
    check_shard(tmp_path, result, examples)
    lines = (tmp_path / REJECTS).read_text().splitlines()
    keys = [json.loads(line)["key"] for line in lines]
    assert keys == sorted(keys) and len(keys) == result.rejected == 4
    assert (result.first_reject.key, result.rejects) == (keys[0], REJECTS)


def test_a_split_with_only_rejects_has_a_list_and_no_shard(tmp_path):
    rows, _ = encoded(random.Random(3), 0, 3)
    output = output_of(tmp_path)
    for kept in (False, True):
        result = write_encoded(output, plan_of(0, 3), blocks_of(rows))
        assert (result.shard, result.rejected, result.kept) == (None, 3, kept)
    assert files_of(tmp_path) == [REJECTS, f"{NAME}.done"]


def test_a_planned_record_may_arrive_as_a_reject(tmp_path):
    rows, examples = encoded(random.Random(5), 8)
    late = Reject.of("k3", "decode", "late")
    rows[3] = rows[3][0], pack_reject(late, planned=True)
    del examples[3]
    result = write_encoded(output_of(tmp_path), plan_of(8), blocks_of(rows))
    check_shard(tmp_path, result, examples)
    assert (result.rejected, result.first_reject) == (1, late)
    for wrong in (rows[1:], [*rows, rows[3]]):
        with pytest.raises(
            DataError, match=r"lost or repeated records of .*: [67] of [67] arrived"
        ):
            write_encoded(output_of(tmp_path / "b"), plan_of(8), blocks_of(wrong))


def test_missing_records_and_repeated_keys_are_noticed(tmp_path):
    rows, _ = encoded(random.Random(5), 5)
    output = output_of(tmp_path)
    with pytest.raises(DataError, match="4 of 5 arrived"):
        write_encoded(output, plan_of(5), blocks_of(rows[1:]))
    with pytest.raises(UsageError, match="duplicate key 'k0'"):
        write_encoded(output, plan_of(6), blocks_of([*rows, rows[0]]))
    assert files_of(tmp_path) == []


# Runs after one that did not finish.


def written_at(directory: Path) -> tuple[int, int]:
    status = (directory / NAME).stat()
    return status.st_ino, status.st_mtime_ns


def second_of(directory: Path, name: str = NAME) -> str:
    """The second name of a shard, which follows from the digest in its note."""
    digest = json.loads((directory / f"{NAME}.done").read_text()[8:])[0]
    return name.replace("-of-00001", f"-of-00001.{digest[:8]}")


def test_a_shard_of_the_same_records_is_kept_in_any_order_of_arrival(tmp_path):
    rng = random.Random(6)
    rows, examples = encoded(rng, 30, 3)
    output, plan = output_of(tmp_path), plan_of(30, 3)
    first = write_encoded(output, plan, blocks_of(rows))
    before = written_at(tmp_path)
    for per_block in (7, 100):
        rng.shuffle(rows)
        again = write_encoded(output, plan, blocks_of(rows, per_block))
        assert again.kept and written_at(tmp_path) == before
        assert again.shard == first.shard
        assert (again.rejected, again.first_reject) == (3, first.first_reject)
    check_shard(tmp_path, again, examples)


@pytest.mark.parametrize("other", ["value", "reject", "order", "hash"])
def test_a_shard_of_other_records_is_written_under_a_second_name(tmp_path, other):
    rows, examples = encoded(random.Random(7), 10, 2)
    old, good = list(rows), list(examples)
    output, plan = output_of(tmp_path), plan_of(10, 2)
    first = write_encoded(output, plan, blocks_of(rows))
    if other == "value":
        hash_, before = examples[4]
        row = next(n for n, (_, payload) in enumerate(rows) if frame(before) in payload)
        examples[4] = hash_, example(99)
        rows[row] = hash_, payload_of(f"k{row}", examples[4][1])
    elif other == "reject":
        row = next(n for n, (_, payload) in enumerate(rows) if b"why" in payload)
        rows[row] = rows[row][0], pack_reject(Reject.of(f"k{row}", "encode", "other"))
    elif other == "order":
        payloads = [payload for _, payload in rows[::-1]]
        rows = [(hash_, payload) for (hash_, _), payload in zip(rows, payloads, strict=True)]
        hashes = [hash_ for hash_, payload in rows if b"why" not in payload]
        bodies = [body for _, body in examples[::-1]]
        examples = list(zip(hashes, bodies, strict=True))
    else:  # Keys that are in no feature: the shard keeps its bytes, and its index does not.
        rows = [(hash_ // 2, payload) for hash_, payload in rows]
        examples = [(hash_ // 2, body) for hash_, body in examples]
    again = write_encoded(output, plan, blocks_of(rows))
    second = second_of(tmp_path)
    assert (again.kept, again.rejects) == (False, second_of(tmp_path, REJECTS))
    check_shard(tmp_path, again, examples, name=second)
    assert (other in ("reject", "hash")) == (again.shard.crc32c == first.shard.crc32c)
    assert (other == "reject") == (again.shard == replace(first.shard, path=second))
    assert write_encoded(output, plan, blocks_of(rows)) == replace(again, kept=True)
    # The first file is what it was. If the input is again, too, the shard has a third name.
    check_shard(tmp_path, first, good)
    last = write_encoded(output, plan, blocks_of(old))
    check_shard(tmp_path, last, good, name=second_of(tmp_path))
    assert last.shard == replace(first.shard, path=second_of(tmp_path))
    assert not last.kept and second_of(tmp_path) != second


@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("lost", ["", ".index", "both", "rejects"])
def test_a_shard_with_a_note_and_without_all_of_its_files_is_written_again(tmp_path, changed, lost):
    """A run was killed between the note and the last file, or a file was damaged."""
    rows, examples = encoded(random.Random(8), 10, 2)
    output, plan = output_of(tmp_path), plan_of(10, 2)
    if changed:
        write_encoded(output, plan, blocks_of([(hash_ // 2, payload) for hash_, payload in rows]))
    first = write_encoded(output, plan, blocks_of(rows))
    name = second_of(tmp_path) if changed else NAME
    for suffix in ("", ".index") if lost == "both" else (lost,):
        (tmp_path / (first.rejects if lost == "rejects" else name + suffix)).unlink()
    again = write_encoded(output, plan, blocks_of(rows))
    check_shard(tmp_path, again, examples, name=name)
    assert again == replace(first, kept=False)
    assert write_encoded(output, plan, blocks_of(rows)).kept


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_a_damaged_file_without_a_note_is_refused_once_and_then_left_alone(tmp_path, suffix):
    rows, examples = encoded(random.Random(8), 10)
    output, plan = output_of(tmp_path), plan_of(10)
    first = write_encoded(output, plan, blocks_of(rows))
    (tmp_path / f"{NAME}.done").unlink()
    flip(tmp_path / f"{NAME}{suffix}", 20)
    with pytest.raises(DataError, match=r"has other bytes than this job writes.*run the same"):
        write_encoded(output, plan, blocks_of(rows))
    again = write_encoded(output, plan, blocks_of(rows))
    assert again.shard.path not in (first.shard.path, second_of(tmp_path))
    check_shard(tmp_path, again, examples, name=again.shard.path)


def test_two_attempts_at_once_write_one_shard(tmp_path):
    rows, examples = encoded(random.Random(8), 30)
    barrier = threading.Barrier(2)

    def attempt(per_block):
        barrier.wait(10)
        return write_encoded(output_of(tmp_path), plan_of(30), blocks_of(rows, per_block))

    with ThreadPoolExecutor(2) as threads:
        for result in threads.map(attempt, [3, 30]):
            check_shard(tmp_path, result, examples)
    assert files_of(tmp_path) == [NAME, f"{NAME}.done", f"{NAME}.index"]


def test_a_shard_is_written_again_if_the_job_learns_another_schema(tmp_path):
    rows, _ = encoded(random.Random(8), 10)
    output, plan = output_of(tmp_path), plan_of(10)
    write_encoded(output, plan, blocks_of(rows))
    other = Schema({"key": Feature("string"), "y": SCHEMA["x"]})
    again = write_encoded(output, plan, blocks_of(rows), other)
    assert (again.kept, again.shard.path) == (False, second_of(tmp_path))
    assert sections_of(tmp_path / again.shard.path).keys() == {
        "offset",
        "hash",
        "hash/low",
        "length/y",
    }


# Shards whose records are files.


@pytest.fixture
def source(tmp_path):
    """A folder of 30 recordings."""
    write_recordings(tmp_path / "in", [1 + n % 7 for n in range(30)])
    return tmp_path / "in"


def keys_of(source: Path) -> list[str]:
    return sorted(str(path.relative_to(source)) for path in source.glob("*/*.npy"))


def hash_of(place: int) -> int:
    """The hash of a file, given its position in `keys_of`."""
    return place << 40 | place


def references_of(source: Path, seed: int = 0) -> list[bytes]:
    """Blocks of references in any order, each of which has its `hash_of`."""
    rng = random.Random(seed)
    rows = []
    for place, key in enumerate(keys_of(source)):
        status = (source / key).stat()
        reference = pack_reference(Source(key, status.st_size, status.st_mtime_ns))
        rows.append((hash_of(place), reference))
    rng.shuffle(rows)
    return blocks_of(rows, rng.randint(1, 12))


def loader_of(source: Path) -> Loader:
    job = SensorJob(Inputs.of([f"{source}/*/*.npy"]), Labels("parent")).with_schema()
    learned = Learned(job.schema, {"label": ("a", "b", "c")})
    return Loader(output_of(source, job.schema), learned, job)


def write_files(
    directory: Path, loader: Loader, blocks: list[bytes], processes: int = 1
) -> tuple[ShardResult, Statistics]:
    pool = Pool(processes)
    records = sum(len(Block.unpack(block).hashes) for block in blocks)
    output = output_of(directory, loader.output.schema)
    shards = FileShards(replace(loader, output=output), plan_of(records).pack())
    try:
        pieces = Pieces(pool, pickle.dumps(shards.piece), str(directory), 8)
        return shards.write((KEY, blocks), pieces if processes > 1 else None)
    finally:
        pool.close()


def examples_of(loader: Loader, source: Path, bad: int = -1) -> list[tuple[int, bytes]]:
    """(hash, Example) of all files but one."""
    encoder = Encoder(loader.output.schema)
    return [
        (hash_of(place), encoder.encode(loader.record(Source(key))))
        for place, key in enumerate(keys_of(source))
        if place != bad
    ]


@pytest.mark.parametrize(("processes", "record_bytes"), [(1, 1), (2, 1), (1, 1 << 19)])
def test_files_are_written_in_the_order_of_their_hashes_by_any_number_of_processes(
    tmp_path, monkeypatch, source, processes, record_bytes
):
    loader = loader_of(source)
    monkeypatch.setattr(ShardWriter, "record_bytes", record_bytes)
    blocks = references_of(source, processes)
    result, statistics = write_files(tmp_path, loader, blocks, processes)
    check_shard(tmp_path, result, examples_of(loader, source), loader.output.schema)
    alone = Statistics(loader.output.schema)
    for key in keys_of(source):
        alone.add([Encoder(loader.output.schema).check(loader.record(Source(key)))])
    assert statistics.state() == alone.state()


def test_a_shard_with_a_bad_file_is_kept_with_its_statistics_and_no_file_is_opened(
    tmp_path, source
):
    keys = keys_of(source)
    (source / keys[3]).write_bytes(b"bad")
    loader = loader_of(source)
    good = examples_of(loader, source, bad=3)
    blocks = references_of(source)
    first, figures = write_files(tmp_path, loader, blocks, 2)
    check_shard(tmp_path, first, good, loader.output.schema)
    assert (first.rejected, first.first_reject.key, figures.records) == (1, keys[3], 29)
    before = written_at(tmp_path)
    blocks = references_of(source, 1)
    for key in keys:
        (source / key).unlink()
    again, statistics = write_files(tmp_path, loader, blocks)
    assert again == replace(first, kept=True)
    assert statistics.state() == figures.state()
    assert written_at(tmp_path) == before


@pytest.mark.parametrize("change", ["size", "time", "key"])
def test_a_shard_of_other_files_is_written_under_a_second_name(tmp_path, source, change):
    write_files(tmp_path, loader_of(source), references_of(source))
    file = source / keys_of(source)[5]
    match change:
        case "size":
            status = file.stat()
            np.save(file, np.ones((9, 3), np.int16))
            os.utime(file, ns=(0, status.st_mtime_ns))
        case "time":
            data = bytearray(file.read_bytes())
            data[-1] ^= 1
            file.write_bytes(data)
            os.utime(file, ns=(0, 12345))
        case "key":
            file.rename(file.with_name("99999.npy"))
    loader = loader_of(source)
    result, _ = write_files(tmp_path, loader, references_of(source))
    assert not result.kept
    good = examples_of(loader, source)
    check_shard(tmp_path, result, good, loader.output.schema, second_of(tmp_path))


def test_a_mistake_of_the_user_ends_the_job_and_leaves_no_half_shard(tmp_path, source):
    loader = loader_of(source)
    key = keys_of(source)[20]
    np.save(source / key, np.ones((2, 5)))
    with pytest.raises(UsageError, match=f"{key}: signal float64"):
        write_files(tmp_path / "out", loader, references_of(source))
    assert files_of(tmp_path / "out") == []
