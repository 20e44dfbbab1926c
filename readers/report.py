"""`readers.report`: a dataset as one HTML page to look at."""

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
    """Writes a report on a dataset: one HTML file that needs no other file, no network and no script.

    It shows what was found, written and rejected, how even the shards are, what the checks found, records of each
    split and the oddest ones, and the values of every feature. Counts are those of all records; everything
    else is that of a sample, whose size the report says.

    Args:
        path: The dataset's directory: a path, or a URL of a store or of another protocol of fsspec.
        output: The file to write. One that exists is replaced, once the new one is complete.
        records: How many records to look at, at most.
        against: Another dataset, such as a former version, with which to compare.

    Returns:
        The path of the file.

    Raises:
        ValueError: `records` is below 1.
        ImportError: Jinja2 or Pillow is not installed.
        CorruptRecordError: (a ValueError) The checksum of a record is wrong.
        DatasetError: (a ValueError) There is no manifest, or a shard differs from it.
        FileNotFoundError: A file of the dataset is missing.
        OSError: The page cannot be written: the directory of `output` is missing, or it is no file.
        StoreError: (an OSError) A store still fails after several retries.

    Example:
        >>> readers.report("shards/photos", "photos.html")
        PosixPath('photos.html')
    """
    from readers.pages.document import document
    from readers.pages.section import templates
    from readers.pages.study import Study

    templates()  # Before a minute of work, so that a missing package costs none.

    target = Path(output)
    if problem := unwritable(target):
        raise OSError(f"{target}: {problem}")
    directory = path_text(path)
    facts = facts_of(directory, records)
    html = document(Study(directory, facts, check_facts(facts, records, against)))
    real = Path(os.path.realpath(target))  # A link stays one.
    partial = real.with_name(f".{real.name}.{os.getpid()}.partial")
    try:
        partial.write_text(html, encoding="utf-8")
        os.replace(partial, real)
    finally:
        partial.unlink(missing_ok=True)
    return target
