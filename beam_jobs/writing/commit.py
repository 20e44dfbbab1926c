"""The end of a job: checks that nothing was lost, then writes the manifest."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import google_crc32c

from beam_jobs import progress
from beam_jobs.dataset.generations import commit, state_of
from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.dataset.reconcile import check_files, reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import unwritable
from beam_jobs.jobs.passes import Learned
from beam_jobs.jobs.text.subwords import Subwords
from beam_jobs.jobs.text.tokens import vocabulary_file
from beam_jobs.plan.group_splits import GroupSplits
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import Plan
from beam_jobs.plan.summary import Summary
from beam_jobs.records.statistics import SplitStatistics
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import write_file
from beam_jobs.writing.append import commit_appended, with_statistics
from readers.format.manifest import GROUPS, MANIFEST, TOKENIZER, VOCABULARY, File, Manifest, join
from readers.format.splits import Split

_logger = logging.getLogger("beam_jobs")


def _manifest_of(
    output: Output, learned: Learned, summary: Summary, splits: Sequence[Sequence[ShardResult]]
) -> Manifest:
    """The manifest of a dataset whose shards are written, without statistics and files, given the results by split."""
    every, tokenizer = list(chain.from_iterable(splits)), learned.tokenizer
    classes = {n: c for n, c in (learned.names or {}).items() if n != LABEL and n in learned.schema}
    return Manifest(
        schema=renamed_schema(learned.schema, output.feature_names),
        splits={
            name: Split(
                tuple(result.shard for result in results if result.shard),
                sum(result.rejected for result in results),
                duplicates=known.duplicates,
            )
            for name, results, known in zip(
                output.placement.splits.names, splits, summary.splits, strict=True
            )
        },
        label_names=(learned.names or {}).get(LABEL, ()),
        class_names=output.in_examples(classes),
        vocabulary=len(learned.vocabulary),
        tokenizer=Subwords(tokenizer).size if tokenizer else 0,
        options=output.options,
        versions=output.versions(*(["tokenizers"] if tokenizer else [])),
        rejects=tuple(result.rejects for result in every if result.rejects),
        generation=output.generation,
        job=output.job(summary),
    )


def _files_of(placement: Placement, learned: Learned) -> dict[str, bytes]:
    """The contents of the vocabulary, the tokenizer and the splits of groups, if there are some, by the name of the file."""
    files = {}
    if learned.vocabulary:
        files[VOCABULARY] = vocabulary_file(learned.vocabulary)
    if learned.tokenizer:
        files[TOKENIZER] = learned.tokenizer.encode()
    if learned.strata and placement.deals_groups:
        files[GROUPS] = GroupSplits.unpack(learned.strata, placement.splits).to_file()
    return files


def commit_dataset(
    output: Output,
    learned: Learned,
    summary: Summary,
    plan: bytes,
    merged: SplitStatistics,
    *results: list[ShardResult],
) -> Manifest:
    """Checks that nothing was lost, then writes the vocabulary and, last, the manifest.

    `results` has those of all shards, then the new ones of shards that the top-up has changed.
    """
    progress.begin("checking")
    names, planned = output.placement.splits.names, Plan.unpack(plan)
    statistics = merged.by_split(learned.schema)
    counted = {split: values.records for split, values in statistics.items()}
    duplicates = sum(split.duplicates for split in summary.splits)
    shards = list(chain.from_iterable(results))
    splits = reconcile(planned, shards, counted, names, output.max_rejects, duplicates)
    manifest = _manifest_of(output, learned, summary, splits)
    with unwritable(output.directory, MANIFEST):
        if not output.append:
            files = {}
            for name, content in _files_of(output.placement, learned).items():
                files[name] = File(f"{planned.folder}/{name}", google_crc32c.value(content))
                write_file(join(output.directory, files[name].path), content, output.staging)
            manifest = replace(with_statistics(output, manifest, statistics), files=files)
        state = state_of(output.directory)
        check_files(output.directory, chain.from_iterable(splits), state.sizes)
        if output.append:
            return commit_appended(output, learned, manifest, statistics)
        commit(output, manifest, state)
    return manifest


def warn_of_rejects(directory: str, manifest: Manifest, results: Iterable[ShardResult]) -> None:
    """Logs how many records were rejected, given a complete dataset and the results of its shards."""
    if rejected := manifest.rejected:
        found = rejected + sum(split.records for split in manifest.splits.values())
        _logger.warning(
            "%s of %s records were rejected and not written; the first: %s; all are listed in %s/",
            f"{rejected:,}",
            f"{found:,}",
            min(result.first_reject for result in results if result.first_reject),
            join(directory, os.path.dirname(manifest.rejects[0])),
        )
