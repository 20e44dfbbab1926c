"""Reads the rejects that a job lists in its output, as far as a report shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import fsspec

from readers.format.manifest import join
from readers.format.rejects import REJECTS

# Files and bytes that are read: enough for the reasons, whatever the number of rejects.
_FILES, _BYTES = 64, 8 << 20

# Characters of a key, and of an error.
_LONGEST = 500


class ListedReject(NamedTuple):
    """An input that could not become a record.

    Attributes:
        key: Its key.
        error: Why.
    """

    key: str
    error: str


def first_rejects(directory: str) -> Iterator[ListedReject]:
    """Yields the first rejects that a dataset lists; nothing if the lists cannot be read.

    Args:
        directory: The dataset's directory, on any filesystem.
    """
    for line in _lines(join(directory, REJECTS)):
        try:
            found = json.loads(line)
            yield ListedReject(str(found["key"])[:_LONGEST], str(found["error"])[:_LONGEST])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def _lines(folder: str) -> list[bytes]:
    """The whole lines at the beginning of the files of a folder."""
    try:
        filesystem, path = fsspec.core.url_to_fs(folder)
        files = sorted(filesystem.ls(path, detail=False))[:_FILES]
        data = [filesystem.cat_file(file, 0, _BYTES // len(files)) for file in files]
    except (OSError, ValueError):
        return []
    return [line for each in data for line in each[: each.rfind(b"\n") + 1].splitlines()]
