"""`beam-shards compact`: writes all generations of a dataset as one."""

from __future__ import annotations

import argparse
import contextlib
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, parse_num_shards, parse_size
from beam_jobs.dataset.stored_records import Copier, StoredRecords, rows_in_order
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.plan.shards import count_shards, first_ranks
from beam_jobs.storage.files import read_bytes
from readers.files.processors import processors
from readers.format.manifest import Manifest, join
from readers.format.splits import Split, shard_name

_PRELOAD = ("beam_jobs.dataset.stored_records",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "--num_shards",
        metavar="N",
        help="shards of each split: 16, or train=16,val=2 (default: by their size)",
    )
    parser.add_argument(
        "--shard_size", metavar="SIZE", help="the approximate size of a shard (default: 128MiB)"
    )


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    manifest = compact(parsed.directory, parsed.num_shards, parsed.shard_size)
    for name, split in manifest.splits.items():
        yield f"{name}: {split.records:,} records in {len(split.shards):,} shards"
    yield (
        f"{parsed.directory}: generation {manifest.generation}; older ones keep their files until "
        "beam-shards expire deletes them"
    )


def compact(
    directory: str,
    num_shards: str | int | None = None,
    shard_size: str | int | None = None,
    processes: int | None = None,
) -> Manifest:
    """Writes the records that readers see as one generation: exactly balanced shards in the order of their hashes.

    Returns the manifest of the new generation, or of the newest one if this command has made it.

    Raises:
        UsageError: An argument is wrong, or another command is at work.
        DataError: A record is damaged, a file cannot be written, or another command has changed the dataset.
    """
    given = {"num_shards": num_shards, "shard_size": shard_size}
    operation = {"name": "compact", **{n: str(v) for n, v in given.items() if v is not None}}
    with changing(directory, operation) as change:
        if change.parent.operation == operation:
            return change.parent
        return change.commit(**compacted(change, num_shards, shard_size, processes))


def compacted(
    change: Change,
    num_shards: str | int | None = None,
    shard_size: str | int | None = None,
    processes: int | None = None,
) -> dict[str, Any]:
    """Writes all files of a compact dataset; returns the fields of its manifest that differ from those of the parent."""
    parent, folder = change.parent, change.folder()
    wanted = parse_num_shards(num_shards, tuple(parent.splits))
    size = parse_size(str(shard_size)) if shard_size else DEFAULT_SHARD_SIZE
    change.begin(folder)
    with contextlib.closing(Pool(processes or processors(), _PRELOAD)) as pool:
        splits = {
            name: _compacted(change, folder, name, number, size, pool)
            for name, number in zip(parent.splits, wanted, strict=True)
        }
    files = {name: file._replace(path=f"{folder}/{name}") for name, file in parent.files.items()}
    rejects = tuple(f"{folder}/rejects/{n:05d}.jsonl" for n in range(len(parent.rejects)))
    old = [*(file.path for file in parent.files.values()), *parent.rejects]
    new = [*(file.path for file in files.values()), *rejects]
    for source, path in zip(old, new, strict=True):
        change.write(path, read_bytes(join(change.directory, source)))
    return {"splits": splits, "files": files, "rejects": rejects, "families": {}, "base": ()}


def _compacted(
    change: Change, folder: str, name: str, num_shards: int, shard_size: int, pool: Pool
) -> Split:
    """Writes the shards of a split."""
    parent, directory, split = change.parent, change.directory, change.parent.splits[name]
    stored = StoredRecords.of(directory, parent, split)
    rows = rows_in_order(directory, split)
    if not len(rows):
        return Split((), split.rejected, {}, split.duplicates, split.remarks)
    mean = int(stored.sizes()[rows].sum()) / len(rows)
    count = count_shards(len(rows), mean, num_shards, shard_size)
    # Records that are gone were counted, and appended ones are counted exactly.
    counts = split.gone is not None or split.rows is not None
    copier = Copier.of(change, parent)
    packed = pickle.dumps(partial(copier.copy, stored, counts))
    tasks = (
        (packed, f"{folder}/{shard_name(name, number, count)}", some)
        for number, some in enumerate(np.split(rows, first_ranks(len(rows), count)))
    )
    shards, statistics = zip(*pool.map(call_pickled, tasks), strict=True)
    figures = split.statistics
    if counts:
        for other in statistics[1:]:
            statistics[0].merge(other)
        found = statistics[0].to_json()
        figures = {n: found[job] for n, job in copier.names.items() if job in found}
    return Split(shards, split.rejected, figures, split.duplicates, split.remarks)
