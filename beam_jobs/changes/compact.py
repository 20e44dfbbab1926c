"""`beam-shards compact`: writes all generations of a dataset as one."""

from __future__ import annotations

import argparse
import contextlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.copies import copied, figures_of
from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, parse_num_shards, parse_size
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.plan.shards import count_shards, first_ranks
from beam_jobs.storage.files import read_bytes
from readers.files.processors import processors
from readers.format.display import counted
from readers.format.manifest import Manifest, join
from readers.format.splits import Split, shard_name


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    size = DEFAULT_SHARD_SIZE if parsed.shard_size is None else parsed.shard_size
    manifest = compact(parsed.directory, parsed.num_shards, size)
    yield from sizes(manifest)
    yield f"generation {manifest.generation}; beam-shards expire deletes the files of older ones"


def sizes(manifest: Manifest) -> Iterator[str]:
    """Yields the number of records and shards of each split as a line for people."""
    for name, split in manifest.splits.items():
        records, shards = counted(split.records, "record"), len(split.shards)
        yield f"{name}: {records} in {counted(shards, 'shard')}"


def compact(
    directory: str,
    num_shards: str | int | None = None,
    shard_size: str | int = DEFAULT_SHARD_SIZE,
    processes: int = 0,
) -> Manifest:
    """Writes the records that readers see as one generation: exactly balanced shards in the order of their hashes.

    Returns the manifest of the new generation, or of the newest one if this command has made it.

    Raises:
        UsageError: An argument is wrong, or another command is at work.
        DataError: A record is damaged, a file cannot be written, or another command has changed the dataset.
    """
    operation = {"name": "compact", "num_shards": num_shards, "shard_size": shard_size}
    with changing(directory, operation) as change:
        parent, folder = change.parent, change.folder()
        if parent.operation == operation:
            return parent
        wanted = parse_num_shards(num_shards, tuple(parent.splits))
        size = parse_size(str(shard_size))
        change.begin(folder)
        with contextlib.closing(Pool(processes or processors(), [copied.__module__])) as pool:
            splits = {
                name: _compact(change, f"{folder}/", name, number, size, pool)
                for name, number in zip(parent.splits, wanted, strict=True)
            }
        files = {n: file._replace(path=f"{folder}/{n}") for n, file in parent.files.items()}
        rejects = tuple(f"{folder}/rejects/{n:05d}.jsonl" for n in range(len(parent.rejects)))
        old = [*(file.path for file in parent.files.values()), *parent.rejects]
        for path, source in zip([*(f.path for f in files.values()), *rejects], old, strict=True):
            change.write(path, read_bytes(join(change.directory, source)))
        return change.commit(splits=splits, files=files, rejects=rejects, families={}, base=())


def _compact(
    change: Change, folder: str, name: str, num_shards: int, shard_size: int, pool: Pool
) -> Split:
    """Writes the shards of a split."""
    stored = change.splits[name]
    split, rows = stored.split, np.flatnonzero(stored.flags())
    changed = replace(split, shards=(), gone=None, rows=None, families={}, statistics={})
    if not len(rows):
        return changed
    ordered = rows[np.argsort(stored.hashes()[rows], kind="stable")]
    families = ["", *split.families]
    size = sum(stored.sizes(family)[rows].sum() for family in families)
    count = count_shards(len(rows), int(size) / len(rows), num_shards, shard_size)
    copy = pickle.dumps(partial(copied, change, stored, families))
    parts = np.split(ordered, first_ranks(len(rows), count))
    tasks = ((copy, folder + shard_name(name, n, count), part) for n, part in enumerate(parts))
    shards = tuple(pool.map(call_pickled, tasks))
    # Otherwise the statistics are exact, and counting would take longer than copying.
    counts = split.gone or split.rows or change.parent.base
    figures = figures_of(stored, rows, pool) if counts else split.statistics
    return replace(changed, shards=shards, statistics=figures)
