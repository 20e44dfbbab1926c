"""Which directories are on a local disk, where only programs on this machine change files."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")

_LOCAL_FILESYSTEMS = re.compile(
    "bcachefs|btrfs|erofs|exfat|ext[234]|f2fs|iso9660|jfs|ntfs3|overlay|ramfs|reiserfs|rootfs|squashfs|tmpfs|udf|vfat|"
    "xfs|zfs"
)


@functools.lru_cache(4096)
def is_on_local_disk(directory: str) -> bool:
    """Whether a directory is on a local disk, and not NFS, SMB, Lustre or FUSE; False if unknown, as on macOS."""
    try:
        lines = _MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return False
    found = filesystem_type(lines, os.path.realpath(directory))
    return _LOCAL_FILESYSTEMS.fullmatch(found) is not None


def filesystem_type(mounts: list[str], directory: str) -> str:
    """The filesystem type of a real absolute path according to proc_pid_mountinfo(5), where later mounts hide earlier ones."""
    longest, found = -1, ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        # Spaces are escaped in octal, as `\040`.
        escaped = before.split(" ")[4].rstrip("/")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), escaped)
        if len(point) >= longest and f"{directory}/".startswith(f"{point}/"):
            longest, found = len(point), after.split(" ")[0]
    return found
