"""Reads the first of the rejects that a dataset lists."""

from __future__ import annotations

from beam_jobs.records.rejects import Reject
from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import open_file


def first_rejects(folder: str, files: int = 64, size: int = 8 << 20) -> list[Reject]:
    """The rejects that the files in a folder list, up to a number and a size that are read in a moment.

    Args:
        folder: The folder `rejects/` of a dataset.
        files: The most files to read.
        size: The most bytes to read.

    Raises:
        OSError, ValueError: A file cannot be read, or lists something else.
    """
    rejects: list[Reject] = []
    for file in sorted(list_files(folder))[:files]:
        with open_file(file.path) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
        if not size:
            break
    return rejects
