"""Files that are mapped: one by one, and side by side."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from readers.files.mapped import MappedFile, MappedFiles


def test_files_of_any_size_are_side_by_side(tmp_path):
    sizes = [0, 1, 4096, 4097, 0, 3 << 30, 12_288, 0]
    files = MappedFiles(sizes)
    assert files.octets[:: 1 << 29].tolist() == [0] * 7
    descriptors = len(os.listdir("/proc/self/fd"))
    for number, size in reversed(list(enumerate(sizes))):
        with (tmp_path / str(number)).open("w+b") as file:
            file.truncate(size)
            if size:
                file.write(b"%d" % number)
                file.seek(size - 1)
                file.write(b"e")
                file.flush()
            files.map(number, file)
    assert len(os.listdir("/proc/self/fd")) == descriptors
    for number, (start, size) in enumerate(zip(files.starts, sizes, strict=True)):
        assert start % 4096 == 0
        if size:
            octets = files.octets[start : start + size]
            assert bytes(octets[[0, -1]]) in (b"%de" % number, b"ee")
            assert octets[1:-1][: 1 << 20].max(initial=0) == 0
    numbers = files.octets.view("<u4")
    assert numbers[files.starts[5] // 4] == ord("5")
    with pytest.raises(ValueError, match="read-only"):
        files.octets[0] = 1


def test_a_map_outlives_its_file_and_its_owner(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    files = MappedFiles([3])
    with path.open("rb") as file:
        files.map(0, file)
        one = MappedFile(file)
    path.unlink()
    octets, view = files.octets, one.view
    del files, one
    gc.collect()
    assert (bytes(octets[:3]), bytes(view)) == (b"abc", b"abc")
    assert "a (deleted)" in Path("/proc/self/maps").read_text()
    del octets, view
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_nothing_is_mapped_of_nothing(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"")
    for sizes in ([], [0], [0, 0]):
        files = MappedFiles(sizes)
        assert (files.starts, len(files.octets)) == ([0] * len(sizes), 0)
        with path.open("rb") as file:
            for number in range(len(sizes)):
                files.map(number, file)
            assert (len(MappedFile(file).view), MappedFile(file).address) == (0, 0)


def test_a_file_of_another_size_is_refused(tmp_path):
    path, files = tmp_path / "a", MappedFiles([5, 0])
    path.write_bytes(b"abcd")
    for number, size in ((0, 5), (1, 0)):
        with path.open("rb") as file, pytest.raises(OSError, match=f"4 bytes, expected {size}"):
            files.map(number, file)
    with path.open("wb") as file, pytest.raises(OSError, match="Permission denied"):
        file.truncate(5)
        files.map(0, file)
