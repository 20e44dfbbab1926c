"""`beam-shards select`: a dataset of some records of another one, in whose files they stay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.changes.choice import chosen_rows, given, moved
from beam_jobs.changes.tag import pin
from beam_jobs.dataset.changes import Change, changing, with_rows
from beam_jobs.dataset.output import resolve
from beam_jobs.records.numbers import Numbers
from beam_jobs.records.statistics import Statistics
from readers.format.index import LENGTH, VALUE, numbers_of
from readers.format.lookup.stored import StoredSplit
from readers.format.manifest import ALLOWED_BASES, Generation, Manifest, open_generation
from readers.format.splits import Split, is_sibling


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    generation = open_generation(resolve(parsed.directory))
    directory, base, sha256 = generation
    operation = {"name": "select", "of": sha256, **given(parsed)}
    rows = chosen_rows(directory, base, parsed)
    pinned = pin(generation, "select")
    with changing(parsed.output, operation, moved(resolve(parsed.output), generation)) as change:
        manifest = change.parent
        if manifest.operation != operation:
            manifest = _subset(change, generation, rows)
    yield pinned
    counts = (f"{split.records:,} of {name}" for name, split in manifest.splits.items())
    yield f"{change.directory}: selected {', '.join(counts)}"
    for far in manifest.base:
        if not is_sibling(far):
            yield f"{directory} is not next to it, so readers need {ALLOWED_BASES}={far}"


def _subset(change: Change, generation: Generation, chosen: dict[str, np.ndarray]) -> Manifest:
    """Commits some records of a generation; returns their manifest."""
    folder, splits = change.folder(), dict[str, Split]()
    for name, rows in chosen.items():
        stored = StoredSplit(*generation[:2], generation.manifest.splits[name])
        split, seen = change.parent.splits[name], np.zeros(stored.split.stored, bool)
        seen[rows] = True
        statistics = _statistics(stored, rows)
        whole = Split(split.shards, statistics=statistics, families=split.families)
        is_short = 2 * len(rows) < len(seen)
        splits[name] = with_rows(change, f"{folder}/{name}", whole, seen, is_short)
    left = replace(change.parent, splits=splits, rejects=())
    used = [b for b in left.base if any(path.startswith(f"{b}/") for path in left.paths)]
    return change.commit(splits=splits, rejects=(), job="", base=tuple(dict.fromkeys(used)))


def _statistics(stored: StoredSplit, rows: np.ndarray) -> dict[str, Any]:
    """The statistics of the single numbers and the lengths in the indexes, of the records with some rows.

    Other lengths keep their extremes, which are bounds, and other values have no statistics.
    """
    manifest, found = stored.manifest, dict[str, Any]()
    of_features = Statistics.of(manifest).features
    names = list(numbers_of(manifest.schema.select(manifest.features_of[""])))
    read = [*stored.sections(names)] if len(rows) else []
    columns = {n: np.concatenate([part[n] for part in read])[rows] for n in names if read}
    for name, old in stored.split.statistics.items():
        feature, lengths = manifest.schema[name], dict(old.get("lengths", {}))
        statistics = of_features[name]
        if "values" not in old:
            statistics.counted = None
        if VALUE + name in columns:
            statistics.add(feature, columns[VALUE + name])
        for axis, figures in lengths.items():
            lengths[axis] = {end: figures[end] for end in ("min", "max")}
        if LENGTH + name in columns:
            numbers = Numbers()
            numbers.add([columns[LENGTH + name]])
            lengths[str(feature.shape.index(None))] = numbers.to_json()
        found[name] = {**statistics.to_json(), **({"lengths": lengths} if lengths else {})}
    return found
