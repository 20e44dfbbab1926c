"""The generation that a job appends to a dataset: the shards of both, and all figures of their manifests together."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from beam_jobs.dataset.changes import without
from beam_jobs.dataset.generations import OvertakenError, commit, state_of
from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.errors import DataError
from beam_jobs.jobs.passes import Learned
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.labels import LABEL, Names
from readers.format.display import counted
from readers.format.lookup.stored import StoredSplit, stored_splits
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import Generation, Manifest, open_generation
from readers.format.schema import Schema
from readers.format.splits import Shard, Split

# Commands that may commit between two attempts of an append.
_ATTEMPTS = 10


def _newest(output: Output, names: Names) -> Generation:
    """The generation to continue: the newest one, which may have been committed while the job ran.

    Raises:
        DataError: It does not continue the one that the job began with, or gives other ids to classes.
    """
    found = open_generation(output.directory)
    if output.parent not in (found.sha256, *found.manifest.ancestors):
        raise _too_late(output, "replaced the dataset")
    for feature, ours in names.items():
        of_examples = output.feature_names.get(feature, feature)
        manifest = found.manifest
        theirs = (
            manifest.label_names if feature == LABEL else manifest.class_names.get(of_examples, ())
        )
        if ours[: len(theirs)] != theirs:
            raise _too_late(output, f"added classes of {of_examples}")
    return found


def _too_late(output: Output, what: str) -> DataError:
    return DataError(
        f"--output {output.directory}: another command {what} while this one ran; run it again"
    )


def with_statistics(
    output: Output, manifest: Manifest, statistics: Mapping[int, Statistics]
) -> Manifest:
    """A manifest with the statistics of its splits, by their numbers."""
    splits = dict(manifest.splits)
    for number, name in enumerate(manifest.splits):
        if found := statistics.get(number):
            figures = output.in_examples(found.to_json())
            splits[name] = replace(splits[name], statistics=figures, remarks=found.remarks)
    return replace(manifest, splits=splits)


def _of_both(
    output: Output, schema: Schema, before: Manifest, ours: Mapping[int, Statistics]
) -> dict[int, Statistics]:
    """Split -> the statistics of the records of a dataset and of those that are appended, with a schema.

    Raises:
        DataError: The records have different features.
    """
    if (both := renamed_schema(schema, output.feature_names)) != before.schema:
        raise DataError(
            "the records have other features than the dataset; the first that differs is "
            f"{before.schema.difference(both)}"
        )
    found = {}
    for number, split in enumerate(before.splits.values()):
        if number not in ours and not split.records:
            continue
        found[number] = Statistics(schema)
        if number in ours:
            found[number].merge(ours[number])
        renamed = output.feature_names
        figures = {name: split.statistics.get(renamed.get(name, name), {}) for name in schema}
        found[number].add_json(figures, split.records, split.remarks)
    return found


def commit_appended(
    output: Output, learned: Learned, ours: Manifest, statistics: Mapping[int, Statistics]
) -> Manifest:
    """Commits the shards of a job after those of the newest generation, without encoding again if that changes meanwhile.

    `ours` is the manifest of the job alone, without statistics.

    Raises:
        DataError: A command that committed while the job ran has added records with the same keys, or classes.
    """
    for _ in range(_ATTEMPTS):
        parent = _newest(output, learned.names or {})
        if {shard.path for shard in ours.shards} <= parent.manifest.paths:
            return parent.manifest  # An earlier attempt has committed.
        before = _without_replaced(output, parent, ours.shards)
        manifest = with_statistics(
            output,
            _joined(output, parent, before, ours),
            _of_both(output, learned.schema, before, statistics),
        )
        with contextlib.suppress(OvertakenError):
            numbered = replace(output, generation=manifest.generation)
            commit(numbered, manifest, state_of(output.directory))
            return manifest
    raise _too_late(output, "changed the dataset again and again")


def added_line(before: Manifest, after: Manifest, drops: bool) -> str:
    """The line about an append, given the generation before it and its own, and whether it drops near duplicates."""
    counts, replaced, left_out = list[str](), 0, 0
    for name, new in after.splits.items():
        old = before.splits[name]
        if count := sum(shard.records for shard in new.shards[len(old.shards) :]):
            counts.append(
                f"{counted(count, 'record')} to {name}" if not counts else f"{count:,} to {name}"
            )
            replaced += old.records + count - new.records
        left_out += new.duplicates - old.duplicates
    line = f"added {', '.join(counts)} in generation {after.generation}"
    if replaced:
        line += f"; replaced {counted(replaced, 'existing key')}"
    if left_out:
        line += (
            f"; dropped {counted(left_out, 'duplicate')}"
            if drops
            else f"; skipped {counted(left_out, 'existing key')}"
        )
    return line


def _without_replaced(output: Output, parent: Generation, shards: Sequence[Shard]) -> Manifest:
    """The manifest of a generation without the records whose keys are in some shards; DataError if these may not replace any."""
    manifest, directory = parent.manifest, output.directory
    if output.placement.existing != "replace" and parent.sha256 == output.parent:
        return manifest
    hashes = StoredSplit(directory, manifest, Split((*shards,))).hashes()
    found = StoredKeys.of(directory, manifest).find(hashes)
    found = found[found[:, 0] >= 0]
    if len(found) and output.placement.existing != "replace":
        raise _too_late(output, f"added {len(found)} of the same keys")
    folder, splits = shards[0].path.partition("/")[0], dict(manifest.splits)
    for number, (name, stored) in enumerate(stored_splits(directory, manifest).items()):
        rows = np.sort(found[found[:, 0] == number, 1])
        if len(rows):
            splits[name] = without(output, f"{folder}/{name}", stored, rows)
    return replace(manifest, splits=splits)


def _joined(output: Output, parent: Generation, before: Manifest, ours: Manifest) -> Manifest:
    """The manifest of the next generation: that of a job, after the splits of `before`."""
    splits = {
        name: replace(
            old,
            shards=(*old.shards, *new.shards),
            rejected=old.rejected + new.rejected,
            statistics=new.statistics,
            duplicates=old.duplicates + new.duplicates,
            remarks=new.remarks,
        )
        for (name, old), new in zip(before.splits.items(), ours.splits.values(), strict=True)
    }
    return replace(
        before,
        splits=splits,
        label_names=ours.label_names,
        class_names=ours.class_names,
        versions=ours.versions,
        job=ours.job,
        rejects=(*before.rejects, *ours.rejects),
        generation=before.generation + 1,
        ancestors=(*before.ancestors, parent.sha256),
        operation={"name": "append", **(output.append.flags if output.append else {})},
    )
