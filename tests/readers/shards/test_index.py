"""Where readers find the records of a file: in its index, or by a scan; and indexes that are wrong."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import numpy as np
import pytest

import readers
from readers.files import kept_files
from readers.format.encode.records import Encoder
from readers.format.lookup import index_file
from readers.format.lookup.index_file import IndexFile
from readers.format.manifest import DatasetError
from readers.format.tfrecord import CorruptRecordError, frame
from readers.shards.framed import FramedReader
from readers.shards.opened import indexes
from readers.shards.opened.indexes import ShardIndexes
from readers.shards.opened.open_shards import OpenShards
from readers.shards.plan import Part, Plan
from readers.shards.resolve import resolve
from tests.support.datasets import (
    NUMBERS,
    SIGNALS,
    flip,
    in_memory,
    index_of,
    numbers,
    signals,
    write_dataset,
    write_numbers,
    write_shard,
)
from tests.support.indexes import LONGEST, compare_mapped, index_bytes

SHARD = "train-00001-of-00004.tfrecord"
INDEX = f"{SHARD}.index"


@pytest.fixture(autouse=True)
def folder(tmp_path_factory, monkeypatch):
    """The folder in which readers keep indexes."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "beam-shards" / "indexes"


def counted(monkeypatch, name):
    """The name of the file or the index of each call of `scanned` or `fetch`."""
    module = IndexFile if name == "fetch" else index_file
    found, function = [], getattr(module, name)

    def noted(path, *others):
        found.append(os.path.basename(getattr(path, "path", path)))
        return function(path, *others)

    monkeypatch.setattr(module, name, noted)
    return found


def ids(path, **options):
    batches = readers.as_numpy(path, batch_size=3, shuffle=True, seed=0, **options)
    return np.concatenate([batch["id"] for batch in batches]).tolist()


def loaded(parts):
    """The indexes of parts, all of them loaded."""
    found = ShardIndexes([part.index for part in parts])
    for number in found.missing(range(len(parts))):
        found.load(number)
    assert found.missing(range(len(parts))) == []
    return found


def part_of(path, total):
    """A part of all records of a file with an index."""
    size = os.path.getsize(f"{path}.index")
    return Part(str(path), 0, total, total, index_next_to(path, total, size))


def index_next_to(path, records=None, size=None):
    """The index of a file that no manifest lists."""
    return IndexFile(f"{path}.index", str(path), records, None, size, None)


@pytest.mark.parametrize("split", ["train", "train[2:11]", "train[5:9]", "train[9:10]"])
@pytest.mark.parametrize("where", ["local", "memory"])
def test_records_are_where_the_index_says(tmp_path, split, where):
    write_numbers(tmp_path)
    with in_memory(tmp_path) as url:
        plan = resolve(str(tmp_path) if where == "local" else url, split, None, None)
        indexes = loaded(plan.parts)
        rows, expected = list[tuple[int, int]](), list[list[int]]()
        for number, part in enumerate(plan.parts):
            whole = index_of(tmp_path / os.path.basename(part.path))
            rows += [(row, number) for row in range(part.skip, part.skip + part.take)]
            expected += whole[part.skip :][: part.take].tolist()
            assert part.index.read_offsets().tolist() == [0, *whole.sum(axis=1)]
        assert indexes.of(*np.array(rows).T).tolist() == expected
        assert [indexes.of_one(*row) for row in rows] == [tuple(row) for row in expected]


def test_an_index_in_a_store_is_fetched_once(tmp_path, monkeypatch, folder):
    write_numbers(tmp_path)
    with in_memory(tmp_path) as path:
        fetched = counted(monkeypatch, "fetch")
        found = ids(path, split="train")
        assert sorted(found) == list(range(20))
        assert sorted(fetched) == [f"train-0000{n}-of-00004.tfrecord.index" for n in range(4)]
        assert ids(path, split="train") == found
        assert len(fetched) == len(list(folder.glob("*.index"))) == 4


