"""What campaigns compare: values of several readers, and the files of directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def trace(value: Any) -> Any:
    """A value that equals that of another reader only if dtype, shape and every bit are the same."""
    if isinstance(value, list):
        return tuple(map(trace, value))
    if isinstance(value, (bytes, memoryview)):
        return "object", (), bytes(value)
    array = np.asarray(value)
    if array.dtype.hasobject:
        items = array.ravel().tolist()
        nested = tuple(trace(i) if isinstance(i, (list, np.ndarray)) else i for i in items)
        return "object", array.shape, nested if array.shape else nested[0]
    return array.dtype.name, array.shape, array.tobytes()


def read_files(folder: Path) -> dict[str, bytes]:
    """The content of every file in a directory, hidden ones included, by its relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files of a directory, which is created if there are some."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
