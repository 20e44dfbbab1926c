"""`readers.report`: writes an HTML page about a dataset."""

from __future__ import annotations

import os
from pathlib import Path

from readers.check import check_facts, facts_of
from readers.files.local import path_text
from readers.format.display import unwritable


def report(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] = "report.html",
    *,
    records: int = 10_000,
    against: str | os.PathLike[str] | None = None,
) -> Path:
    """Writes a report on a dataset: one self-contained HTML file without scripts.

    It shows the number of inputs and rejects, the shards of each split, the findings of the checks, records of each
    split and its outliers, and the values of every feature. Counts cover all records; everything else comes from a
    sample, and the report states its size.

    Args:
        path: The dataset's directory: a path, or a URL of an object store or another fsspec protocol.
        output: The file to write. An existing file is replaced once the new one is complete.
        records: The maximum number of records to sample.
        against: Another dataset to compare with, such as an earlier version.

    Returns:
        The path of the file.

    Raises:
        ValueError, FileNotFoundError, StoreError: As for `readers.check`.
        ImportError: Pillow is not installed.
        OSError: The page cannot be written: the directory of `output` is missing, or `output` is not a file.

    Example:
        >>> readers.report("shards/images", "images.html")
        PosixPath('images.html')
    """
    from readers.pages.document import document
    from readers.pages.study import Study

    target = Path(output)
    if problem := unwritable(target):
        raise OSError(f"{target}: {problem}")
    directory = path_text(path)
    facts = facts_of(directory, records)
    html = document(Study(directory, facts, check_facts(facts, records, against)))
    real = Path(os.path.realpath(target))  # A symbolic link stays in place.
    partial = real.with_name(f".{real.name}.{os.getpid()}.partial")
    try:
        partial.write_text(html, encoding="utf-8")
        os.replace(partial, real)
    finally:
        partial.unlink(missing_ok=True)
    return target
