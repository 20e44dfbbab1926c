"""The end of a job: checks that nothing was lost, then writes the manifest."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import google_crc32c

from beam_jobs import progress
from beam_jobs.dataset.generations import commit, state_of
from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.dataset.reconcile import check_files, reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_writer import unwritable
from beam_jobs.jobs.text.subwords import Subwords
from beam_jobs.jobs.text.tokens import vocabulary_file
from beam_jobs.plan.group_splits import GroupSplits
from beam_jobs.plan.placement import Placement
from beam_jobs.plan.shards import Plan
from beam_jobs.plan.summary import Summary
from beam_jobs.records.statistics import SplitStatistics, Statistics
from beam_jobs.sources.labels import LABEL, Names
from beam_jobs.storage.atomic import write_file
from beam_jobs.writing.append import commit_appended, with_statistics
from readers.format.manifest import GROUPS, MANIFEST, TOKENIZER, VOCABULARY, File, Manifest, join
from readers.format.remarks import Remarks
from readers.format.schema import Schema
from readers.format.splits import Split

_logger = logging.getLogger("beam_jobs")


def _manifest_of(
    output: Output,
    splits: Sequence[Sequence[ShardResult]],
    statistics: Mapping[int, Statistics],
    summary: Summary,
    class_names: Names,
    schema: Schema,
    vocabulary: tuple[bytes, ...],
    tokenizer: str,
    files: Mapping[str, File],
) -> Manifest:
    """The manifest of a dataset whose shards are written.

    Args:
        output: The dataset.
        splits: The results of all shards, by split.
        statistics: Split -> the statistics of its records.
        summary: The summary of all records.
        class_names: Names of classes by feature.
        schema: The features of every record.
        vocabulary: All words by id; empty if the job counts none.
        tokenizer: The text of the tokenizer file; empty if the job has none.
        files: The vocabulary and the tokenizer, by name.
    """
    names = output.placement.splits.names

    def in_examples(values: Mapping[str, Any]) -> dict[str, Any]:
        return {output.feature_names.get(name, name): value for name, value in values.items()}

    found_in = {names[split]: found for split, found in statistics.items()}
    figures = {name: in_examples(found.to_json()) for name, found in found_in.items()}
    return Manifest(
        schema=renamed_schema(schema, output.feature_names),
        splits={
            name: Split(
                tuple(result.shard for result in results if result.shard),
                sum(result.rejected for result in results),
                figures.get(name, {}),
                known.duplicates,
                found_in[name].remarks if name in found_in else Remarks(),
            )
            for name, results, known in zip(names, splits, summary.splits, strict=True)
        },
        label_names=class_names.get(LABEL, ()),
        class_names=in_examples(
            {n: found for n, found in class_names.items() if n != LABEL and n in schema}
        ),
        vocabulary=len(vocabulary),
        tokenizer=Subwords(tokenizer).size if tokenizer else 0,
        options=output.options,
        versions=output.versions(*(["tokenizers"] if tokenizer else [])),
        files=dict(files),
        rejects=tuple(result.rejects for results in splits for result in results if result.rejects),
        generation=output.generation,
        job=output.job(summary),
    )


def _files_of(
    placement: Placement, vocabulary: tuple[bytes, ...], tokenizer: str, strata: bytes
) -> dict[str, bytes]:
    """The contents of the vocabulary, the tokenizer and the splits of groups, if there are some, by the name of the file."""
    files = {VOCABULARY: vocabulary_file(vocabulary)} if vocabulary else {}
    if tokenizer:
        files[TOKENIZER] = tokenizer.encode()
    if strata and placement.deals_groups:
        files[GROUPS] = GroupSplits.unpack(strata, placement.splits).to_file()
    return files


def commit_dataset(
    output: Output,
    summary: Summary,
    plan: bytes,
    results: list[ShardResult],
    changed: list[ShardResult],
    merged: SplitStatistics,
    class_names: Names,
    schema: Schema,
    vocabulary: tuple[bytes, ...] = (),
    tokenizer: str = "",
    strata: bytes = b"",
) -> Manifest:
    """Checks that nothing was lost, then writes the vocabulary and, last, the manifest.

    `changed` has the new results of shards that the top-up has changed, `strata` the packed splits by group or by label;
    the others are those of `_manifest_of`.
    """
    progress.begin("checking")
    names = output.placement.splits.names
    statistics = merged.by_split(schema)
    counted = {split: values.records for split, values in statistics.items()}
    planned, shards = Plan.unpack(plan), [*results, *changed]
    duplicates = sum(split.duplicates for split in summary.splits)
    splits = reconcile(planned, shards, counted, names, output.max_rejects, duplicates)
    folder = planned.folder
    contents = _files_of(output.placement, vocabulary, tokenizer, strata)
    files = {
        name: File(f"{folder}/{name}", google_crc32c.value(content))
        for name, content in contents.items()
    }
    with unwritable(output.directory, MANIFEST):
        if output.append is not None:
            check_files(
                output.directory, chain.from_iterable(splits), state_of(output.directory).sizes
            )

            def appended(parent: Manifest) -> Manifest:
                every = with_statistics(output, schema, parent, statistics)
                known = splits, every, summary, class_names, schema, vocabulary, tokenizer, files
                return _manifest_of(output, *known)

            added = [result.shard for results in splits for result in results if result.shard]
            return commit_appended(output, class_names, added, appended)
        manifest = _manifest_of(
            output, splits, statistics, summary, class_names, schema, vocabulary, tokenizer, files
        )
        for name, content in contents.items():
            write_file(join(output.directory, files[name].path), content, output.staging)
        state = state_of(output.directory)
        check_files(output.directory, chain.from_iterable(splits), state.sizes)
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
