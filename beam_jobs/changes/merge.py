"""`beam-shards merge`: a dataset of the records of several, whose files stay where they are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from beam_jobs.changes.choice import moved
from beam_jobs.changes.compact import compact, sizes
from beam_jobs.changes.tag import pin
from beam_jobs.dataset.changes import Change, changing, with_rows
from beam_jobs.dataset.output import resolve
from beam_jobs.errors import UsageError
from beam_jobs.records.statistics import Statistics, are_complete
from readers.format.features import Features
from readers.format.lookup.stored import StoredSplit, stored_splits
from readers.format.manifest import Generation, Manifest, join, open_generation
from readers.format.splits import Split

# Keys that are named.
_NAMED = 3


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    manifest = merge([parsed.directory, *parsed.others], parsed.output)
    if parsed.copy:
        manifest = compact(parsed.output)
    yield from sizes(manifest)
    for base in manifest.base:
        yield f"{parsed.output} needs the files of {join(resolve(parsed.output), base)}"


def merge(directories: Sequence[str], output: str) -> Manifest:
    """Makes a dataset of the records of others, or of generations such as `DIR@3`, in their files; returns its manifest.

    Raises:
        UsageError: Their records differ in features or their meaning, or have the same keys; or `output` is not free.
        DataError: A file cannot be written.
    """
    output = resolve(output)
    found = [open_generation(resolve(directory)) for directory in directories]
    for path, other in zip(directories[1:], found[1:], strict=True):
        if difference := _difference(found[0].manifest, other.manifest):
            raise UsageError(
                f"{path} has {difference} than {directories[0]}: write one of them again, for instance with "
                "beam-shards reshard"
            )
    operation = {"name": "merge", "of": [each.sha256 for each in found]}
    with changing(output, operation, moved(output, found[0])) as change:
        if change.parent.operation == operation:
            return change.parent
        _check_keys(found)
        for generation in found:
            pin(generation, "merge")
        return replace(change, parent=_merged(change, found)).commit()


def _difference(one: Manifest, other: Manifest) -> str:
    """What differs in two datasets that cannot be one; empty if nothing does."""
    if not (are_complete(one) and are_complete(other)):
        return "other statistics, because one is a subset (compact it before),"
    if different := one.schema.difference(other.schema):
        return f"another feature {different}"
    for name in one.schema:
        if one.meaning(name) != other.meaning(name):
            return f"other classes, tokens, channels, units or rates of feature {name!r}"
    for what in ("seed", "names"):
        if one.options.get(what) != other.options.get(what):
            return f"another {what} ({other.options.get(what)}, not {one.options.get(what)})"
    return "" if one.families == other.families else "other families of features"


def _check_keys(found: Sequence[Generation]) -> None:
    """Raises UsageError if a key is in several datasets."""
    parts = [stored for d, manifest, _ in found for stored in stored_splits(d, manifest).values()]
    every = np.sort(np.concatenate([stored.seen_hashes() for stored in parts]))
    twice = every[1:][every[1:] == every[:-1]]
    if not len(twice) or found[0].manifest.options.get("job") == "reshard":
        return  # A reshard job orders records by the names of their files, which may be the same.
    keys, feature = set[bytes](), Features.of(found[0].manifest).named("key")
    for stored in parts if feature else ():
        rows = np.flatnonzero(np.isin(stored.hashes(), twice[:_NAMED]))
        for columns in stored.columns(rows, stored.manifest.schema.select([feature])):
            keys.update(columns[feature].arrays())
    named = ", ".join(key.decode("utf-8", "replace") for key in sorted(keys))
    raise UsageError(
        f"{len(twice):,} keys are in several datasets: {named}; delete them in one of them before"
    )


def _merged(change: Change, found: Sequence[Generation]) -> Manifest:
    """The manifest of all records, after the lists of those that are gone are written."""
    manifests, splits = [moved(change.directory, each) for each in found], dict[str, Split]()
    first = manifests[0]
    for name in {name: None for manifest in manifests for name in manifest.splits}:
        parts = [manifest.splits[name] for manifest in manifests if name in manifest.splits]
        total = Statistics.of(first)
        for part in parts:
            total.add_json(part.statistics, part.records, part.remarks)
        flags = (StoredSplit(change.directory, first, part).flags() for part in parts)
        seen = np.concatenate([*flags])
        split = Split(
            tuple(shard for part in parts for shard in part.shards),
            sum(part.rejected for part in parts),
            total.to_json() if total.records else {},
            sum(part.duplicates for part in parts),
            total.remarks,
            families={
                f: tuple(s for part in parts for s in part.families[f]) for f in first.families
            },
        )
        splits[name] = with_rows(change, f"{change.folder()}/{name}", split, seen, False)
    rejects = tuple(path for manifest in manifests for path in manifest.rejects)
    base = tuple({base: None for manifest in manifests for base in manifest.base})
    return replace(change.parent, splits=splits, rejects=rejects, base=base, job="")
