"""`beam-shards purge`: erases records from all generations and files of a dataset, with a receipt."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from beam_jobs.changes.choice import UTF8, keys_in
from beam_jobs.changes.expire import drop, tagged
from beam_jobs.dataset.changes import Change, changing, with_rows
from beam_jobs.dataset.copies import copied, figures_of
from beam_jobs.dataset.generations import IN_FOLDER, IN_PLACE, State, state_of
from beam_jobs.dataset.resume import second_name
from beam_jobs.engines.pool import Pool
from beam_jobs.errors import DataError, UsageError
from beam_jobs.jobs.reshard.record_frames import frame_batches
from beam_jobs.storage.atomic import delete_files
from beam_jobs.storage.files import open_file, read_bytes
from readers.files.processors import processors
from readers.format.decode.batches import ColumnDecoder
from readers.format.display import counted, unwritable
from readers.format.features import Features
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import Manifest, join
from readers.format.remarks import Remarks
from readers.format.schema import Schema
from readers.format.splits import Shard, Split
from readers.format.tfrecord import MAX_RECORD_BYTES

_UNREACHED = [
    "versions and snapshots that a store or a filesystem keeps",
    "caches of readers, copies, exports, reports, models, sketches of near duplicates",
    "subsets and merged datasets in other directories",
]

_HAS_KEYS = re.compile(r".+\.tfrecord|[0-9a-f]{8}/rejects/[^/]+\.jsonl")

# File -> the number and the key of each record in it, or of each line of rejects, with one of the keys.
Found = dict[str, list[tuple[int, bytes]]]


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    keys = parsed.key or [*keys_in(parsed.keys)]
    path = Path(parsed.receipt or f"purge-{_digest(_hashes(keys))}.json")
    if problem := unwritable(path):
        raise UsageError(f"--receipt {path}: {problem}")
    receipt = purge(parsed.directory, keys)
    path.write_text(json.dumps(receipt, indent=1) + "\n")
    if left := receipt["left"]:
        raise DataError(f"{len(left)} files still have such records, as {left[0]}: see {path}")
    count, erased = sum(receipt["keys"].values()), counted(len(receipt["keys"]), "key")
    yield f"erased {erased}: {count:,} records and rejects in all files"
    if receipt["missing"]:
        yield f"{counted(receipt['missing'], 'key')}: in no file below {receipt['dataset']}"
    for what in ("rewritten", "deleted", "generations", "tags", "scanned", "damaged"):
        yield f"{what}: {len(receipt[what]):,}"
    yield f"not reached: {'; '.join(receipt['unreached'])}"
    yield f"receipt: {path}"


def purge(directory: str, keys: Collection[str], processes: int = 0) -> dict[str, Any]:
    """Erases the records with some keys from all files below a dataset; returns the receipt as JSON values.

    A generation without them continues the newest one, whose other shards keep their names. Generations that list a file
    with such a key are deleted, with all files that no other one lists. Then all files are scanned again.

    Raises:
        UsageError: The records have no keys, or another command is at work.
        DataError: A file cannot be written, or another command has changed the dataset.
    """
    hashes = _hashes(keys)
    digest = _digest(hashes)
    with changing(directory, {"name": "purge", "keys": digest}) as change:
        parent, place = change.parent, change.directory
        if not (feature := Features.of(parent).named("key")):
            raise UsageError(f"{place}: its records have no feature with their key")
        if parent.options.get("job") == IN_PLACE:
            raise UsageError(
                f"{place}: it consists of another writer's files, which stay as they are"
            )
        scan = partial(_scan, parent.schema.select([feature]), frozenset(hashes), place)
        before = state_of(place)
        found, _ = _found(before, scan, processes)
        rewritten = sorted(found.keys() & parent.paths)
        if rewritten:
            change.commit(**_without(change, found, processes))
        state, listing = state_of(place), list[int]()
        for number in state.generations[:-1]:
            paths = Manifest.read(f"{place}@{number}").paths
            # An interrupted purge leaves generations some of whose files are deleted.
            lost = {path for path in paths - state.sizes.keys() if IN_FOLDER.match(path)}
            listing += [number] * bool(lost or paths & found.keys())
        drop(state, listing, 1 << 63)
        after = state_of(place)
        # Another command may have tagged one of them meanwhile.
        tags = [name for name, number in tagged(after).items() if number not in after.generations]
        delete_files(join(place, name) for name in tags)
        left, damaged = _found(after, scan, processes)
    erased = Counter(hashes[key] for rows in found.values() for _, key in rows)
    return {
        "dataset": place,
        "digest": digest,
        "keys": erased,
        "missing": len(hashes) - len(erased),
        "rewritten": rewritten,
        "deleted": sorted(before.sizes.keys() - after.sizes.keys()),
        "generations": listing,
        "tags": tags,
        "scanned": _with_keys(after),
        "left": sorted(left),
        "damaged": damaged,
        "unreached": [*parent.base, *_UNREACHED],
    }


def _hashes(keys: Collection[str]) -> dict[bytes, str]:
    """Key -> its SHA-256, which is all that a receipt states of it."""
    return {key: hashlib.sha256(key).hexdigest() for key in (k.encode(*UTF8) for k in keys)}


def _digest(hashes: Mapping[bytes, str]) -> str:
    return hashlib.sha256("".join(sorted(hashes.values())).encode()).hexdigest()[:16]


def _with_keys(state: State) -> list[str]:
    """The shards and the lists of rejects in a directory."""
    return sorted(filter(_HAS_KEYS.fullmatch, state.sizes))


def _found(state: State, scan: Any, processes: int) -> tuple[Found, list[str]]:
    """The records and rejects with the keys in all files of a dataset, and the names of files with damaged records."""
    names = _with_keys(state)
    with contextlib.closing(Pool(processes or processors())) as pool:
        results = [*zip(names, pool.map(scan, ((name,) for name in names)), strict=True)]
    damaged = [name for name, (_, is_damaged) in results if is_damaged]
    return {name: rows for name, (rows, _) in results if rows}, damaged


def _scan(
    schema: Schema, wanted: Collection[bytes], directory: str, name: str
) -> tuple[list[tuple[int, bytes]], bool]:
    """The records or rejects with the keys in a file, and whether it has damaged records."""
    found, is_damaged, path = list[tuple[int, bytes]](), False, join(directory, name)
    if name.endswith(".jsonl"):
        keys = [json.loads(line)["key"].encode(*UTF8) for line in read_bytes(path).splitlines()]
        return [(row, key) for row, key in enumerate(keys) if key in wanted], False
    decoder = ColumnDecoder(schema)
    with open_file(path) as file:
        for batch in frame_batches(cast(BufferedReader, file), MAX_RECORD_BYTES):
            starts = batch.stops - batch.lengths
            columns, errors, _ = decoder.decode(batch.data, starts, batch.stops)
            rows = np.setdiff1d(np.arange(len(starts)), [*errors]) + batch.first - 1
            for column in columns.values():
                pairs = zip(rows.tolist(), column.arrays(), strict=True)
                found += [(row, key) for row, key in pairs if key in wanted]
            is_damaged |= bool(batch.broken)
    return found, is_damaged


def _without(change: Change, found: Found, processes: int) -> dict[str, Any]:
    """Writes shards and lists without the records that are found in them; returns fields of the manifest."""
    parent, folder = change.parent, change.folder()
    change.begin(folder)
    rejects = []
    for number, path in enumerate(parent.rejects):
        rejects.append(path)
        if rows := dict(found.get(path, ())):
            rejects[-1] = f"{folder}/rejects/{number:05d}.jsonl"
            lines = read_bytes(join(change.directory, path)).splitlines(keepends=True)
            left = [line for row, line in enumerate(lines) if row not in rows]
            change.write(rejects[-1], b"".join(left))
    splits = {name: _rest(change, folder, name, found, processes) for name in parent.splits}
    return {"splits": splits, "rejects": tuple(rejects)}


def _rest(change: Change, folder: str, name: str, found: Found, processes: int) -> Split:
    """A split without the records that are found in its shards, which are written again in their order."""
    stored = change.splits[name]
    split = stored.split
    keys = {key.decode("utf-8", "backslashreplace") for rows in found.values() for _, key in rows}
    remarks = {text: (n, "" if key in keys else key) for text, (n, key) in split.remarks.items()}
    firsts = np.cumsum([0, *(shard.records for shard in split.shards)]).tolist()
    is_left = np.full(split.stored, True)
    for first, shard in zip(firsts, split.shards, strict=False):
        is_left[[first + row for row, _ in found.get(shard.path, ())]] = False
    split = replace(split, remarks=Remarks(remarks))
    if is_left.all():
        return split
    several = dict[str, tuple[Shard, ...]]()
    for family in ("", *split.families):
        shards = list[Shard]()
        for shard, (first, stop) in zip(split.shards_of(family), pairwise(firsts), strict=True):
            rows = first + np.flatnonzero(is_left[first:stop])
            if 0 < len(rows) < stop - first:
                old, _, inside = shard.path.partition("/")
                path = f"{folder}/{second_name(inside, old)}"
                shard = copied(change, stored, [family], path, rows)
            shards += [shard] * bool(len(rows))
        several[family] = tuple(shards)
    seen = stored.flags()[is_left]
    rest = replace(split, shards=several.pop(""), families=several)
    # The extremes in the statistics may be those of erased records.
    of_rest = StoredSplit(change.directory, change.parent, rest)
    with contextlib.closing(Pool(processes or processors())) as pool:
        figures = figures_of(of_rest, np.flatnonzero(seen), pool)
    rest = replace(rest, statistics=figures)
    return with_rows(change, f"{folder}/{name}", rest, seen, split.rows is not None)
