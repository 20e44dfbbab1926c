"""Indexes as text, for DALI and other programs that cannot read the binary ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from readers.files.local import is_local, path_text
from readers.format.manifest import TEXT_INDEX_SUFFIX, Manifest
from readers.shards.index import read_offsets
from readers.shards.resolving.datasets import whole_shard


def write_text_indexes(
    directory: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> list[Path]:
    """Writes lines of "<offset> <length>" in bytes, with framing, to `<shard>.idx`; returns the local paths."""
    source = path_text(directory)
    folder = source if output is None else path_text(output)
    if not is_local(folder):
        raise ValueError(
            f"{folder}: text indexes are written to a local folder; add --output FOLDER"
        )
    manifest, written = Manifest.read(source), []
    if output is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for part in (whole_shard(source, shard) for shard in manifest.shards):
        offsets = read_offsets(part)
        rows = zip(offsets[:-1].tolist(), np.diff(offsets).tolist(), strict=True)
        path = Path(part.path + TEXT_INDEX_SUFFIX)
        path = path if output is None else Path(folder, path.name)
        path.write_text("".join(f"{offset} {length}\n" for offset, length in rows))
        written.append(path)
    return written
