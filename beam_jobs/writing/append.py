"""The generation that a job appends to a dataset: the shards of both, and all figures of their manifests together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from beam_jobs.dataset.changes import written_rows
from beam_jobs.dataset.generations import OvertakenError, commit, state_of
from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.errors import DataError
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.labels import LABEL, Names
from readers.format.index import HASH, HASH_LOW
from readers.format.lookup.sections import sections
from readers.format.lookup.seen import seen_rows
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.manifest import Generation, Manifest, open_generation
from readers.format.schema import Schema
from readers.format.splits import Split

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
    output: Output, schema: Schema, parent: Manifest, ours: Mapping[int, Statistics]
) -> dict[int, Statistics]:
    """Split -> the statistics of the records of a dataset and of those that are appended, with a schema.

    Raises:
        DataError: The records have different features.
    """
    if (both := renamed_schema(schema, output.feature_names)) != parent.schema:
        raise DataError(
            f"the dataset has the features {parent.schema}, but these records have {both}"
        )
    found = {}
    for number, split in enumerate(parent.splits.values()):
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
    output: Output, names: Names, appended: Callable[[Manifest], Manifest]
) -> Manifest:
    """Commits the shards of a job after those of the newest generation, without encoding again if that changes meanwhile.

    Args:
        output: The dataset.
        names: The names of classes by feature.
        appended: The manifest of a generation -> that of the job alone, with the statistics of both.

    Raises:
        DataError: A command that committed while the job ran has added records with the same keys, or classes.
    """
    for _ in range(_ATTEMPTS):
        parent = _newest(output, names)
        ours = appended(parent.manifest)
        if {shard.path for shard in ours.shards} <= parent.manifest.paths:
            return parent.manifest  # An earlier attempt has committed.
        manifest = _joined(output, parent, ours)
        with contextlib.suppress(OvertakenError):
            numbered = replace(output, generation=manifest.generation)
            commit(numbered, manifest, state_of(output.directory))
            return manifest
    raise _too_late(output, "changed the dataset again and again")


def _joined(output: Output, parent: Generation, ours: Manifest) -> Manifest:
    """The manifest of the next generation, given that of a job; DataError if both have a key that may not be replaced."""
    directory, before = output.directory, parent.manifest
    keys = StoredKeys(f"{directory}@{before.generation}")
    splits = dict[str, Split]()
    replaced: dict[int, list[np.ndarray]] = {number: [] for number in range(len(before.splits))}
    if output.placement.existing == "replace" or parent.sha256 != output.parent:
        for split in ours.splits.values():
            for columns in sections(directory, split.shards, (HASH, HASH_LOW)):
                high, low = columns[HASH].astype(np.uint64), columns[HASH_LOW]
                found = keys.find((high << np.uint64(32)) | low)
                for number, rows in replaced.items():
                    rows.append(found[found[:, 0] == number, 1])
        count = sum(len(some) for rows in replaced.values() for some in rows)
        if count and output.placement.existing != "replace":
            raise _too_late(output, f"added {count} of the same keys")
    folder = next(iter(ours.shards)).path.partition("/")[0]
    for (name, old), rows in zip(before.splits.items(), replaced.values(), strict=True):
        new = ours.splits[name]
        stored, gone = old.stored + new.stored, old.gone
        if any(map(len, rows)):
            seen = seen_rows(directory, old)
            every = np.concatenate([*rows, *([] if seen is None else [seen.listed])]).astype(
                np.int64
            )
            gone = written_rows(output, f"{folder}/{name}.gone", np.sort(every), stored)
        splits[name] = Split(
            (*old.shards, *new.shards),
            old.rejected + new.rejected,
            new.statistics,
            old.duplicates + new.duplicates,
            new.remarks,
            gone,
        )
    return replace(
        ours,
        splits=splits,
        options=before.options,
        files=before.files,
        vocabulary=before.vocabulary,
        tokenizer=before.tokenizer,
        rejects=(*before.rejects, *ours.rejects),
        generation=before.generation + 1,
        ancestors=(*before.ancestors, parent.sha256),
        base=before.base,
        operation={"name": "append", **(output.append or {})},
    )
