"""Makes the plan for a split of a dataset, from its manifest."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from readers.files.in_threads import map_in_threads
from readers.files.local import is_local
from readers.format.features import Features
from readers.format.lookup.index_file import IndexFile
from readers.format.lookup.keys import order_seed
from readers.format.lookup.rows import SeenRows, joined_rows
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import DatasetError, Generation
from readers.format.schema import Schema
from readers.format.splits import Shard
from readers.order.split import parse_split, shard_ranges
from readers.shards.features import chosen_schema, sizes_of
from readers.shards.opened.local_shard import version_of
from readers.shards.plan import Keys, Part, Parts, Plan


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
    columns: object = None,
) -> Plan:
    """Makes the plan for a split of a generation of a dataset; other arguments as for `resolve`.

    It has all features. Only the files with some of the columns are looked at.
    """
    directory, manifest, sha256 = generation
    text = default_split(list(manifest.splits)) if split is None else split
    counts = {name: split.records for name, split in manifest.splits.items()}
    chosen = parse_split(text, counts)
    splits = {name: manifest.splits[name] for name, _, _ in chosen}
    runs, several = list[tuple[str, int, int, int]](), list[tuple[int, SeenRows | None]]()
    for name, start, stop in chosen:
        seen = StoredSplit(directory, manifest, splits[name]).seen
        first, last, rows = seen.cut(start, stop) if seen is not None else (start, stop, None)
        counts_of_shards = [shard.records for shard in splits[name].shards]
        ranges = shard_ranges(counts_of_shards, first, last)
        runs += [(name, *run) for run in ranges]
        several.append((last - first, rows))
    rows, keys = joined_rows(several), _keys(generation)

    def parts_of(family: str) -> Parts:
        shards = {name: split.shards_of(family) for name, split in splits.items()}
        found = tuple(
            replace(whole_shard(directory, shards[name][number]), skip=skip, take=take, keys=keys)
            for name, number, skip, take in runs
        )
        # For a store, sizes cost requests, so they are checked later.
        if family not in read or not any(is_local(part.path) for part in found):
            return found
        return tuple(map_in_threads(lambda part: _checked(part, accept_cut), found, True))

    wanted = columns if isinstance(columns, Collection) and columns else schema or manifest.schema
    features = manifest.features_of.items()
    read = [family for family, names in features if any(name in names for name in wanted)]
    shards = [shard for split in splits.values() for shard in split.shards]
    records = sum(split.stored for split in splits.values())
    nbytes = sum(s.bytes for split in splits.values() for f in read for s in split.shards_of(f))
    parts = {family: parts_of(family) for family in manifest.features_of}
    return Plan(
        name=text,
        schema=manifest.schema if schema is None else chosen_schema(manifest.schema, schema),
        parts=parts[""],
        records=sum(stop - start for _, start, stop in chosen),
        record_bytes=nbytes / records if records else None,
        fingerprint=(
            *((s.records, s.crc32c) for s in shards),
            *chosen,
            *([rows.digest()] if rows is not None else []),
        ),
        sizes=sizes_of(manifest),
        meanings={name: manifest.meaning(name) for name in manifest.schema},
        rows=rows,
        generations=(sha256,),
        elsewhere={n: parts[family] for family, names in manifest.families.items() for n in names},
    )


def _keys(generation: Generation) -> Keys | None:
    """What orders the records of a generation; None if they have no keys, or keep those of another dataset."""
    manifest = generation.manifest
    with contextlib.suppress(DatasetError):
        if Features.of(manifest).named("key"):
            return Keys(generation.sha256, order_seed(manifest))
    return None


def whole_shard(directory: str, shard: Shard) -> Part:
    """All records of a shard, without any checks."""
    index, records, smallest = IndexFile.of(directory, shard), shard.records, shard.smallest_hash
    run = index.file, 0, records, records, index
    return Part(*run, shard.bytes, shard.crc32c, smallest_hash=smallest)


def _checked(part: Part, accept_cut: bool) -> Part:
    """Checks the size of a shard, if it is local; returns its part with the version of the file."""
    if not is_local(part.path):
        return part
    path, expected = part.path, part.bytes or 0
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        raise part.index.missing(path, "shard") from None
    if stat.st_size != expected and not accept_cut:
        size = stat.st_size
        first = _first_missing(part, size) if size < expected else None
        raise DatasetError(
            f"{path}: the manifest states {expected:,} bytes, the file has {size:,}; "
            + (first or "it is damaged or from another run of the job")
        )
    return replace(part, version=version_of(stat))


def _first_missing(part: Part, size: int) -> str | None:
    """A sentence about the first incomplete record of a truncated shard; None if its index is damaged."""
    try:
        offsets = part.index.read_offsets()
    except (ValueError, OSError):
        return None
    row = int(np.searchsorted(offsets[1:], size, side="right"))
    return (
        f"record {row}, at byte {offsets[row]}, is cut off or missing; run the job again to repair "
        "it, or read the rest with on_corrupt='skip'"
    )