def test_an_index_on_a_disk_of_this_machine_is_mapped_where_it_is(tmp_path, folder):
    write_numbers(tmp_path)
    assert sorted(ids(tmp_path, split="train")) == list(range(20))
    assert not folder.exists()


def test_an_index_behind_a_link_to_a_network_disk_is_copied(tmp_path, monkeypatch, folder):
    write_numbers(tmp_path / "here")
    (tmp_path / "network").mkdir()
    (tmp_path / "here" / INDEX).rename(tmp_path / "network" / INDEX)
    (tmp_path / "here" / INDEX).symlink_to(tmp_path / "network" / INDEX)
    monkeypatch.setattr(index_file, "is_on_local_disk", lambda folder: "network" not in folder)
    assert sorted(ids(tmp_path / "here", split="train")) == list(range(20))
    (copy,) = folder.glob("*.index")
    assert copy.read_bytes() == (tmp_path / "network" / INDEX).read_bytes()


@pytest.mark.parametrize("where", ["local", "memory"])
def test_files_without_an_index_are_scanned_once_until_they_change(tmp_path, monkeypatch, where):
    file = tmp_path / "data" / SHARD
    write_numbers(tmp_path / "data")
    (tmp_path / "data" / INDEX).unlink()
    scans = counted(monkeypatch, "scanned")

    def found():
        with in_memory(file.parent) as url:
            path = str(file) if where == "local" else f"{url}/{SHARD}"
            return [sorted(ids(path, schema=NUMBERS)) for _ in range(3)]

    assert found() == [[5, 6, 7, 8]] * 3
    assert scans == [SHARD]
    # Other records, whose sizes differ, in as many bytes.
    records = [frame(b"\x0a\x00" * n) for n in (1, 2, 3)]
    rest = file.stat().st_size - sum(map(len, records)) - 16
    data = b"".join([*records, frame(bytes(rest))])
    assert len(data) == file.stat().st_size
    file.write_bytes(data)
    with in_memory(file.parent) as url:
        path = str(file) if where == "local" else f"{url}/{SHARD}"
        lengths = np.diff(index_next_to(path).read_offsets())
    assert lengths.tolist() == [18, 20, 22, rest + 16]
    assert len(scans) == 2


def test_a_file_whose_records_end_before_it_or_after_it_is_corrupt(tmp_path):
    file = tmp_path / "a.tfrecord"
    for end, message in ((b"x", "byte 20"), (frame(b"")[:-1], "the record at byte 20 is cut off")):
        file.write_bytes(frame(b"abcd") + end)
        with pytest.raises(CorruptRecordError, match=rf"^{file}: .*{message}"):
            readers.RecordSource(file, schema=NUMBERS)


@pytest.mark.parametrize("where", ["local", "memory"])
def test_an_index_that_the_manifest_lists_must_be_there(tmp_path, where):
    write_numbers(tmp_path)
    (tmp_path / INDEX).unlink()
    with in_memory(tmp_path) as url:
        path = str(tmp_path) if where == "local" else url
        message = rf"^{path}.*/{INDEX}: the manifest lists this index, but it is missing; copy it "
        with pytest.raises(FileNotFoundError, match=message):
            ids(path, split="train")


