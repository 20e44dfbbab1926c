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
from readers.format.display import counted
from readers.format.index import LENGTH, VALUE, numbers_of
from readers.format.lookup.sections import sections
from readers.format.manifest import ALLOWED_BASES, Manifest, join, open_generation
from readers.format.splits import Shard, Split, is_sibling


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_choice(parser)
    text = "the directory of the subset: best next to DIR, which may then be moved together with it"
    parser.add_argument("--output", metavar="SUB", required=True, help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    directory, base, sha256 = open_generation(resolve(parsed.directory))
    operation = {"name": "select", "of": sha256, **given(parsed)}
    empty = replace(base, generation=0, ancestors=(), operation={})
    change = Change(resolve(parsed.output), empty, sha256, operation, uuid.uuid4().hex[:8])
    before = state_of(change.directory)
    if before.manifest and before.manifest.operation != operation:
        raise UsageError(f"--output {change.directory}: a dataset is here already; name another")
    try:
        with leased(change, "select"):
            manifest = _subset(change, directory, dict(chosen_rows(directory, base, parsed)))
            commit(change, manifest, state_of(change.directory))
    except OSError as error:
        raise not_writable(change.directory, error) from None
    with contextlib.suppress(OSError, JobError):  # It may be somebody else's.
        yield tag(directory, f"select-{sha256[:8]}", base.generation)
    counts = (f"{counted(split.records, 'record')} of {n}" for n, split in manifest.splits.items())
    yield f"{change.directory}: {', '.join(counts)}"
    for far in manifest.base:
        if not is_sibling(far):
            yield f"{directory} is not next to it, so readers need {ALLOWED_BASES}={far}"


def _subset(change: Change, directory: str, chosen: dict[str, np.ndarray]) -> Manifest:
    """The manifest of some records of the dataset in a directory, after their lists are written."""
    parent, folder = change.directory.rpartition("/")[0], change.folder()

    def moved(path: str) -> str:
        whole = join(directory, path)
        is_near = whole.startswith(f"{parent}/")
        return f"../{whole[len(parent) + 1 :]}" if is_near else whole

    def of_base(shards: tuple[Shard, ...]) -> tuple[Shard, ...]:
        return tuple(replace(shard, path=moved(shard.path)) for shard in shards)

    change.begin(folder)
    base, splits = change.parent, dict[str, Split]()
    for name, rows in chosen.items():
        split, seen = base.splits[name], np.zeros(base.splits[name].stored, bool)
        seen[rows] = True
        statistics = _statistics(directory, base, split, seen)
        families = {family: of_base(shards) for family, shards in split.families.items()}
        of_all = Split(of_base(split.shards), statistics=statistics, families=families)
        splits[name] = with_rows(
            change, f"{folder}/{name}", of_all, seen, 2 * len(rows) < len(seen)
        )
    files = {name: file._replace(path=moved(file.path)) for name, file in base.files.items()}
    manifest = replace(
        base,
        splits=splits,
        files=files,
        rejects=(),
        job="",
        base=(),
        generation=1,
        operation=change.operation,
    )
    near = dict.fromkeys(moved(path) for path in (directory, *base.base))
    used = (path for path in near if any(file.startswith(f"{path}/") for file in manifest.paths))
    return replace(manifest, base=tuple(used))


def _statistics(
    directory: str, manifest: Manifest, split: Split, seen: np.ndarray
) -> dict[str, dict[str, Any]]:
    """The statistics of single numbers and of lengths in the indexes, of the records that are true, bool [stored].

    Other lengths keep their extremes, which bound those of the subset; the rest is left out.
    """
    others = {name for names in manifest.families.values() for name in names}
    schema = {name: f for name, f in manifest.schema.items() if name not in others}
    numbers, found = numbers_of(schema), dict[str, dict[str, Any]]()
    read = [*sections(directory, split.shards, list(numbers))]
    for name, old in split.statistics.items():
        feature = manifest.schema[name]
        statistics = FeatureStatistics.like(feature, old)
        if VALUE + name in numbers and seen.any():
            statistics.add(feature, np.concatenate([part[VALUE + name] for part in read])[seen])
        if LENGTH + name in numbers and seen.any():
            lengths = np.concatenate([part[LENGTH + name] for part in read])[seen]
            statistics.lengths[str(feature.shape.index(None))] = Numbers()
            statistics.lengths[str(feature.shape.index(None))].add([lengths])
        found[name] = statistics.to_json()
        bounds = {
            axis: {end: value[end] for end in ("min", "max")}
            for axis, value in old.get("lengths", {}).items()
        }
        if bounds:
            found[name]["lengths"] = bounds | found[name].get("lengths", {})
    return found
