"""Files that are created once per machine, and kept in a folder that belongs to the user.

The folder is in the user's cache folder, or in the directory for temporary files if the cache is not on a local
disk. If there is no room in either, a file is created in memory, only for this process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from readers.files.kept_files import KeptFiles, write
from readers.files.mounts import is_on_local_disk

# The size of all files together. The index of a billion records takes 8 to 20 GB.
_MOST_BYTES = 32 << 30


def kept(key: Any, make: Callable[[], bytes]) -> BinaryIO:
    """Opens the file of a key, whose `repr` determines the bytes; creates it if this user does not have it."""
    name, folders = _name(key), _folders()
    for folder in folders:
        with contextlib.suppress(OSError):
            if file := KeptFiles(folder, _MOST_BYTES).open(name):
                return file
    data = make()
    for folder in folders:
        with contextlib.suppress(OSError):
            files = KeptFiles(folder, _MOST_BYTES)
            # Half of the free space is left for other programs.
            has_room = 2 * len(data) < shutil.disk_usage(folder).free
            if has_room and (file := files.fill(name, len(data), lambda out: write(out, data))):
                return file
    return _in_memory(data)


def drop(key: Any) -> bool:
    """Deletes the file of a key; returns whether there was one."""
    dropped = [KeptFiles(folder, _MOST_BYTES).drop(_name(key)) for folder in _folders()]
    return any(dropped)


def _name(key: Any) -> str:
    return hashlib.sha256(repr(key).encode()).hexdigest()[:40] + ".index"


def _folders() -> list[str]:
    """The folders where files may be kept, the better one first."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    paths = [Path(base, "beam-shards", "indexes")] if os.path.isabs(base) else []
    paths.append(Path(tempfile.gettempdir(), f"beam-shards-{os.geteuid()}"))
    return [str(path) for path in paths if _is_usable(path)]


def _is_usable(path: Path) -> bool:
    """Whether a folder, created if missing, is on a local disk and owned by the user: others may have made it, or a link."""
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError:
        return False
    is_own = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
    return is_own and stat.S_ISDIR(found.st_mode) and is_on_local_disk(str(path))


def _in_memory(data: bytes) -> BinaryIO:
    """A file that only this process has."""
    if hasattr(os, "memfd_create"):
        file: BinaryIO = os.fdopen(os.memfd_create("beam-shards"), "w+b")
    else:
        file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file
