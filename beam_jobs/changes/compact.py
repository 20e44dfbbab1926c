"""`beam-shards compact`: writes all generations of a dataset as one."""

from __future__ import annotations

import argparse
import contextlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.copier import Copier
from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, parse_num_shards, parse_size
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.plan.shards import count_shards, first_ranks
from beam_jobs.storage.files import read_bytes
from readers.files.processors import processors
from readers.format.index import OFFSET
from readers.format.lookup.sections import sections
from readers.format.lookup.stored import hashes_of, seen_flags
from readers.format.manifest import Manifest, join
from readers.format.splits import Split, shard_name

_PRELOAD = ("beam_jobs.dataset.copier",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    text = "shards of each split: 16, or train=16,val=2 (default: by their size)"
    parser.add_argument("--num_shards", metavar="N", help=text)
    text = "the approximate size of a shard (default: 128MiB)"
    parser.add_argument("--shard_size", metavar="SIZE", default=str(DEFAULT_SHARD_SIZE), help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    manifest = compact(parsed.directory, parsed.num_shards, parsed.shard_size)
    yield f"{shown(manifest)}"
    yield "older generations keep their files until beam-shards expire deletes them"


def shown(manifest: Manifest) -> str:
    """The records and shards of each split."""
    splits = manifest.splits.items()
    return ", ".join(f"{n}: {s.records:,} records in {len(s.shards):,} shards" for n, s in splits)


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
        if change.parent.operation == operation:
            return change.parent
        return change.commit(**compacted(change, num_shards, shard_size, processes))


def compacted(
    change: Change, num_shards: str | int | None, shard_size: str | int, processes: int
) -> dict[str, Any]:
    """Writes the files of a compact dataset; returns the fields of its manifest that differ from the parent's."""
    parent, folder = change.parent, change.folder()
    wanted = parse_num_shards(num_shards, tuple(parent.splits))
    size = parse_size(str(shard_size))
    change.begin(folder)
    with contextlib.closing(Pool(processes or processors(), _PRELOAD)) as pool:
        splits = {
            name: _compacted(change, f"{folder}/", name, number, size, pool)
            for name, number in zip(parent.splits, wanted, strict=True)
        }
    files = {name: file._replace(path=f"{folder}/{name}") for name, file in parent.files.items()}
    rejects = tuple(f"{folder}/rejects/{n:05d}.jsonl" for n in range(len(parent.rejects)))
    copies = {files[name].path: file.path for name, file in parent.files.items()}
    for path, source in {**copies, **dict(zip(rejects, parent.rejects, strict=True))}.items():
        change.write(path, read_bytes(join(change.directory, source)))
    return {"splits": splits, "files": files, "rejects": rejects, "families": {}, "base": ()}


def _compacted(
    change: Change, folder: str, name: str, num_shards: int, shard_size: int, pool: Pool
) -> Split:
    """Writes the shards of a split."""
    parent, split = change.parent, change.parent.splits[name]
    rows = np.flatnonzero(seen_flags(change.directory, split))
    changed = replace(split, shards=(), gone=None, rows=None, families={})
    if not len(rows):
        return replace(changed, statistics={})
    rows = rows[np.argsort(hashes_of(change.directory, split)[rows], kind="stable")]
    offsets = sections(change.directory, split.every_shard, [OFFSET])
    sizes = np.concatenate([np.diff(each[OFFSET].astype(np.int64)) for each in offsets])
    size = int(sizes.reshape(-1, split.stored)[:, rows].sum()) / len(rows)
    count = count_shards(len(rows), size, num_shards, shard_size)
    copier = Copier.of(change, parent, split)
    counts = split.records < split.stored  # The figures include records that are gone.
    packed = pickle.dumps(partial(copier.copy, counts))
    tasks = (
        (packed, folder + shard_name(name, number, count), some)
        for number, some in enumerate(np.split(rows, first_ranks(len(rows), count)))
    )
    shards, statistics = zip(*pool.map(call_pickled, tasks), strict=True)
    figures = split.statistics
    if counts:
        for other in statistics[1:]:
            statistics[0].merge(other)
        found = statistics[0].to_json()
        figures = {n: found[job] for n, job in copier.names.items() if job in found}
    return replace(changed, shards=shards, statistics=figures)
