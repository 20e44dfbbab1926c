"""Which filesystem a directory is on, from lines of /proc/self/mountinfo."""

from __future__ import annotations

import pytest

from readers.files.mounts import filesystem_type, is_on_local_disk

MOUNTS = r"""
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:21 / /proc rw - proc proc rw
23 21 0:40 / /data rw,relatime shared:9 master:3 - nfs4 server:/export rw,vers=4.2
24 23 0:41 / /data/fast rw - xfs /dev/nvme0n1 rw
25 21 0:42 / /mnt/my\040disk rw - fuse.sshfs me@host: rw
26 21 0:43 / /over rw - ext4 /dev/sdb1 rw
27 26 0:44 / /over rw - cifs //server/share rw
""".strip().splitlines()


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/", "ext4"),
        ("/home/me", "ext4"),
        ("/data", "nfs4"),
        ("/data/sets/a", "nfs4"),
        ("/data/fast/a", "xfs"),
        ("/data/faster", "nfs4"),
        ("/database", "ext4"),
        ("/mnt/my disk/a", "fuse.sshfs"),
        ("/over/a", "cifs"),
    ],
)
def test_the_type_of_a_filesystem_is_that_of_the_innermost_latest_mount(directory, kind):
    assert filesystem_type(MOUNTS, directory) == kind
    assert filesystem_type(MOUNTS[1:2], directory) == ""


def test_without_a_table_of_mounts_no_directory_is_known_to_be_local(tmp_path, monkeypatch):
    monkeypatch.setattr("readers.files.mounts._MOUNTS", tmp_path / "missing")
    assert not is_on_local_disk(str(tmp_path / "a"))
