"""Files of this machine: patterns, and listings of folders that hold what is not ours."""

import os

import pytest

from readers.files.local import LocalFiles, is_local, path_text

FILES = LocalFiles()


def test_a_pattern_of_all_folders_does_not_follow_links(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("a/1.tfrecord", "a/b/2.tfrecord", "3.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "a/self").symlink_to(tmp_path / "a")
    assert FILES.glob(f"{tmp_path}/**/*.tfrecord") == [
        f"{tmp_path}/a/1.tfrecord",
        f"{tmp_path}/a/b/2.tfrecord",
    ]
    assert FILES.glob(f"{tmp_path}/*/1.tfrecord") == [f"{tmp_path}/a/1.tfrecord"]


def test_paths_of_a_pattern_mean_the_same_in_any_folder(tmp_path, monkeypatch):
    (tmp_path / "x.tfrecord").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert FILES.glob("*.tfrecord") == [f"{tmp_path}/x.tfrecord"]


def test_a_folder_of_others_in_a_listed_one_is_none_of_ours(tmp_path, monkeypatch):
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "x").write_bytes(b"123")
    (tmp_path / "dangling").symlink_to("nowhere")
    scandir = os.scandir

    def refused(path):
        if str(path) in forbidden:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)
    forbidden = {f"{tmp_path}/lost+found"}
    assert [(file.path, file.size) for file in FILES.listed(str(tmp_path))] == [
        (f"{tmp_path}/x", 3)
    ]
    forbidden = {str(tmp_path)}
    with pytest.raises(PermissionError):
        list(FILES.listed(str(tmp_path)))
    assert list(FILES.listed(f"{tmp_path}/missing")) == []


def test_what_the_kernel_makes_up_is_read_to_its_end():
    assert b"Name:" in FILES.read("/proc/self/status")


def test_ranges_end_with_the_file(tmp_path):
    path = str(tmp_path / "x")
    (tmp_path / "x").write_bytes(bytes(range(100)))
    for start, size in ((0, None), (7, None), (90, 50), (100, 5), (200, 5), (3, 0)):
        stop = None if size is None else start + size
        assert FILES.read(path, start, size) == bytes(range(100))[start:stop]


def test_names_of_schemes():
    assert path_text("file:///a/b") == "/a/b"
    assert path_text("gcs://b/x") == "gs://b/x"
    assert path_text("~/x") == os.path.expanduser("~/x")
    assert is_local("a::b") and is_local("/a:b") and not is_local("zip://a::https://h/b.zip")
