"""Files that are made once on a machine, and what becomes of them where they cannot be kept."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import stat
import tempfile
import time
import types
from pathlib import Path

import pytest

from readers.files import kept as module
from readers.files.kept import drop, kept


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The first of the folders, which does not exist yet; the second one is in `tmp_path / "tmp"`."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/beam-shards/indexes"


@pytest.fixture
def second(tmp_path):
    return tmp_path / f"tmp/beam-shards-{os.geteuid()}"


def files_in(folder):
    """The files of a folder but its lock."""
    return [path for path in folder.iterdir() if path.suffix != ".lock"]


class Maker:
    """Makes some bytes, and counts how often."""

    def __init__(self, data=b"abc" * 1000):
        self.data, self.calls = data, 0

    def __call__(self):
        self.calls += 1
        return self.data

    def is_kept(self, key="a"):
        """Whether the file of a key has the bytes, and was not made now."""
        before = self.calls
        with kept(key, self) as file:
            assert file.read() == self.data
        return self.calls == before


@pytest.mark.parametrize("data", [b"", b"a", bytes(3 << 20)])
def test_a_file_is_made_once(data, folder, second):
    make = Maker(data)
    assert [make.is_kept() for _ in range(3)] == [False, True, True]
    assert [make.is_kept(("b", 1)) for _ in range(2)] == [False, True]
    assert len(files_in(folder)) == 2
    assert not second.exists() or not files_in(second)


def test_nobody_else_may_read_or_write_it(folder):
    Maker().is_kept()
    (file,) = files_in(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_folder_is_in_the_home_directory_if_the_user_names_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("XDG_CACHE_HOME")
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        Maker().is_kept(value)
    assert len(files_in(tmp_path / ".cache/beam-shards/indexes")) == 2


def spoil_mode(folder, monkeypatch, mode=0o770):
    folder.chmod(mode)


def spoil_link(folder, monkeypatch):
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def spoil_file(folder, monkeypatch):
    folder.rename(folder.with_name("elsewhere"))
    folder.write_bytes(b"")


def spoil_owner(folder, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)


def spoil_disk(folder, monkeypatch):
    monkeypatch.setattr(module, "is_on_local_disk", lambda path: path != str(folder))


def spoil_room(folder, monkeypatch):
    free = shutil.disk_usage

    def found(path):
        return types.SimpleNamespace(free=4096) if path == str(folder) else free(path)

    monkeypatch.setattr(shutil, "disk_usage", found)


@pytest.mark.parametrize(
    "spoil", [spoil_mode, spoil_link, spoil_file, spoil_disk, spoil_room], ids=lambda f: f.__name__
)
def test_the_second_folder_is_used_where_the_first_one_cannot_be(
    folder, second, monkeypatch, spoil
):
    Maker().is_kept("before")
    spoil(folder, monkeypatch)
    make = Maker()
    assert [make.is_kept() for _ in range(3)] == [False, True, True]
    assert len(files_in(second)) == 1


@pytest.mark.parametrize("mode", [0o701, 0o750, 0o777])
def test_a_folder_that_others_may_use_is_not_trusted(folder, second, mode):
    make = Maker()
    make.is_kept()
    folder.chmod(mode)
    second.chmod(mode)
    assert [make.is_kept() for _ in range(2)] == [False, False]
    folder.chmod(0o700)
    assert make.is_kept()


def test_a_folder_of_another_user_is_not_trusted(folder, monkeypatch):
    make = Maker()
    make.is_kept()
    spoil_owner(folder, monkeypatch)
    assert [make.is_kept() for _ in range(2)] == [False, False]


def failing(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("name", "number"), [("fsync", errno.EIO), ("mkdir", errno.EROFS), ("rename", errno.ENOSPC)]
)
def test_without_a_folder_that_can_be_written_it_is_in_memory(
    folder, second, monkeypatch, name, number
):
    if name == "mkdir":
        monkeypatch.setattr(Path, "mkdir", failing(number))
    else:
        monkeypatch.setattr(os, name, failing(number))
    make = Maker()
    assert [make.is_kept() for _ in range(2)] == [False, False]
    assert make.calls == 2
    for path in (folder, second):
        assert not path.exists() or not files_in(path)


def test_a_system_without_files_in_memory_uses_an_unlinked_one(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "is_on_local_disk", lambda _: False)
    monkeypatch.delattr(os, "memfd_create")
    make = Maker()
    with kept("a", make) as file:
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() == make.data
        assert os.fstat(file.fileno()).st_size == len(make.data)


@pytest.mark.parametrize("error", [ValueError, FileNotFoundError, ConnectionError])
def test_what_cannot_be_made_is_tried_once(folder, error):
    calls = []

    def make():
        calls.append(1)
        raise error("no")

    with pytest.raises(error, match="no"):
        kept("a", make)
    assert calls == [1]
    assert files_in(folder) == []


def test_a_link_in_place_of_a_file_is_not_followed(folder):
    make = Maker()
    make.is_kept()
    (file,) = files_in(folder)
    other = file.rename(folder.parent / "other")
    other.write_bytes(b"other")
    file.symlink_to(other)
    assert [make.is_kept() for _ in range(2)] == [False, True]
    assert other.read_bytes() == b"other"


def test_a_file_that_is_dropped_is_made_again(folder):
    make = Maker()
    assert not drop("a")
    make.is_kept()
    with kept("a", make) as held:
        assert drop("a")
        assert held.read() == make.data
    assert not drop("a")
    assert [make.is_kept() for _ in range(2)] == [False, True]


def test_the_longest_unused_make_room(folder, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", 8_000)
    make, held = Maker(), []
    for hours, key in [(9, "a"), (5, "b"), (7, "c")]:
        held.append(kept(key, make))
        held[-1].read()
        used = time.time() - hours * 3600
        os.utime(held[-1].fileno(), (used, used))
    # Two files of 3,000 bytes fit: the third one took the place of the first.
    assert len(files_in(folder)) == 2
    make.is_kept("d")
    assert make.is_kept("b")
    assert not make.is_kept("c")
    assert not make.is_kept("d")
    for file in held:
        file.seek(0)
        assert file.read() == make.data
        file.close()
    # One that is larger than all may be together displaces none.
    assert not Maker(bytes(8_001)).is_kept("large")
    assert make.is_kept("d")


def test_a_file_that_vanishes_while_others_are_counted_does_no_harm(folder, monkeypatch):
    Maker().is_kept()
    listed, gone = Path.iterdir, folder / ("0" * 40 + ".index")
    monkeypatch.setattr(Path, "iterdir", lambda path: iter([gone, *listed(path)]))
    make = Maker()
    assert [make.is_kept("d") for _ in range(2)] == [False, True]


def _keep(begin, results):
    make = Maker(bytes(range(256)) * 5000)
    begin.wait(timeout=20)
    found = []
    for key in "abab":
        with kept(key, make) as file:
            found.append(file.read() == make.data)
    results.put((found, make.calls))


def test_processes_that_start_together_agree(folder):
    context = multiprocessing.get_context("fork")
    begin, results = context.Barrier(4), context.Queue()
    processes = [context.Process(target=_keep, args=(begin, results)) for _ in range(4)]
    for process in processes:
        process.start()
    found = [results.get(timeout=20) for _ in processes]
    for process in processes:
        process.join()
    assert [right for right, _ in found] == [[True] * 4] * 4
    assert all(calls <= 2 for _, calls in found)
    make = Maker(bytes(range(256)) * 5000)
    assert make.is_kept("a") and make.is_kept("b")
    assert len(files_in(folder)) == 2
