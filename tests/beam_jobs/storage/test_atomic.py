import errno
import os

import pytest
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_jobs.errors import DataError
from beam_jobs.storage import atomic
from beam_jobs.storage.atomic import NewFile, delete_files, write_file


def no_links(*_):
    raise OSError(errno.EPERM, "Operation not permitted")


def rename_as_hdfs(sources, targets):
    """Renames files on a disk of this machine, but onto no other file."""
    for source, target in zip(sources, targets, strict=True):
        if os.path.exists(target):
            raise BeamIOError(f"{target} exists")
        os.rename(source, target)


@pytest.fixture(params=["disk", "disk without links", "hdfs"])
def filesystem(request, monkeypatch):
    """A disk that behaves as each of the filesystems."""
    if request.param == "disk without links":
        monkeypatch.setattr(os, "link", no_links)
    elif request.param == "hdfs":
        monkeypatch.setattr("beam_jobs.storage.files.is_local", lambda _: False)
        monkeypatch.setattr(FileSystems, "rename", rename_as_hdfs)


@pytest.fixture
def staging(tmp_path):
    return str(tmp_path / ".staging/run")


def files(directory):
    """Path -> content of all files."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def test_a_file_is_created_and_never_replaced(filesystem, tmp_path, staging):
    path = str(tmp_path / "folder/x")
    write_file(path, b"some", staging)
    write_file(path, b"some", staging)  # Another attempt has written the same.
    for other in (b"else", b"longer", b""):
        with pytest.raises(DataError, match=f"{path} has other bytes than this job writes"):
            write_file(path, other, staging)
    assert files(tmp_path) == {"folder/x": b"some"}


def test_of_two_attempts_the_first_to_end_creates_the_file(filesystem, tmp_path, staging):
    path = str(tmp_path / "x")
    with NewFile(path, staging) as slow:
        slow.write(b"slow")
        write_file(path, b"fast", staging)
        with pytest.raises(DataError, match="has other bytes"):
            slow.publish()
    assert files(tmp_path) == {"x": b"fast"}


def test_a_file_is_replaced_where_that_is_asked_for(filesystem, tmp_path, staging):
    path = str(tmp_path / "x")
    for data in (b"first", b"second"):
        write_file(path, data, staging, replace=True)
    assert files(tmp_path) == {"x": b"second"}


@pytest.mark.parametrize("replace", [True, False])
def test_half_a_file_never_has_its_name(filesystem, tmp_path, staging, replace):
    with pytest.raises(KeyError), NewFile(str(tmp_path / "x"), staging, replace) as file:
        file.write(b"half")
        ((name, _),) = files(tmp_path).items()
        assert name.startswith(".staging/run/x.")
        raise KeyError
    assert files(tmp_path) == {}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_is_no_disk_without_links(tmp_path, staging, monkeypatch, number):
    def failing(*_):
        raise OSError(number, "fails")

    monkeypatch.setattr(os, "link", failing)
    with pytest.raises(OSError, match="fails") as caught:
        write_file(str(tmp_path / "x"), b"x", staging)
    assert caught.value.errno == number
    assert files(tmp_path) == {}


def test_a_rename_that_fails_for_another_reason_is_reported(tmp_path, staging, monkeypatch):
    def failing(*_):
        raise BeamIOError("no namenode answers")

    monkeypatch.setattr("beam_jobs.storage.files.is_local", lambda _: False)
    monkeypatch.setattr(FileSystems, "rename", failing)
    with pytest.raises(BeamIOError, match="no namenode answers"):
        write_file(str(tmp_path / "x"), b"x", staging)
    assert files(tmp_path) == {}


def test_a_file_that_is_deleted_while_it_is_compared_is_not_taken_for_written(
    tmp_path, staging, monkeypatch
):
    def deleted(_):
        raise FileNotFoundError

    path = str(tmp_path / "x")
    write_file(path, b"x", staging)
    monkeypatch.setattr(atomic, "size_and_crc", deleted)
    with pytest.raises(DataError, match="another job writes to this directory"):
        write_file(path, b"x", staging)


def test_the_size_and_the_checksum_are_those_of_the_bytes(tmp_path, staging):
    with NewFile(str(tmp_path / "x"), staging) as file:
        for data in (b"1234", b"", b"56789"):
            file.write(data)
        file.publish()
    assert (file.size, file.crc32c) == (9, 0xE3069283)


@pytest.mark.parametrize("local", [True, False])
def test_deleting_ignores_what_is_missing_and_drops_empty_folders(tmp_path, monkeypatch, local):
    monkeypatch.setattr("beam_jobs.storage.files.is_local", lambda _: local)
    for name in ("a/x", "a/y", "b/z"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    delete_files(str(tmp_path / name) for name in ("a/x", "a/none", "b/z"))
    assert files(tmp_path) == {"a/y": b""}
    assert (tmp_path / "b").exists() is not local


def test_syncing_waits_for_the_folders_that_name_the_files(tmp_path, monkeypatch):
    out = tmp_path / "out"
    (out / "rejects").mkdir(parents=True)
    real, synced = os.fsync, []

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    atomic.sync_names(str(out), ["shard", "rejects/list"])
    assert synced == [str(tmp_path), str(out), f"{out}/rejects"]


def test_a_synced_file_is_on_the_disk_before_it_has_its_name(tmp_path, staging, monkeypatch):
    seen = []
    for name in ("fsync", "link", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *given, real=real, name=name: (seen.append(name), real(*given))
        )
    path = str(tmp_path / "x")
    write_file(path, b"x", staging)
    write_file(path, b"y", staging, replace=True, synced=True)
    write_file(path, b"z", staging, replace=True)
    assert seen == ["fsync", "link", "fsync", "replace", "replace"]