@pytest.mark.parametrize("where", ["local", "memory"])
@pytest.mark.parametrize("wrong", ["other", "cut", "longer", "flipped", "text"])
def test_a_wrong_index_is_named_until_the_right_one_is_back(tmp_path, where, wrong):
    write_numbers(tmp_path, (3, 2, 3, 2))
    data = (tmp_path / INDEX).read_bytes()
    # That of a shard of as many records and bytes.
    other = (tmp_path / INDEX.replace("1-of", "3-of")).read_bytes()
    assert len(other) == len(data) and other != data
    crcs = [f"{int.from_bytes(each[12:16], 'little'):08x}" for each in (other, data)]
    changed, message = {
        "other": (other, f"{crcs[0]} as the CRC32C of its head, the manifest states {crcs[1]}"),
        "cut": (data[:-64], "section 'value/id' at byte"),
        "longer": (data + bytes(64), f"{len(data) + 64} bytes, the manifest states {len(data)}"),
        "flipped": (data[:-60] + b"\xff" + data[-59:], "damaged at byte"),
        "text": (b"0 16\n16 20\n" * 9, "not an index of this format"),
    }[wrong]
    if (wrong, where) == ("longer", "memory"):
        changed = data  # Bytes after those of the manifest are not asked for.
    for written in (changed, data):
        (tmp_path / INDEX).write_bytes(written)
        with in_memory(tmp_path) as url:
            path = str(tmp_path) if where == "local" else url
            if written == data:
                assert sorted(ids(path, split="train")) == list(range(10))
                break
            cure = "copy it again from where the job wrote it, or run the job again$"
            with pytest.raises(DatasetError, match=rf"/{INDEX}: .*{message}.*; {cure}"):
                ids(path, split="train")


def test_an_index_without_a_manifest_must_fit_its_file(tmp_path):
    write_numbers(tmp_path, (4, 5))
    one, other = sorted(tmp_path.glob("train*.tfrecord"))
    os.replace(f"{other}.index", f"{one}.index")
    message = rf"{one}\.index: {other.stat().st_size} bytes of records, its file has .*; delete the"
    with pytest.raises(DatasetError, match=message):
        readers.RecordSource(str(one), schema=NUMBERS)
    with pytest.raises(DatasetError, match=message):
        readers.as_numpy(str(one), schema=NUMBERS, batch_size=1)


@pytest.mark.parametrize("made", ["copy", "scan"])
def test_a_damaged_copy_is_made_again(tmp_path, monkeypatch, folder, made):
    write_numbers(tmp_path)
    if made == "scan":
        (tmp_path / INDEX).unlink()
    with in_memory(tmp_path) as url:
        path = f"{url}/{SHARD}" if made == "scan" else url
        how = {"schema": NUMBERS} if made == "scan" else {"split": "train"}
        found = ids(path, **how)
        for copy in folder.glob("*.index"):
            flip(copy, -60)
        assert ids(path, **how) == found
        again = counted(monkeypatch, "scanned" if made == "scan" else "fetch")
        assert ids(path, **how) == found
        assert [name for name in again if made == "scan" or name.startswith("train")] == []


