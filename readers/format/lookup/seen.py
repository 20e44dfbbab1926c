"""The rows of a split that readers see, from the file that its manifest lists."""

from __future__ import annotations

from readers.files.of_path import read_file
from readers.format.lookup.rows import SeenRows, unpack_rows
from readers.format.manifest import DatasetError, join
from readers.format.splits import Split


def seen_rows(directory: str, split: Split) -> SeenRows | None:
    """The rows of a split that readers see; None for all. DatasetError if their file is damaged or missing."""
    listed = split.gone or split.rows
    if listed is None:
        return None
    path = join(directory, listed.path)
    try:
        rows = unpack_rows(read_file(path), listed, split.stored)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest lists these rows, but they are missing"
        ) from None
    except ValueError as error:
        raise DatasetError(f"{path}: {error}; copy it again from where it was written") from None
    return SeenRows(split.stored, rows, split.gone is not None)
