"""Makes the plan for a split of a dataset, from its manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local
from readers.format.features import Features
from readers.format.lookup.keys import order_seed
from readers.format.lookup.rows import SeenRows, joined_rows
from readers.format.lookup.seen import seen_rows
from readers.format.manifest import DatasetError, Generation, index_path, join
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.order.split import parse_split, shard_ranges
from readers.shards.features import chosen_schema, sizes_of
from readers.shards.index import read_offsets
from readers.shards.opened.local_shard import version_of
from readers.shards.plan import Keys, Part, Plan


def default_split(names: Sequence[str]) -> str:
    """The split to read by default: the only one, or `train`; ValueError if there is neither."""
    if len(names) == 1:
        return names[0]
    if "train" in names:
        return "train"
    raise ValueError(f"choose one with split=: the dataset has {', '.join(names) or 'no splits'}")


def dataset_plan(
    generation: Generation,
    split: str | None,
    schema: Schema | None = None,
    accept_cut: bool = False,
) -> Plan:
    """Makes the plan for a split of a generation of a dataset; other arguments as for `resolve`."""
    directory, manifest, sha256 = generation
    text = default_split(list(manifest.splits)) if split is None else split
    counts = {name: split.records for name, split in manifest.splits.items()}
    chosen = parse_split(text, counts)
    of_split = {name: manifest.splits[name].shards for name, _, _ in chosen}
    on_disk, keys = is_local(directory), _keys(generation)

    def part(run: tuple[Shard, int, int]) -> Part:
        shard, skip, take = run
        found = replace(whole_shard(directory, shard), skip=skip, take=take, keys=keys)
        is_here = is_local(found.path)
        return replace(found, version=_check_shard(found, accept_cut)) if is_here else found

    # For a store, sizes cost requests, so they are checked later.
    runs, several = list[tuple[Shard, int, int]](), list[tuple[int, SeenRows | None]]()
    for name, start, stop in chosen:
        seen = seen_rows(directory, manifest.splits[name])
        first, last, rows = seen.cut(start, stop) if seen is not None else (start, stop, None)
        counts_of_shards = [shard.records for shard in of_split[name]]
        ranges = shard_ranges(counts_of_shards, first, last)
        runs += [(of_split[name][number], skip, take) for number, skip, take in ranges]
        several.append((last - first, rows))
    rows = joined_rows(several)
    parts = map_in_threads(part, runs, on_disk) if on_disk else map(part, runs)
    shards = [shard for shards in of_split.values() for shard in shards]
    records = sum(shard.records for shard in shards)
    return Plan(
        name=text,
        schema=manifest.schema if schema is None else chosen_schema(manifest.schema, schema),
        parts=tuple(parts),
        records=sum(stop - start for _, start, stop in chosen),
        record_bytes=sum(shard.bytes for shard in shards) / records if records else None,
        fingerprint=(
            *((s.records, s.crc32c) for s in shards),
            *chosen,
            *([rows.digest()] if rows is not None else []),
        ),
        sizes=sizes_of(manifest),
        meanings={name: manifest.meaning(name) for name in manifest.schema},
        rows=rows,
        generations=(sha256,),
    )


def _keys(generation: Generation) -> Keys | None:
    """What orders the records of a generation; None if they have no keys, or keep those of another dataset."""
    manifest = generation.manifest
    name = Features.of(manifest).named("key")
    with contextlib.suppress(DatasetError):
        if name:
            return Keys(generation.sha256, name, manifest.schema[name], order_seed(manifest))
    return None


def whole_shard(directory: str, shard: Shard) -> Part:
    """All records of a shard, without any checks."""
    return Part(
        join(directory, shard.path),
        0,
        shard.records,
        shard.records,
        shard.bytes,
        crc32c=shard.crc32c,
        index_bytes=shard.index_bytes,
        index_crc32c=shard.index_crc32c,
        index_path=join(directory, index_path(shard)),
        smallest_hash=shard.smallest_hash,
    )


def _check_shard(part: Part, accept_cut: bool) -> tuple[int, int]:
    """Checks the size of a local shard; returns its version."""
    path, expected = part.path, part.bytes or 0
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest lists this shard, but it is missing; copy it again, or run the job again"
        ) from None
    if stat.st_size != expected and not accept_cut:
        size = stat.st_size
        first = _first_missing(part, size) if size < expected else None
        raise DatasetError(
            f"{path}: the manifest states {expected:,} bytes, the file has {size:,}; "
            + (first or "it is damaged or from another run of the job")
        )
    return version_of(stat)


def _first_missing(part: Part, size: int) -> str | None:
    """A sentence about the first incomplete record of a truncated shard; None if its index is damaged."""
    try:
        offsets = read_offsets(part)
    except (ValueError, OSError):
        return None
    row = int(np.searchsorted(offsets[1:], size, side="right"))
    return (
        f"record {row}, at byte {offsets[row]}, is cut off or missing; run the job again to repair "
        "it, or read the rest with on_corrupt='skip'"
    )
