"""What programs need that know no manifest: the paths of shards, and their indexes as text."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from readers.files.remote import local_path, path_text
from readers.format.manifest import TEXT_INDEX_SUFFIX, Manifest, join
from readers.shards.index import read_offsets
from readers.shards.resolving.datasets import dataset_plan


def shard_paths(directory: str | os.PathLike[str], split: str | None = None) -> list[str]:
    """The paths of the shards of a dataset, in order.

    Args:
        directory: The dataset's directory, on any filesystem that fsspec supports.
        split: The name of a split; None for all of them.

    Raises:
        DatasetError: (a ValueError) There is no manifest, or it is damaged.
        ValueError: There is no such split.
    """
    directory = path_text(directory)
    manifest = Manifest.read(directory)
    names = manifest.splits if split is None else [split]
    return [join(directory, shard.file) for name in names for shard in manifest.split(name).shards]


def write_text_indexes(
    directory: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Writes an index of each shard as text, lines of "<offset> <length>" in bytes, framing included.

    Args:
        directory: The dataset's directory, on any filesystem that fsspec supports.
        output: A local folder for the files `<shard>.idx`, which is created if it is missing; None for the
            dataset's directory, which must then be local.

    Returns:
        The paths of the files, in the order of the shards.

    Raises:
        DatasetError: (a ValueError) There is no manifest, it is damaged, or an index is.
        ValueError: The folder is not local.
        OSError: A file cannot be written.
    """
    source = path_text(directory)
    folder = local_path(source if output is None else path_text(output))
    if folder is None:
        raise ValueError(
            f"{source if output is None else output}: text indexes are written to a local folder; name one with "
            "--output"
        )
    manifest = Manifest.read(source)
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for split in manifest.splits:
        for part in dataset_plan(source, manifest, split).parts:
            offsets = read_offsets(part)
            rows = zip(offsets[:-1].tolist(), np.diff(offsets).tolist(), strict=True)
            path = Path(folder, os.path.basename(part.path) + TEXT_INDEX_SUFFIX)
            path.write_text("".join(f"{offset} {length}\n" for offset, length in rows))
            written.append(path)
    return written
