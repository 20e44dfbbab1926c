"""The end of a job: proof that nothing was lost, and then the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.assign import Plan
from beam_jobs.errors import DataError, UsageError
from beam_jobs.labels import LABEL, Names
from beam_jobs.output import Output, remove_leftovers, renamed_schema
from beam_jobs.output_files import Found, clear_staging, list_files, write_file
from beam_jobs.rejects import rejects_file
from beam_jobs.resume import ShardResult
from beam_jobs.shards import unwritable
from beam_jobs.statistics import Statistics
from beam_jobs.subwords import Subwords
from beam_jobs.summary import Summary
from beam_jobs.topup import TopUp
from beam_jobs.versions import versions
from beam_jobs.vocabulary import vocabulary_file
from readers.format.manifest import (
    INDEX_SUFFIX,
    MANIFEST,
    TOKENIZER,
    VOCABULARY,
    Manifest,
    Shard,
    Split,
    join,
    shard_name,
)
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


def reconcile(
    plan: Plan,
    results: Iterable[ShardResult],
    counted: Mapping[int, int],
    names: tuple[str, ...],
    balance: str = "records",
) -> list[list[ShardResult]]:
    """The results of every split by shard, after proving that nothing was lost.

    Args:
        plan: What was found.
        results: What every shard's writer did; of several for one shard the last one counts.
        counted: Split -> records in its statistics.
        names: Of the splits.
        balance: What shards were balanced by.

    Raises:
        DataError: A shard is missing, found is not written + rejected, shards of a split are not
            balanced, records are missing from the statistics, or nothing was written.
    """
    by_shard = {(result.split, result.index): result for result in results}
    splits = []
    for number, (split, name) in enumerate(zip(plan.splits, names, strict=True)):
        mine = [by_shard[key] for key in sorted(by_shard) if key[0] == number]
        sizes = [result.shard.records for result in mine if result.shard]
        written = sum(sizes)
        rejected = sum(result.rejected for result in mine)
        found = split.records + split.rejected
        known = counted.get(number, 0)
        if len(sizes) != split.shards or found != written + rejected or known != written:
            raise DataError(
                f"split {name}: found {found} records, written {written}, rejected {rejected}, "
                f"{known} in the statistics; {len(sizes)} of {split.shards} shards arrived. The "
                "runner lost or repeated some: no dataset was written, run the job again"
            )
        _check_balance(name, [result.shard for result in mine if result.shard], mine, balance)
        splits.append(mine)
    if not any(result.shard.records for mine in splits for result in mine if result.shard):
        rejects = [result.first_reject for mine in splits for result in mine if result.first_reject]
        if not rejects:
            raise UsageError("the inputs hold no record: no dataset was written")
        raise DataError(
            f"all {sum(result.rejected for mine in splits for result in mine)} records were "
            f"rejected, no dataset was written; the first: {min(rejects)}"
        )
    return splits


def _check_balance(
    name: str, shards: list[Shard], results: list[ShardResult], balance: str
) -> None:
    if not shards:
        return
    unit, allowed, sizes = "records", 1, [shard.records for shard in shards]
    if balance == "bytes":
        unit, sizes = "bytes", [shard.bytes for shard in shards]
        allowed = max(result.largest for result in results)
    if max(sizes) - min(sizes) > allowed:
        raise DataError(
            f"split {name}: shards of {min(sizes)} to {max(sizes)} {unit}, expected to differ by "
            f"{allowed} at most: no dataset was written, run the job again"
        )


def check_files(directory: str, results: Iterable[ShardResult], found: Iterable[Found]) -> None:
    """Looks at the outputs themselves: shards and indices must be there as they were written.

    Args:
        found: All files below the directory.

    Raises:
        DataError: One is missing or has another size.
    """
    start = len(join(directory, ""))
    sizes = {path[start:]: size for path, size in found}
    for result in results:
        if not result.shard:
            continue
        file = result.shard.file
        for name, size in ((file, result.shard.bytes), (file + INDEX_SUFFIX, result.index_bytes)):
            if sizes.get(name) != size:
                raise DataError(
                    f"{join(directory, name)}: written with {size} bytes, found "
                    f"{sizes.get(name, 'no file')}; is the output directory shared by all workers, "
                    "and no other job writing there?"
                )


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


def _dataset_files(
    manifest: Manifest, results: list[ShardResult], names: tuple[str, ...]
) -> set[str]:
    """The names of all files of a dataset; a second attempt at the commit finds its manifest."""
    files = {MANIFEST}
    if manifest.vocabulary:
        files.add(VOCABULARY)
    if manifest.tokenizer:
        files.add(TOKENIZER)
    for result in results:
        if result.shard:
            files |= {result.shard.file, result.shard.file + INDEX_SUFFIX}
        if result.rejected:
            count = len(manifest.splits[names[result.split]].shards)
            files.add(rejects_file(shard_name(names[result.split], result.index, max(count, 1))))
    return files


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
