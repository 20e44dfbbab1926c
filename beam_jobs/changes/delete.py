"""`beam-shards delete`: a generation without some records."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.changes.choice import UTF8, add_choice, chosen_rows, given, splits_of, with_rows
from beam_jobs.dataset.changes import changing
from beam_jobs.errors import UsageError
from beam_jobs.records.statistics import FeatureStatistics
from readers.files.of_path import read_file
from readers.format.display import counted
from readers.format.lookup.keys import ORDER, hashes64, order_seed
from readers.format.lookup.stored import seen_flags, stored_values
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import Manifest
from readers.format.schema import Schema
from readers.format.splits import Split

# Missing keys that are named.
_NAMED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    group = add_choice(parser)
    text = "a file with a key on each line, or with an object of JSON that has a `key`"
    group.add_argument("--keys", metavar="FILE", help=text)
    group.add_argument("--key", action="append", help="a key; may be repeated")
    text = "whether a key that is not there is an error (default), or ok"
    parser.add_argument("--missing", choices=("error", "ok"), default="error", help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    keys = parsed.key if parsed.keys is None else keys_in(parsed.keys)
    operation = {"name": "delete", **given(parsed, keys)}
    with changing(parsed.directory, operation) as change:
        directory, parent = change.directory, change.parent
        if parsed.rows is not None and parent.operation == operation:
            done = f"generation {parent.generation} has deleted these rows"
            raise UsageError(f"{directory}: {done}; now, the same numbers are other records")
        if keys is None:
            found = dict(chosen_rows(directory, parent, parsed))
        else:
            found = _rows_of_keys(directory, parent, parsed, keys)
        gone = {name: rows for name, rows in found.items() if len(rows)}
        if not gone:
            yield f"{directory}: nothing to delete; it stays generation {parent.generation}"
            return
        splits, folder = dict(parent.splits), change.folder()
        change.begin(folder)
        for name, rows in gone.items():
            split = parent.splits[name]
            seen = seen_flags(directory, split)
            seen[rows] = False
            left = with_rows(change, f"{folder}/{name}", split, seen, split.rows is not None)
            statistics = statistics_without(directory, parent, split, rows)
            splits[name] = replace(left, statistics=statistics)
        change.commit(splits=splits)
        removed = ", ".join(f"{len(rows):,} of {name}" for name, rows in gone.items())
        left = counted(sum(split.records for split in splits.values()), "record")
        yield f"{directory}: generation {change.generation} has {left}; deleted {removed}"


def _rows_of_keys(
    directory: str, manifest: Manifest, parsed: argparse.Namespace, keys: Sequence[str]
) -> dict[str, np.ndarray]:
    """Split -> the rows of the records with some keys, int64 [n], ascending; UsageError for missing keys, unless they are ok."""
    hashes = hashes64(order_seed(manifest), ORDER, [key.encode(*UTF8) for key in keys])
    places = StoredKeys(f"{directory}@{manifest.generation}").find(hashes)
    numbers = {name: number for number, name in enumerate(manifest.splits)}
    found = {
        n: np.unique(places[places[:, 0] == numbers[n], 1]) for n in splits_of(manifest, parsed)
    }
    missing = sorted(
        {key for key, (n, _) in zip(keys, places, strict=True) if n not in map(numbers.get, found)}
    )
    if missing and parsed.missing == "error":
        named = ", ".join(missing[:_NAMED]) + ", ..." * (len(missing) > _NAMED)
        raise UsageError(
            f"{directory}: {counted(len(missing), 'key')} not found: {named}; nothing was deleted; --missing ok deletes "
            "the others"
        )
    return found


def statistics_without(
    directory: str, manifest: Manifest, split: Split, rows: np.ndarray
) -> dict[str, dict[str, Any]]:
    """The statistics of a split without some of its records, whose extremes are bounds."""
    left = dict(split.statistics)
    families = [(split.families[name], names) for name, names in manifest.families.items()]
    others = {*manifest.schema}.difference(*manifest.families.values())
    for shards, names in [(split.shards, others), *families]:
        schema = Schema(
            {n: f for n, f in manifest.schema.items() if n in names and n in left and not f.step}
        )
        gone = {name: FeatureStatistics.like(f, left[name]) for name, f in schema.items()}
        for values in stored_values(directory, shards, schema, rows) if schema else ():
            for name, statistics in gone.items():
                statistics.add(schema[name], values[name])
        for name, statistics in gone.items():
            both = statistics.negative()
            both.add_json(left[name], split.records)
            left[name] = both.to_json()
    return left


def keys_in(path: str) -> list[str]:
    """The keys in a file, one on each line."""
    lines = read_file(path).decode(*UTF8).split("\n")
    return [_key_in(line.removesuffix("\r")) for line in lines if line.strip()]


def _key_in(line: str) -> str:
    """The key in a line: that of an object of JSON, or the line itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line
    key = value.get("key") if isinstance(value, dict) else None
    return key if isinstance(key, str) else line
