"""`beam-shards merge`: one dataset of the records of several, which keep their files or are copied."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from beam_jobs.changes.compact import add_arguments as add_size
from beam_jobs.changes.compact import compacted
from beam_jobs.dataset.changes import creating
from beam_jobs.dataset.generations import state_of
from beam_jobs.dataset.output import resolve
from beam_jobs.errors import UsageError
from readers.format.lookup.keys import order_seed
from readers.format.manifest import DatasetError, Manifest, join, open_generation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("others", metavar="DIR", nargs="+", help="the other datasets")
    parser.add_argument("--output", metavar="DIR", required=True, help="the new dataset")
    text = "copy the records to balanced shards; otherwise the new dataset names the files of the others"
    parser.add_argument("--copy", action="store_true", help=text)
    add_size(parser)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    if (parsed.num_shards or parsed.shard_size) and not parsed.copy:
        raise UsageError(
            "--num_shards, --shard_size: add --copy, without which no shards are written"
        )
    sizes = {"num_shards": parsed.num_shards, "shard_size": parsed.shard_size}
    manifest = merge([parsed.directory, *parsed.others], parsed.output, parsed.copy, **sizes)
    for name, split in manifest.splits.items():
        yield f"{name}: {split.records:,} records in {len(split.shards):,} shards"
    for base in manifest.base:
        yield f"{parsed.output} needs the files of {join(resolve(parsed.output), base)}"


def merge(directories: Sequence[str], output: str, copies: bool = False, **sizes: Any) -> Manifest:
    """Makes a dataset of the records of others, split by split; returns its manifest.

    Args:
        directories: The datasets, or generations of them, such as `DIR@3`.
        output: The new dataset.
        copies: Whether to copy records to balanced shards; otherwise it names the files of the others.
        sizes: Further arguments of `compacted`.

    Raises:
        UsageError: Their records differ in features or their meaning, or have the same keys; or `output` is not free.
        DataError: A file cannot be written.
    """
    output = resolve(output)
    try:
        found = [open_generation(resolve(directory)) for directory in directories]
    except DatasetError as error:
        raise UsageError(str(error)) from None
    for path, other in zip(directories[1:], found[1:], strict=True):
        if difference := _difference(found[0].manifest, other.manifest):
            raise UsageError(
                f"{path}: {difference}; write one of them again with beam-shards reshard, or the job that made it"
            )
    given = {name: str(value) for name, value in sizes.items() if value and name != "processes"}
    how = {"copy": True, **given} if copies else {}
    operation = {"name": "merge", "of": [each.sha256 for each in found], **how}
    known = state_of(output).manifest
    if known and known.operation == operation:
        return known
    _check_keys(directories, found)
    with creating(output, found[0].manifest, operation) as change:
        merged = _merged(change, found)
        changed = replace(change, parent=merged)
        return changed.commit(**(compacted(changed, **sizes) if copies else {}))


def _difference(one: Manifest, other: Manifest) -> str:
    """What keeps the records of two datasets from being in one; empty if nothing does."""
    for name in {**one.schema, **other.schema}:
        ours, theirs = one.schema.get(name), other.schema.get(name)
        if ours != theirs:
            return (
                f"feature {name!r} is {theirs or 'missing'}, the first dataset has {ours or 'none'}"
            )
        for fact in {**one.meaning(name), **other.meaning(name)}:
            if one.meaning(name).get(fact) != other.meaning(name).get(fact):
                return f"feature {name!r} has other {fact} than in the first dataset"
    if one.families != other.families:
        return "its features are in other families than in the first dataset (compact both before)"
    seeds = [manifest.options.get("seed", 0) for manifest in (one, other)]
    if seeds[0] != seeds[1] or _is_keyed(one) != _is_keyed(other):
        return f"its records are ordered by other hashes (seed {seeds[1]}, the first dataset has {seeds[0]})"
    return ""


def _is_keyed(manifest: Manifest) -> bool:
    try:
        return order_seed(manifest) is not None
    except DatasetError:
        return False
