"""The files of a dataset's card."""

from __future__ import annotations

import os
from pathlib import Path

from readers.card.croissant import croissant
from readers.card.readme import readme
from readers.card.tfds import tfds_files
from readers.files.remote import local_path, path_text, read_file
from readers.format.manifest import MANIFEST, Manifest, join


def write_card(directory: str, output: str | None, licence: str) -> list[Path]:
    """Writes the card of a dataset; returns the paths of its files.

    Args:
        directory: The dataset, on any filesystem that fsspec knows.
        output: A folder on this machine, new or not; None is the dataset's own.
        licence: An SPDX identifier, a URL, or any other text; empty states none.

    Raises:
        DatasetError: (a ValueError) There is no manifest, or it is damaged.
        ValueError: The dataset is in a store and there is no output, or a file of the card is there already.
        OSError: The folder cannot be written, or the store still fails after several retries.
    """
    directory, licence = path_text(directory), " ".join(licence.split())
    folder = local_path(directory) if output is None else path_text(output)
    if folder is None:
        raise ValueError(f"{directory} is in a store: add --output with a folder on this machine")
    manifest, content = Manifest.read(directory), read_file(join(directory, MANIFEST))
    files = {
        "README.md": readme(manifest, licence),
        "croissant.json": croissant(manifest, content, licence),
        **tfds_files(manifest, licence),
    }
    paths = [Path(folder, name) for name in files]
    for path in filter(os.path.lexists, paths):
        raise ValueError(f"{path} is there already: move it away, or name another --output")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, data in zip(paths, files.values(), strict=True):
        path.write_bytes(data)
    return paths
