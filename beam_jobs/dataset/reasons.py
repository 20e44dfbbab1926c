"""Reads the first of the rejects that a dataset lists."""

from __future__ import annotations

from collections.abc import Sequence

from beam_jobs.records.rejects import Reject
from beam_jobs.storage.files import open_file
from readers.format.manifest import join


def first_rejects(
    directory: str, lists: Sequence[str], files: int = 64, size: int = 8 << 20
) -> list[Reject]:
    """The rejects in the lists of a dataset, up to a number and a size that are read in a moment.

    Args:
        directory: The dataset.
        lists: The paths of the lists in it.
        files: The most files to read.
        size: The most bytes to read.

    Raises:
        OSError, ValueError: A file cannot be read, or lists something else.
    """
    rejects: list[Reject] = []
    for path in lists[:files]:
        with open_file(join(directory, path)) as lines:
            data = lines.read(size)
        size -= len(data)
        rejects += map(Reject.from_json, data[: data.rfind(b"\n") + 1].splitlines())
        if not size:
            break
    return rejects
