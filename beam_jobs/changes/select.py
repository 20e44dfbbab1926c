"""`beam-shards select`: a dataset of some records of another one, in whose files they stay."""

from __future__ import annotations

import argparse
import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from beam_jobs.changes.choice import add_choice, chosen_rows, given, with_rows
from beam_jobs.changes.tag import tag
from beam_jobs.dataset.changes import Change
from beam_jobs.dataset.generations import commit, state_of
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.output import not_writable, resolve
from beam_jobs.errors import JobError, UsageError
from beam_jobs.records.numbers import Numbers
from beam_jobs.records.statistics import FeatureStatistics
from readers.format.index import LENGTH, VALUE, numbers_of
from readers.format.lookup.sections import sections
from readers.format.manifest import ALLOWED_BASES, Manifest, join, open_generation
from readers.format.splits import Shard, Split, is_sibling


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_choice(parser)
    text = "the directory of the subset, best next to DIR, together with which it may be moved"
    parser.add_argument("--output", metavar="SUB", required=True, help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    directory, base, sha256 = open_generation(resolve(parsed.directory))
    operation = {"name": "select", "of": sha256, **given(parsed)}
    empty = replace(base, generation=0, ancestors=(), operation=operation, rejects=(), job="")
    change = Change(resolve(parsed.output), empty, sha256, operation, uuid.uuid4().hex[:8])
    before = state_of(change.directory).manifest
    if before and before.operation != operation:
        raise UsageError(f"--output {change.directory}: a dataset is here already; name another")
    try:
        with leased(change, "select"):
            manifest = _subset(change, directory, chosen_rows(directory, base, parsed))
            commit(change, manifest, state_of(change.directory))
    except OSError as error:
        raise not_writable(change.directory, error) from None
    with contextlib.suppress(OSError, JobError):  # The dataset may be somebody else's.
        yield tag(directory, f"select-{sha256[:8]}", base.generation)
    counts = (f"{split.records:,} of {name}" for name, split in manifest.splits.items())
    yield f"{change.directory}: selected {', '.join(counts)}"
    for far in manifest.base:
        if not is_sibling(far):
            yield f"{directory} is not next to it, so readers need {ALLOWED_BASES}={far}"


def _subset(change: Change, directory: str, chosen: dict[str, np.ndarray]) -> Manifest:
    """The manifest of some records of the dataset in a directory, after their lists are written."""
    beside, folder, base = change.directory.rpartition("/")[0] + "/", change.folder(), change.parent

    def moved(path: str) -> str:
        whole = join(directory, path)
        return f"../{whole.removeprefix(beside)}" if whole.startswith(beside) else whole

    def of_base(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
        return tuple(replace(shard, path=moved(shard.path)) for shard in shards)

    change.begin(folder)
    splits = dict[str, Split]()
    for name, rows in chosen.items():
        split, seen = base.splits[name], np.zeros(base.splits[name].stored, bool)
        seen[rows] = True
        families = {family: of_base(shards) for family, shards in split.families.items()}
        statistics = _statistics(directory, base, split, rows)
        whole = Split(of_base(split.shards), statistics=statistics, families=families)
        is_short = 2 * len(rows) < len(seen)
        splits[name] = with_rows(change, f"{folder}/{name}", whole, seen, is_short)
    files = {name: file._replace(path=moved(file.path)) for name, file in base.files.items()}
    manifest = replace(base, splits=splits, files=files, generation=change.generation)
    bases = dict.fromkeys(map(moved, (directory, *base.base)))
    used = (b for b in bases if any(path.startswith(f"{b}/") for path in manifest.paths))
    return replace(manifest, base=tuple(used))


def _statistics(
    directory: str, manifest: Manifest, split: Split, rows: np.ndarray
) -> dict[str, Any]:
    """The statistics of the single numbers and the lengths in the indexes, of the records with some rows.

    Other lengths keep their extremes, which are bounds, and other values have no statistics.
    """
    names = list(numbers_of(manifest.schema.select(manifest.features_of[""])))
    read = [*sections(directory, split.shards, names)] if len(rows) else []
    columns = {n: np.concatenate([part[n] for part in read])[rows] for n in names if read}
    found = {}
    for name, old in split.statistics.items():
        feature, lengths = manifest.schema[name], dict(old.get("lengths", {}))
        statistics = FeatureStatistics.like(feature, old)
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