# A large index is checked block by block.


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file of 300,000 empty records with an index of more than a megabyte."""
    path = tmp_path_factory.mktemp("large") / "a.tfrecord"
    write_shard(path, [b""] * 300_000)
    assert os.path.getsize(f"{path}.index") > 1 << 20
    return path


def test_the_blocks_of_a_large_index_are_checked_when_they_are_first_used(large, monkeypatch):
    checked, value = list[int](), google_crc32c.value

    def noted(data):
        checked.append(len(data))
        return value(data)

    monkeypatch.setattr(google_crc32c, "value", noted)
    indexes = loaded([part_of(large, 300_000)])
    assert len(checked) == 1  # The head.
    # 16,384 offsets are a block, so a record of two blocks needs both.
    for rows, blocks in (([0, 5], 1), ([16_382, 9], 0), ([16_383], 1), ([299_999, 40_000], 2)):
        before = len(checked)
        assert indexes.of(np.array(rows), np.zeros(len(rows), int)).tolist() == [
            [16 * row, 16] for row in rows
        ]
        assert len(checked) == before + blocks
    last = (os.path.getsize(f"{large}.index") - checked[0] - 16) % 65536
    assert sorted(checked[1:]) == [last, 65536, 65536, 65536]


def test_a_damaged_block_of_a_large_index_is_an_error_when_it_is_used(large, tmp_path):
    path = tmp_path / "a.tfrecord"
    path.symlink_to(large)
    data = bytearray((large.parent / "a.tfrecord.index").read_bytes())
    start = int.from_bytes(data[32:36], "little")
    data[start + 3 * 65536] ^= 1
    (tmp_path / "a.tfrecord.index").write_bytes(data)
    parts = part_of(large, 300_000), part_of(path, 300_000)
    indexes, zeros = loaded(parts), np.zeros(3, int)
    plan = Plan("", readers.Schema({"x": "int64"}), parts, 600_000, 16.0, ())
    mapped = FramedReader(OpenShards(plan, None), np.empty)
    rows = np.array([5, 3 * 16_384 - 2, 4 * 16_384])
    assert indexes.of(rows, zeros + 1)[:, 0].tolist() == [16 * row for row in rows]
    addresses = mapped.mapped(300_000 + rows).addresses
    assert (addresses - addresses[0]).tolist() == [16 * (row - 5) for row in rows]
    for row in (3 * 16_384 - 1, 3 * 16_384, 3 * 16_384 + 700):
        assert indexes.of_one(row, 0) == (16 * row, 16)
        with pytest.raises(DatasetError, match=rf"^{path}\.index: damaged; delete the index$"):
            indexes.of(np.array([3, row, 4]), zeros + 1)
        with pytest.raises(DatasetError, match=rf"^{path}\.index: damaged; delete the index$"):
            mapped.mapped(300_000 + np.array([3, row, 4]))


def test_a_damaged_block_of_a_large_copy_is_an_error_once(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(indexes, "_CHECKED_AT_ONCE", 0)
    write_numbers(tmp_path)
    with in_memory(tmp_path) as path:
        found = ids(path, split="train")
        for copy in folder.glob("*.index"):
            flip(copy, -60)
        before = len(list(folder.glob("*.index")))
        with pytest.raises(DatasetError, match=r"index: damaged; open the dataset again$"):
            loaded(resolve(path, "train", None, None).parts).of(np.arange(4), np.arange(4))
        assert len(list(folder.glob("*.index"))) == before - 1
        for copy in folder.glob("*.index"):
            copy.unlink()
        assert ids(path, split="train") == found


# An index without a manifest may say anything with right checksums.

BIG = 1 << 40


@pytest.mark.parametrize(
    ("size", "dtype", "offsets"),
    [
        (64, "u4", [0, 16, 48, 64]),
        (64, "u4", [0, 48, 16, 64]),
        (64, "u4", [0, 15, 40, 64]),
        (64, "u4", [16, 32, 48, 65]),
        (64, "u4", [0, 2**32 - 1, 0, 64]),
        (64, "u8", [0, 2**64 - 64, 2**64 - 1, 64]),
        (64, "u8", [2**64 - 1, 2**63, 2**63 + 16, 64]),
        (64, "u8", [2**63 - 1, 2**63 + 15, 0, 2**62]),
        (BIG, "u8", [0, LONGEST, 2 * LONGEST + 1, BIG]),
        (3 * LONGEST, "u8", [0, LONGEST, 2 * LONGEST, 3 * LONGEST]),
        ((1 << 63) - 1, "u8", [0, (1 << 63) - 33, (1 << 63) - 17, (1 << 63) - 1]),
    ],
)
def test_no_record_is_outside_of_its_file(tmp_path, size, dtype, offsets):
    data = index_bytes(3, size, [("offset", dtype, np.array(offsets, f"<{dtype}").tobytes())])
    (tmp_path / "a.index").write_bytes(data)
    compare_mapped(data, str(tmp_path / "a.index"))


def test_offsets_of_four_and_of_eight_bytes_are_read_together(tmp_path):
    """The large file is sparse: two records of 2 GiB, of which nothing is read, and three small ones."""
    small, big = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    (shard,) = write_dataset(tmp_path / "d", NUMBERS, {"all": [numbers(0, 3)]}).glob("*.tfrecord")
    data, lengths = shard.read_bytes(), index_of(shard)[:, 1].tolist()
    small.write_bytes(data)
    with big.open("wb") as file:
        file.truncate(2 * LONGEST)
        file.seek(2 * LONGEST)
        file.write(data)
    offsets = np.cumsum([0, LONGEST, LONGEST, *lengths]).astype("<u8")
    assert offsets[-4] == 2 * LONGEST > 1 << 32
    section = [("offset", "u8", offsets.tobytes())]
    (tmp_path / "b.tfrecord.index").write_bytes(index_bytes(5, big.stat().st_size, section))
    source = readers.RecordSource([big, small, big], schema=NUMBERS)
    numbers_ = [2, 5, 7, 12, 3, 10]
    assert [source[number]["id"] for number in numbers_] == [0, 0, 2, 2, 1, 0]
    assert [each["id"] for each in source.__getitems__(numbers_)] == [0, 0, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("true", "stated", "fits"),
    [
        ([8, 1], [7, 1], False),
        ([5, 5], [3, 5], False),
        ([5, 3], [5, 2], True),
        ([9, 4], [8, 4], True),
        ([3, 3], [2**32 - 1, 6], True),
    ],
)
def test_lengths_that_an_index_makes_up_lose_no_value(tmp_path, true, stated, fits):
    path, encoder = tmp_path / "a.tfrecord", Encoder(SIGNALS)
    examples = [encoder.encode(record) for record in signals(true)]
    write_shard(path, examples, sections={"length/signal": np.array(stated, np.uint32)})
    batches = readers.as_numpy(
        path, schema=SIGNALS, columns=["signal"], batching=readers.Packed(8), batch_size=1
    )
    if not fits:
        with pytest.raises(DatasetError, match=r"'signal': .*the lengths in an index differ"):
            list(batches)
        return
    found = sum(np.count_nonzero(batch["signal_segment_ids"]) for batch in batches)
    assert found == sum(min(length, 8) for length in true)


def test_an_index_that_changed_since_the_plan_is_refused(tmp_path):
    write_numbers(tmp_path, (4,), val=0)
    (path,) = tmp_path.glob("train*.tfrecord")
    plan = resolve([str(path)], None, NUMBERS, None)
    offsets = [("offset", "u4", bytes(4 * 5))]
    for records, sections in ((4, offsets), (4, [*offsets, ("x", "u1", b"abcd")]), (3, offsets)):
        (tmp_path / f"{path.name}.index").write_bytes(index_bytes(records, 1 << 50, sections))
        with pytest.raises(DatasetError, match=rf"^{path}\.index: .*; delete the index$"):
            loaded(plan.parts)


def test_a_manifest_that_states_more_bytes_than_any_process_has_is_an_error():
    for sizes in ([1 << 47], [1 << 64], [(1 << 64) - 4096, 8192], [1 << 46] * 5):
        with pytest.raises(OSError, match=r"no range of \d+ addresses"):
            ShardIndexes([index_next_to(f"{n}", 1, size) for n, size in enumerate(sizes)])


def test_threads_that_load_an_index_at_the_same_time_map_it_once(tmp_path, monkeypatch):
    write_numbers(tmp_path, (4, 5, 6))
    plan = resolve(str(tmp_path), "train", None, None)
    indexes, begun = ShardIndexes([part.index for part in plan.parts]), threading.Barrier(6)
    mapped, files = list[int](), indexes._files
    map_file = files.map
    monkeypatch.setattr(files, "map", lambda n, file: (mapped.append(n), map_file(n, file)))

    def load(number):
        begun.wait(timeout=20)
        indexes.load(number)
        return indexes.of_one(0, number)[0]

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(load, [0, 1, 2] * 2)) == [0] * 6
    assert sorted(mapped) == [0, 1, 2]


def test_without_room_for_copies_each_reader_has_its_own(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kept_files, "reserve", full)
    write_numbers(tmp_path)
    with in_memory(tmp_path) as path:
        fetched = counted(monkeypatch, "fetch")
        for _ in range(2):
            assert sorted(ids(path, split="train")) == list(range(20))
        assert len(fetched) == 8
    (tmp_path / INDEX).unlink()
    assert sorted(ids(str(tmp_path / SHARD), schema=NUMBERS)) == [5, 6, 7, 8]
