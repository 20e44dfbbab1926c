"""`beam-shards columns`: adds features to all records of a dataset, in files next to its shards."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from beam_jobs.changes.choice import places_of
from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.family import write_shard
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.errors import RejectError, UsageError, did_you_mean
from beam_jobs.jobs.images.pixels import compressed
from beam_jobs.packages import versions
from beam_jobs.records.mapping import Mapper, load_function, parse_map_schema
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.extra_features import ExtraFeature, extra_values, parse_extra_features
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.tables import EXPECTED, read_rows, table_kind, usage_errors
from beam_jobs.storage.files import open_seekable, size_and_crc
from beam_jobs.storage.paths import absolute_path
from readers.files.processors import processors
from readers.format.schema import Schema
from readers.format.splits import Split, shard_name

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Rows of a table whose keys are looked up together, and the bytes of a table that is kept in memory.
_TOGETHER, _MOST_BYTES = 8192, 4 << 30


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    given = {n: v for n, v in vars(parsed).items() if v and n not in ("directory", "json")}
    operation = {**given, "family": parsed.name or parsed.drop, "name": "columns"}
    with changing(parsed.directory, operation) as change:
        if change.parent.operation == change.operation:
            yield f"{change.directory}: generation {change.parent.generation} is this one already"
        elif parsed.drop:
            yield _dropped(change, parsed.drop)
        else:
            yield from _added(change, parsed)


def _dropped(change: Change, name: str) -> str:
    families, splits = dict(change.parent.families), dict[str, Split]()
    if name not in families:
        hint = did_you_mean(name, families)
        raise UsageError(
            f"--drop {name}: no features were added under this name; those that were: "
            f"{', '.join(families) or 'none'}{hint}"
        )
    dropped = families.pop(name)
    for each, split in change.parent.splits.items():
        shards = {n: some for n, some in split.families.items() if n != name}
        statistics = {n: some for n, some in split.statistics.items() if n not in dropped}
        splits[each] = replace(split, families=shards, statistics=statistics)
    left = Schema({n: f for n, f in change.parent.schema.items() if n not in dropped})
    made = change.commit(schema=left, families=families, splits=splits)
    return f"{change.directory}: generation {made.generation} has no {', '.join(dropped)}"


def _added(change: Change, parsed: argparse.Namespace) -> Iterator[str]:
    """Writes the shards of a family, and commits it; yields lines for people."""
    parent, name, mapper = change.parent, parsed.name, None
    if not _NAME.fullmatch(name or "") or name in parent.families:
        used = ", ".join(parent.families) or "none"
        raise UsageError(
            f"--name {name or ''}: expected letters, digits, - and _; names in use: {used}"
        )
    if not (parsed.map_schema if parsed.map else parsed.key and parsed.extra_features):
        raise UsageError("--map needs --map_schema, and --table needs --key and --extra_features")
    extras = () if parsed.map else parse_extra_features(parsed.extra_features)
    features = {extra.name: extra.feature for extra in extras}
    schema = Schema(parse_map_schema(parsed.map_schema) if parsed.map else features)
    if taken := schema.keys() & parent.schema.keys():
        raise UsageError(f"feature {min(taken)!r}: the dataset has one of this name already")
    both = Schema({**parent.schema, **schema})
    base = parent.schema.select(parent.features_of[""])
    values: list[list[Any]] = [[None] * split.stored for split in parent.splits.values()]
    if parsed.map:
        source: Any = load_function(parsed.map)[1]
        mapper = Mapper(parsed.map, source, base, schema, frozenset(), compressed)
    else:
        path = absolute_path(parsed.table)
        with usage_errors(f"--table {path}"):
            source = size_and_crc(path)
        if unknown := _join(change, path, parsed.key, extras, values):
            yield f"{len(unknown):,} keys of the table are not in the dataset: {unknown[0]!r}, …"
    folder, tasks = change.folder(schema.to_json(), source, versions()), list[Any]()
    work = pickle.dumps(partial(write_shard, change, folder, base, schema, mapper))
    for (each, stored), rows in zip(change.splits.items(), values, strict=True):
        split, is_living, first = stored.split, stored.flags(), 0
        missing = [row for row in np.flatnonzero(is_living).tolist() if rows[row] is None]
        if missing and parsed.table and parsed.missing == "error":
            found = f"{len(missing):,} records of {each} have no row, such as record {missing[0]}"
            raise UsageError(f"--table {path}: {found}; add --missing default for zeros")
        for number, shard in enumerate(split.shards):
            some = slice(first, first + shard.records)
            file = f"{folder}/{name}/{shard_name(each, number, len(split.shards))}"
            tasks.append((work, file, shard, is_living[some], rows[some]))
            first += shard.records
    change.begin(folder)
    splits = dict[str, Split]()
    with contextlib.closing(Pool(processors(), ["beam_jobs.dataset.family"])) as pool:
        written = pool.map(call_pickled, tasks)
        for each, split in parent.splits.items():
            statistics, shards = Statistics(schema), []
            for shard, state in itertools.islice(written, len(split.shards)):
                shards.append(shard)
                statistics.merge(Statistics.of_state(schema, state))
            figures = {**split.statistics, **(statistics.to_json() if split.records else {})}
            families = {**split.families, name: tuple(shards)}
            splits[each] = replace(split, families=families, statistics=figures)
    names = {**parent.families, name: tuple(schema)}
    made = change.commit(schema=both, families=names, splits=splits)
    yield f"{change.directory}: generation {made.generation} has {', '.join(schema)} in {folder}/{name}"


def _join(
    change: Change, path: str, key: str, extras: tuple[ExtraFeature, ...], values: list[list[Any]]
) -> list[str]:
    """Puts the features in a table into lists with a place for each row of each split; returns the keys that no record has."""
    kind, unknown = table_kind(path), list[str]()
    if kind is None or size_and_crc(path)[0] > _MOST_BYTES:
        raise UsageError(f"--table {path}: {EXPECTED} of at most 4 GiB, which are kept in memory")
    columns = {key, *(extra.column for extra in extras)}
    with usage_errors(f"--table {path}"), open_seekable(path) as file:
        rows = read_rows(file, *kind, columns)
        while some := [*itertools.islice(rows, _TOGETHER)]:
            if wrong := next((row for row in some if row.values is None), None):
                raise RejectError(f"row {wrong.number}: {wrong.error}")
            keys = [column_text(row.values or {}, key) for row in some]
            places = places_of(change.directory, change.parent, keys).tolist()
            for (split, at), text, row in zip(places, keys, some, strict=True):
                if split < 0:
                    unknown.append(text)
                elif values[split][at] is not None:
                    raise UsageError(f"two rows have the key {text!r}")
                else:
                    values[split][at] = extra_values(extras, row.values or {})
    return unknown
