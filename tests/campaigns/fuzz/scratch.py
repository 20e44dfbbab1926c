"""A file in memory for functions that take a path."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path


@functools.cache
def _folder(process: int) -> Path:
    memory = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def written(data: bytes, name: str) -> str:
    """The path of a file with some bytes, which the next call with this name overwrites."""
    path = _folder(os.getpid()) / name
    path.write_bytes(data)
    return str(path)
