"""The end of a job: proof that nothing was lost, and then the manifest."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import metadata
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsList, AsSingleton

from beam_jobs.assign import Plan
from beam_jobs.errors import DataError, UsageError
from beam_jobs.merge import MergeFn
from beam_jobs.output import Output
from beam_jobs.shard_writer import ShardResult
from beam_jobs.shards import STAGING, write_file
from beam_jobs.statistics import Statistics
from beam_jobs.vocabulary import vocabulary_file
from readers.format.manifest import MANIFEST, VOCABULARY, Manifest, Shard, Split, join


def reconcile(
    plan: Plan, results: Iterable[ShardResult], names: tuple[str, ...]
) -> list[tuple[tuple[Shard, ...], int]]:
    """The (shards, rejected) of every split, after proving that nothing was lost.

    Args:
        plan: What was found.
        results: What every shard's writer did; a repeated one is taken once.
        names: Of the splits.

    Raises:
        DataError: A shard is missing, found is not written + rejected, or nothing was written.
    """
    by_shard = {(result.split, result.index): result for result in results}
    splits = []
    for number, (split, name) in enumerate(zip(plan.splits, names, strict=True)):
        mine = [by_shard[key] for key in sorted(by_shard) if key[0] == number]
        shards = tuple(result.shard for result in mine if result.shard)
        written = sum(shard.records for shard in shards)
        rejected = sum(result.rejected for result in mine)
        found = split.records + split.rejected
        if len(shards) != split.shards or found != written + rejected:
            raise DataError(
                f"split {name}: found {found} records, written {written}, rejected {rejected}; "
                f"{len(shards)} of {split.shards} shards arrived. The runner lost some: no "
                "dataset was written, run the job again"
            )
        splits.append((shards, rejected))
    if not any(shard.records for shards, _ in splits for shard in shards):
        rejects = [r.first_reject for r in by_shard.values() if r.first_reject]
        if not rejects:
            raise UsageError("the inputs hold no record: no dataset was written")
        raise DataError(
            f"all {sum(rejected for _, rejected in splits)} records were rejected, "
            f"no dataset was written; the first: {min(rejects)}"
        )
    return splits


def check_sizes(directory: str, shards: Iterable[Shard]) -> None:
    """Looks at the outputs themselves: every shard must be there with the size it was written with.

    Raises:
        DataError: One is missing or has another size.
    """
    found = FileSystems.match([join(directory, "*.tfrecord")])[0].metadata_list
    sizes = {metadata.path.rsplit("/", 1)[-1]: metadata.size_in_bytes for metadata in found}
    for shard in shards:
        if sizes.get(shard.file) != shard.bytes:
            raise DataError(
                f"{join(directory, shard.file)}: written with {shard.bytes} bytes, found "
                f"{sizes.get(shard.file, 'no file')}; is the output directory shared by all workers?"
            )


def versions() -> dict[str, str]:
    """The packages that decide what a dataset's bytes are."""
    packages = ("beam-shards", "apache-beam", "numpy", "pillow")
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


class _Commit(beam.DoFn):
    """Reconciles, and writes the vocabulary and at last the manifest."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def process(
        self,
        _: Any,
        plan: bytes,
        results: list[ShardResult],
        statistics: list[tuple[int, Statistics]],
        label_names: tuple[str, ...],
        vocabulary: tuple[bytes, ...],
    ) -> Iterator[Manifest]:
        output = self._output
        names = output.placement.splits.names
        splits = reconcile(Plan.unpack(plan), results, names)
        figures = {names[split]: values.to_json() for split, values in statistics}
        manifest = Manifest(
            schema=output.schema,
            splits={
                name: Split(shards, rejected, figures.get(name, {}))
                for name, (shards, rejected) in zip(names, splits, strict=True)
            },
            label_names=label_names,
            vocabulary=len(vocabulary),
            options=output.options,
            versions=versions(),
        )
        try:
            check_sizes(output.directory, (s for shards, _ in splits for s in shards))
            if vocabulary:
                write_file(output.directory, VOCABULARY, vocabulary_file(vocabulary))
            write_file(output.directory, MANIFEST, manifest.to_bytes())
        except (OSError, BeamIOError) as error:
            raise DataError(f"--output {output.directory}: cannot be written ({error})") from error
        with contextlib.suppress(OSError, BeamIOError):
            FileSystems.delete([join(output.directory, STAGING)])
        yield manifest


class CommitDataset(beam.PTransform):
    """(plan, shard results, statistics by split, label names, vocabulary) -> Manifest.

    Args:
        output: The dataset.
    """

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def expand(self, inputs: tuple[beam.PCollection, ...]) -> beam.PCollection:
        plan, results, statistics, label_names, vocabulary = inputs
        merged = statistics | "MergeStatistics" >> beam.CombinePerKey(
            MergeFn(partial(Statistics, self._output.schema))
        )
        return (
            plan.pipeline
            | "Last" >> beam.Create([None])
            | "Commit"
            >> beam.ParDo(
                _Commit(self._output),
                AsSingleton(plan),
                AsList(results),
                AsList(merged),
                AsSingleton(label_names),
                AsSingleton(vocabulary),
            )
        )
