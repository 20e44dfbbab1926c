"""`beam-shards columns`: adds features to all records of a dataset, in files next to its shards."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.dataset.changes import Change, changing
from beam_jobs.dataset.family import Family, FamilyShard, records_of
from beam_jobs.engines.pool import Pool, call_pickled
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.images.pixels import compressed
from beam_jobs.packages import versions
from beam_jobs.records.mapping import (
    Mapper,
    feature_of,
    load_function,
    parse_map_schema,
    stated,
)
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.extra_features import extra_values, parse_extra_features
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.tables import EXPECTED, read_rows, table_kind, usage_errors
from beam_jobs.storage.files import open_seekable, size_and_crc
from beam_jobs.storage.paths import absolute_path
from readers.files.processors import processors
from readers.format.lookup.keys import ORDER, hashes64, order_seed
from readers.format.lookup.seen import seen_rows
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import join
from readers.format.schema import Feature, Schema
from readers.format.splits import Split, shard_name

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Rows of a table whose keys are looked up together, and the most that are kept in memory.
_TOGETHER, _MOST_ROWS = 8192, 1 << 24

# Number of a split, row in it -> the features in a row of a table.
_Values = dict[tuple[int, int], dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--table", help="a table with the features and the key of each record")
    source.add_argument("--map", metavar="MODULE:FUNCTION", help="a function, as --map of jobs")
    source.add_argument("--drop", metavar="NAME", help="remove these features again")
    parser.add_argument("--name", help="a name for the new features together")
    parser.add_argument("--key", help="the column of --table with the keys")
    parser.add_argument("--extra_features", help="its columns, such as clip:float32[512],age:int64")
    parser.add_argument("--map_schema", default="", help="features that --map returns, as in jobs")
    text = "records without a row are an error, or get zeros and empty texts"
    parser.add_argument("--missing", choices=("error", "default"), default="error", help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    given = {n: getattr(parsed, n) for n in ("table", "map", "key", "missing", "drop", "name")}
    operation = {"family": given.pop("name") or given["drop"], **given, "name": "columns"}
    with changing(parsed.directory, operation) as change:
        families = change.parent.families
        if parsed.drop:
            yield _dropped(change, parsed.drop)
        elif not _NAME.fullmatch(parsed.name or "") or parsed.name in families:
            raise UsageError(
                f"--name {parsed.name}: expected letters, digits, - and _, and none of the names in use: "
                f"{', '.join(families) or 'none'}"
            )
        elif parsed.map:
            features, mapper = _of_function(change, parsed.map, parse_map_schema(parsed.map_schema))
            yield _added(change, parsed.name, features, mapper.digest, None, mapper)
        else:
            yield from _of_table(change, parsed)


def _dropped(change: Change, name: str) -> str:
    families = dict(change.parent.families)
    if name not in families:
        raise UsageError(f"--drop {name}: the families are {', '.join(families) or 'none'}")
    dropped, splits = families.pop(name), dict[str, Split]()
    for each, split in change.parent.splits.items():
        shards = {n: some for n, some in split.families.items() if n != name}
        statistics = {n: some for n, some in split.statistics.items() if n not in dropped}
        splits[each] = replace(split, families=shards, statistics=statistics)
    left = Schema({n: f for n, f in change.parent.schema.items() if n not in dropped})
    made = change.commit(schema=left, families=families, splits=splits)
    return f"{change.directory}: generation {made.generation} without {', '.join(dropped)}"


def _base(change: Change) -> Schema:
    """The features in the shards of the splits."""
    of_families = {name for names in change.parent.families.values() for name in names}
    return Schema({n: f for n, f in change.parent.schema.items() if n not in of_families})


def _of_function(
    change: Change, function: str, features: dict[str, Feature]
) -> tuple[dict[str, Feature], Mapper]:
    """The features that a function returns, those of its result for the first record among them, and its mapper."""
    _, digest, _ = load_function(function)
    base = _base(change)
    mapper = Mapper(function, digest, base, base, frozenset(), compressed)
    shards = [shard for shard in change.parent.shards if shard.records]
    if not shards:
        raise UsageError(f"{change.directory} has no records")
    first = next(records_of(join(change.directory, shards[0].path), base))
    try:
        made = mapper.call(mapper.given(first)[1], f"{shards[0].path}: record 0")
    except (RejectError, ValueError) as error:
        raise UsageError(f"{error}, for the first record") from None
    for name in made.keys() - features.keys():
        feature = feature_of(made[name])
        if feature is None:
            raise UsageError(f"--map {function}: state the type of {name!r} with --map_schema")
        features[name] = feature
    return features, replace(mapper, schema=Schema(features))


def _of_table(change: Change, parsed: argparse.Namespace) -> Iterator[str]:
    """Adds the features in a table; yields lines for people."""
    path, splits = absolute_path(parsed.table), [*change.parent.splits.items()]
    kind = table_kind(path)
    if kind is None or not parsed.key or not parsed.extra_features:
        raise UsageError(f"--table needs --key, --extra_features, and a table: {EXPECTED}")
    extras = parse_extra_features(parsed.extra_features)
    stored = StoredKeys(f"{change.directory}@{change.parent.generation}")
    values, unknown, seed = _Values(), list[str](), order_seed(change.parent)
    columns = {parsed.key, *(extra.column for extra in extras)}
    with usage_errors(f"--table {path}"), open_seekable(path) as file:
        rows = read_rows(file, *kind, columns)
        while some := [*itertools.islice(rows, _TOGETHER)]:
            keys = []
            for row in some:
                if row.values is None:
                    raise RejectError(f"row {row.number}: {row.error}")
                keys.append(column_text(row.values, parsed.key))
            octets = (key.encode("utf-8", "surrogateescape") for key in keys)
            places = map(tuple, stored.find(hashes64(seed, ORDER, octets)).tolist())
            for place, key, row in zip(places, keys, some, strict=True):
                if place in values:
                    raise UsageError(f"two rows have the key {key!r}")
                if place[0] >= 0:
                    values[place] = extra_values(extras, row.values or {})
                else:
                    unknown.append(key)
            if len(values) > _MOST_ROWS:
                raise UsageError(
                    f"more than {_MOST_ROWS} rows; add them with a --map that reads it"
                )
    for number, (name, split) in enumerate(splits):
        living = np.flatnonzero(_is_living(change, split)).tolist()
        missing = [row for row in living if (number, row) not in values]
        if missing and parsed.missing == "error":
            raise UsageError(
                f"--table {path}: {len(missing)} records of {name} have no row, the first is record "
                f"{missing[0]}; add --missing default to give them zeros and empty texts"
            )
    if unknown:
        yield f"{len(unknown)} keys of the table are not in the dataset, such as {unknown[0]!r}"
    features = {extra.name: extra.feature for extra in extras}
    yield _added(change, parsed.name, features, size_and_crc(path), values, None)


def _is_living(change: Change, split: Split) -> np.ndarray:
    """Whether readers see each stored record, bool [stored]."""
    seen = seen_rows(change.directory, split)
    listed, are_gone = ([], True) if seen is None else (seen.listed, seen.are_gone)
    return np.isin(np.arange(split.stored), listed, invert=are_gone)


def _added(
    change: Change,
    name: str,
    features: Mapping[str, Feature],
    source: object,
    values: _Values | None,
    mapper: Mapper | None,
) -> str:
    """Writes the shards of a family, and commits it."""
    if used := sorted(features.keys() & change.parent.schema.keys()):
        raise UsageError(f"feature {used[0]!r}: the dataset has one of this name already")
    schema, both = Schema(features), Schema({**change.parent.schema, **features})
    folder = change.folder(schema.to_json(), source, versions())
    change.begin(folder)
    work = pickle.dumps(Family(change, folder, _base(change), schema, mapper).write)
    splits = dict[str, Split]()
    with contextlib.closing(Pool(processors(), ["beam_jobs.dataset.family"])) as pool:
        for number, (each, split) in enumerate(change.parent.splits.items()):
            tasks = _tasks(change, f"{folder}/{name}", number, each, split, values)
            shards, statistics = [], Statistics(schema)
            for shard, state in pool.map(call_pickled, ((work, task) for task in tasks)):
                shards.append(shard)
                statistics.merge(Statistics.of_state(schema, state))
            families = {**split.families, name: tuple(shards)}
            figures = {**split.statistics, **statistics.to_json()}
            splits[each] = replace(split, families=families, statistics=figures)
    of_families = {**change.parent.families, name: tuple(schema)}
    made = change.commit(schema=both, families=of_families, splits=splits)
    added = ", ".join(stated(name, feature) for name, feature in schema.items())
    return f"{change.directory}: generation {made.generation} adds {added}"


def _tasks(
    change: Change, folder: str, number: int, name: str, split: Split, values: _Values | None
) -> Iterator[FamilyShard]:
    is_living, first = _is_living(change, split), 0
    for n, shard in enumerate(split.shards):
        rows = range(shard.records)
        gone = frozenset(row for row in rows if not is_living[first + row])
        found = None
        if values is not None:
            found = {r: values[number, first + r] for r in rows if (number, first + r) in values}
        yield FamilyShard(f"{folder}/{shard_name(name, n, len(split.shards))}", shard, gone, found)
        first += shard.records
