"""Encoded records on a local disk: they are found again, and a failing disk is reported."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.engines.pool import Pool
from beam_jobs.errors import DataError
from beam_jobs.records import spool as spools
from beam_jobs.records.blocks import Block
from beam_jobs.records.ragged import Ragged
from beam_jobs.records.spool import Spool, SpoolReader


def block_of(seed: int, count: int = 5) -> Block:
    rng = np.random.default_rng(seed)
    payloads = [rng.bytes(int(rng.integers(0, 300))) for _ in range(count)]
    hashes = rng.integers(0, 2**63, count, np.uint64)
    return Block(hashes, np.full(count, seed % 3, np.uint8), Ragged.of(payloads))


def read(spool: Spool, locators: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Each block packed, and its payloads as they are in the file."""
    found = []
    with SpoolReader(spool) as reader:
        for number, at, block in reader.blocks(locators):
            data = Path(reader.files[number].name).read_bytes()
            starts = at + block.payloads.ends - block.payloads.lengths
            spans = zip(starts.tolist(), block.payloads.lengths.tolist(), strict=True)
            found.append((block.pack(), [data[start : start + size] for start, size in spans]))
    return found


def test_blocks_are_found_by_their_locators_in_any_order(tmp_path):
    spool = Spool(str(tmp_path))
    blocks = [block_of(n, n % 4 * 3) for n in range(20)]
    locators = [spool.append(block.pack()) for block in blocks]
    chosen = [7, 3, 3, 19, 0]
    found = read(spool, b"".join(locators[n] for n in chosen))
    assert found == [(blocks[n].pack(), list(blocks[n].payloads)) for n in chosen]
    assert len(list(tmp_path.iterdir())) == 1


def test_each_process_has_a_file_of_its_own(tmp_path):
    spool, pool = Spool(str(tmp_path)), Pool(2)
    blocks = [block_of(n, 50) for n in range(100)]
    locators = list(pool.map(spool.append, ((block.pack(),) for block in blocks)))
    pool.close()
    found = read(spool, b"".join(locators))
    assert [packed for packed, _ in found] == [block.pack() for block in blocks]
    assert 1 <= len(list(tmp_path.iterdir())) <= 2


def test_threads_may_read_at_once(tmp_path):
    spool = Spool(str(tmp_path))
    locators = b"".join(spool.append(block_of(n, 40).pack()) for n in range(50))
    expected = read(spool, locators)
    with ThreadPoolExecutor(4) as threads:
        assert all(f == expected for f in threads.map(lambda _: read(spool, locators), range(8)))


def test_files_are_closed_after_reading(tmp_path):
    spool = Spool(str(tmp_path))
    locator = spool.append(block_of(1).pack())
    with SpoolReader(spool) as reader:
        list(reader.blocks(locator))
        assert not reader.files[0].closed
    assert reader.files[0].closed


def test_a_full_disk_is_a_data_error_with_a_hint(tmp_path, monkeypatch):
    class Full:
        def tell(self):
            return 0

        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    spool = Spool(f"{tmp_path}/out/.staging")
    monkeypatch.setitem(spools._open_files, spool, (b"x" * 16, Full()))
    with pytest.raises(DataError, match=r"cannot be kept there \(.*No space left.*make room") as e:
        spool.append(b"block")
    assert e.value.message.startswith(f"{tmp_path}/out: ")


def test_a_missing_directory_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="cannot be kept there"):
        Spool(f"{tmp_path}/out/.staging").append(b"block")


def test_threads_append_to_one_file_without_mixing_blocks(tmp_path):
    spool = Spool(str(tmp_path))
    blocks = [block_of(number) for number in range(1, 200)]
    with ThreadPoolExecutor(8) as threads:
        locators = list(threads.map(lambda block: spool.append(block.pack()), blocks))
    with SpoolReader(spool) as reader:
        found = [block.pack() for each in locators for _, _, block in reader.blocks(each)]
    assert found == [block.pack() for block in blocks]
    assert len(list(tmp_path.iterdir())) == 1


def test_blocks_after_hand_over_are_in_another_file(tmp_path):
    spool = Spool(str(tmp_path), "run.")
    first = spool.append(block_of(1).pack())
    spool.hand_over()
    spool.hand_over()
    second = spool.append(block_of(2).pack())
    with SpoolReader(spool) as reader:
        assert len(list(reader.blocks(first + second))) == 2
    names = [path.name for path in tmp_path.iterdir()]
    assert len(names) == 2 and all(name.startswith("records.run.") for name in names)


def test_a_missing_block_is_a_data_error(tmp_path):
    spool = Spool(str(tmp_path))
    locator = spool.append(block_of(1).pack())
    (file,) = tmp_path.iterdir()
    os.truncate(file, 10)
    for _ in range(2):
        with SpoolReader(spool) as reader, pytest.raises(DataError, match="records are gone from"):
            list(reader.blocks(locator))
        file.unlink(missing_ok=True)
