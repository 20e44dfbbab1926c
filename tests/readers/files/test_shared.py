import multiprocessing
import os
import stat
import tempfile
import time

import numpy as np
import pytest

from readers.files import shared
from readers.files.shared import SharedNumbers

ENDS = np.array([3, 3, 7, 12])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"beam-shards-{os.geteuid()}"


def piece(number):
    return np.arange([0, *ENDS][number], ENDS[number]) * 100


def load_all(numbers, made=None):
    """Loads all pieces; `made` gets the numbers of those that had to be made."""
    for number in range(len(ENDS)):

        def make(number=number):
            if made is not None:
                made.append(number)
            return piece(number)

        numbers.load(number, make)
    return numbers.numbers.tolist()


def opened(key="a", dtype=np.uint32):
    return SharedNumbers(key, ENDS, dtype)


WHOLE = (np.arange(12) * 100).tolist()


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_a_piece_is_made_once(dtype):
    made = []
    for _ in range(2):
        numbers = opened(dtype=dtype)
        assert load_all(numbers, made) == load_all(numbers, made) == WHOLE
        assert numbers.is_shared
        assert numbers.numbers.dtype == dtype
    assert made == [0, 1, 2, 3]


@pytest.mark.parametrize("other", [("b", ENDS, np.uint32), ("a", ENDS, np.int64)])
def test_numbers_of_another_key_or_type_are_others(other):
    load_all(opened())
    made = []
    load_all(SharedNumbers(*other), made)
    assert made == [0, 1, 2, 3]


def test_without_a_key_nothing_is_shared(folder):
    assert load_all(opened(None)) == WHOLE
    assert not folder.exists()


def test_nobody_else_may_read_or_write_them(folder):
    load_all(opened())
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o750, 0o701])
def test_a_folder_that_others_may_use_is_not_trusted(folder, mode):
    load_all(opened())
    folder.chmod(mode)
    made = []
    numbers = opened()
    assert load_all(numbers, made) == WHOLE
    assert made == [0, 1, 2, 3]
    assert not numbers.is_shared


def test_a_folder_of_another_user_is_not_trusted(monkeypatch, folder):
    load_all(opened())
    found = os.geteuid()
    folder.rename(folder.with_name(f"beam-shards-{found + 1}"))
    monkeypatch.setattr(os, "geteuid", lambda: found + 1)
    assert not opened().is_shared


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_a_link_in_place_of_the_folder_is_not_followed(folder, target):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / target)
    assert not opened().is_shared
    assert list((folder.parent / "elsewhere").iterdir()) == []


def test_a_link_in_place_of_a_file_is_not_followed(folder):
    load_all(opened())
    (file,) = folder.iterdir()
    kept = file.rename(folder.parent / "kept")
    before = kept.read_bytes()
    file.symlink_to(kept)
    assert load_all(opened()) == WHOLE
    assert kept.read_bytes() == before


def test_a_damaged_piece_is_made_again(folder):
    load_all(opened())
    (file,) = folder.iterdir()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    made = []
    assert load_all(opened(), made) == WHOLE
    assert made == [3]
    assert load_all(opened(), made) == WHOLE
    assert made == [3]


@pytest.mark.parametrize("size", [1, 79, 81, 10_000])
def test_a_file_of_another_size_is_made_again(folder, size):
    load_all(opened())
    (file,) = folder.iterdir()
    assert file.stat().st_size == 80
    os.truncate(file, size)
    assert load_all(opened()) == WHOLE
    made = []
    assert load_all(opened(), made) == load_all(opened(), made) == WHOLE
    assert made == [0, 1, 2, 3]


def test_what_was_loaded_stays_when_the_disk_is_full(monkeypatch):
    numbers = opened()
    numbers.load(0, lambda: piece(0))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    made = []
    assert load_all(numbers, made) == WHOLE
    assert made == [1, 2, 3]
    assert not numbers.is_shared


def test_the_longest_unused_make_room(monkeypatch, folder):
    monkeypatch.setattr(shared, "_MOST_BYTES", 2 * 4096 + 80)
    held, files = [], set()
    for hours, key in [(9, "a"), (5, "b"), (7, "c")]:
        held.append(opened(key))
        load_all(held[-1])
        (file,) = set(folder.iterdir()) - files
        files.add(file)
        os.utime(file, (time.time() - hours * 3600,) * 2)
    made = []
    load_all(opened("d"), made)
    load_all(opened("b"), made)
    assert made == [0, 1, 2, 3]
    load_all(opened("a"), made)
    assert made == [0, 1, 2, 3] * 2
    # A file that was deleted stays with those who have it.
    assert [load_all(numbers) for numbers in held] == [WHOLE] * 3


def test_files_unused_for_a_week_are_deleted_but_no_others(folder):
    load_all(opened())
    (file,) = folder.iterdir()
    other = folder / "other"
    other.write_text("")
    for path in (file, other):
        os.utime(path, (time.time() - 8 * 24 * 3600,) * 2)
    load_all(opened("b"))
    assert other.exists()
    assert not file.exists()


def _load_in_process(folder, results):
    tempfile.tempdir = folder
    results.put(load_all(opened()))


def test_processes_that_start_together_agree(tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [
        context.Process(target=_load_in_process, args=(str(tmp_path), results)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=20) for _ in processes]
    for process in processes:
        process.join()
    assert found == [WHOLE] * 4
    made = []
    load_all(opened(), made)
    assert made == []
