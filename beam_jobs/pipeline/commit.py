"""The end of a job: proof that nothing was lost, and then the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.dataset.directory import remove_leftovers
from beam_jobs.dataset.moves import Change, plan_changes
from beam_jobs.dataset.output import Output, renamed_schema
from beam_jobs.dataset.reconcile import _dataset_files, check_files, reconcile
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.dataset.shard_file import unwritable
from beam_jobs.dataset.topup import Prepared, apply_change, prepare_change
from beam_jobs.jobs.text.subwords import Subwords
from beam_jobs.jobs.text.tokens import vocabulary_file
from beam_jobs.packages import versions
from beam_jobs.plan.shards import Plan
from beam_jobs.plan.summary import Summary
from beam_jobs.records.statistics import Statistics
from beam_jobs.sources.classes import Names
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import clear_staging, list_files, write_file
from readers.format.manifest import MANIFEST, TOKENIZER, VOCABULARY, Manifest, Split
from readers.format.schema import Schema


class TokenFiles(NamedTuple):
    """What stands beside the shards of texts with tokens.

    Attributes:
        vocabulary: All words by id; empty without words.
        tokenizer: The text of `tokenizer.json`; empty without subwords.
    """

    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""


class Written(NamedTuple):
    """What is known of a dataset once its shards are written.

    Attributes:
        plan: Packed.
        results: Of every shard.
        statistics: (split, `Statistics`).
        names: Of classes, by feature.
        tokens: `TokenFiles`.
        summary: Of all records.
        schema: Of every record.
    """

    plan: beam.PCollection
    results: beam.PCollection
    statistics: beam.PCollection
    names: beam.PCollection
    tokens: beam.PCollection
    summary: beam.PCollection
    schema: beam.PCollection


class _MergeStatistics(beam.CombineFn):
    """Merges statistics whose features are known to them alone."""

    def create_accumulator(self) -> Statistics | None:
        return None

    def add_input(self, accumulator: Statistics | None, element: Statistics) -> Statistics:
        merged = accumulator or element.empty_copy()
        merged.merge(element)
        return merged

    def merge_accumulators(self, accumulators: Iterable[Statistics | None]) -> Statistics | None:
        merged: Statistics | None = None
        for accumulator in accumulators:
            if accumulator:
                merged = self.add_input(merged, accumulator)
        return merged

    def extract_output(self, accumulator: Statistics | None) -> Statistics | None:
        return accumulator


def _duplicates(summary: Summary) -> list[int]:
    return [split.duplicates for split in summary.splits]


class _Commit(beam.DoFn):
    """Reconciles, and writes the vocabulary and at last the manifest."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def process(
        self,
        _: Any,
        plan: bytes,
        results: list[ShardResult],
        changed: list[ShardResult],
        statistics: list[tuple[int, Statistics]],
        names_of: Names,
        tokens: TokenFiles,
        duplicates: list[int],
        schema: Schema,
    ) -> Iterator[Manifest]:
        output = self._output
        names = output.placement.splits.names
        counted = {split: values.records for split, values in statistics}
        splits = reconcile(Plan.unpack(plan), [*results, *changed], counted, names, output.balance)
        figures = {
            names[split]: {output.stored.get(n, n): f for n, f in values.to_json().items()}
            for split, values in statistics
        }
        every = [result for mine in splits for result in mine]
        manifest = Manifest(
            schema=renamed_schema(schema, output.stored),
            splits={
                name: Split(
                    tuple(result.shard for result in mine if result.shard),
                    sum(result.rejected for result in mine),
                    figures.get(name, {}),
                    dropped,
                )
                for name, mine, dropped in zip(names, splits, duplicates, strict=True)
            },
            label_names=names_of.get(LABEL, ()),
            class_names={
                output.stored.get(n, n): found for n, found in names_of.items() if n != LABEL
            },
            vocabulary=len(tokens.vocabulary),
            tokenizer=Subwords(tokens.tokenizer).size if tokens.tokenizer else 0,
            options=output.options,
            versions=versions(*(["tokenizers"] if tokens.tokenizer else [])),
        )
        with unwritable(output.directory, MANIFEST):
            found = list_files(output.directory)  # Once: a store counts, and charges for, listings.
            check_files(output.directory, every, found)
            if tokens.vocabulary:
                write_file(output.directory, VOCABULARY, vocabulary_file(tokens.vocabulary))
            if tokens.tokenizer:
                write_file(output.directory, TOKENIZER, tokens.tokenizer.encode())
            remove_leftovers(output.directory, _dataset_files(manifest, every, names), found)
            write_file(output.directory, MANIFEST, manifest.to_bytes())
            clear_staging(output.directory, found)
        yield manifest


class CommitDataset(beam.PTransform):
    """`Written` -> Manifest.

    Args:
        output: The dataset.
    """

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def expand(self, written: Written) -> beam.PCollection:
        merged = written.statistics | "MergeStatistics" >> beam.CombinePerKey(_MergeStatistics())
        duplicates = written.summary | "Duplicates" >> beam.Map(_duplicates)
        changed = written.results | "TopUp" >> TopUp(self._output)
        return (
            written.plan.pipeline
            | "Last" >> beam.Create([None])
            | "Commit"
            >> beam.ParDo(
                _Commit(self._output),
                AsSingleton(written.plan),
                AsList(written.results),
                AsList(changed),
                AsList(merged),
                AsSingleton(written.names),
                AsSingleton(written.tokens),
                AsSingleton(duplicates),
                AsSingleton(written.schema),
            )
        )


class _PlanChanges(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._output = output

    def process(self, _: Any, results: list[ShardResult]) -> Iterator[Change]:
        for change in plan_changes(self._output, results):
            Metrics.counter("shards", "records_moved").inc(change.incoming)
            yield change


class _Prepare(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, change: Change) -> Iterator[Prepared]:
        with unwritable(self._directory, change.name):
            yield prepare_change(self._directory, change)


class _Apply(beam.DoFn):
    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, prepared: Prepared, _: int) -> Iterator[ShardResult]:
        with unwritable(self._directory, prepared.change.name):
            yield apply_change(self._directory, prepared)


class TopUp(beam.PTransform):
    """PCollection of all shard results -> PCollection of those of shards that had to change.

    Args:
        output: The dataset, and what its shards are balanced by.
    """

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def expand(self, results: beam.PCollection) -> beam.PCollection:
        prepared = (
            results.pipeline
            | "AllWritten" >> beam.Create([None])
            | "PlanMoves" >> beam.ParDo(_PlanChanges(self._output), AsList(results))
            | "SpreadChanges" >> beam.Reshuffle()
            | "CopyMoved" >> beam.ParDo(_Prepare(self._output))
        )
        # No shard changes before the last record is copied out of its donor.
        all_copied = prepared | "AllCopied" >> beam.combiners.Count.Globally()
        return (
            prepared
            | "SpreadCopied" >> beam.Reshuffle()
            | "Move" >> beam.ParDo(_Apply(self._output), AsSingleton(all_copied))
        )
