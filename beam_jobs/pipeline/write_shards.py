"""`WriteShards`: any PCollection of records to a dataset of exactly balanced shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.dataset.generations import begun, prepare
from beam_jobs.dataset.lease import clear_ended, refuse_if_busy
from beam_jobs.dataset.output import DEFAULT_SHARD_SIZE, Output, checked_names, output_of
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import named_as_arguments
from beam_jobs.jobs.passes import Learned
from beam_jobs.packages import check_crc32c
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.shards import PlanShards
from beam_jobs.pipeline.steps import STATISTICS, allow_notebooks, at_end_of_bundle
from beam_jobs.pipeline.write_runs import WriteRuns
from beam_jobs.plan.placement import Existing
from beam_jobs.writing.commit import warn_of_rejects
from beam_jobs.writing.encode import Encoded, RunEncoder
from readers.format.manifest import Manifest
from readers.format.schema import Schema

# Imported here, because pipelines begin with other transforms than `WriteShards`.
allow_notebooks()


def _prepare(output: Output, job: str, folder: str) -> None:
    with named_as_arguments():
        prepare(output, job, folder)
        clear_ended(output.directory, output.run)


class _EncodeRecords(beam.DoFn):
    """(key, features) -> packed indexes of runs of encoded records.

    Other outputs are a summary and the hashes of each block, and statistics: planning needs only
    these small elements, while the records wait for the shuffle.
    """

    SUMMARY, HASHES = "summary", "hashes"

    def __init__(self, output: Output) -> None:
        self._output = output

    def setup(self) -> None:
        check_crc32c()
        self.start_bundle()

    def start_bundle(self) -> None:
        self._records = RunEncoder(self._output)

    def process(self, element: tuple[str, Mapping[str, Any]]) -> Iterator[Any]:
        self._records.add_row(element, None)
        if self._records.encoded.hashes:
            yield from self._outputs(self._records.take())

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(at_end_of_bundle, self._outputs(self._records.finish()))

    def teardown(self) -> None:
        self._records.close()  # Of a bundle that failed.

    def _outputs(self, encoded: Encoded) -> Iterator[Any]:
        yield from (run.pack() for run in encoded.runs)
        yield TaggedOutput(self.SUMMARY, encoded.summary)
        for block in encoded.hashes:
            Metrics.counter("records", "encoded").inc(len(block.hashes))
            yield TaggedOutput(self.HASHES, block.pack())
        for item in encoded.statistics:
            yield TaggedOutput(STATISTICS, item)


def _warned(manifest: Manifest, results: list[ShardResult], directory: str) -> Manifest:
    warn_of_rejects(directory, manifest, results)
    return manifest


class WriteShards(beam.PTransform):
    """PCollection of (key, dict of arrays) -> a dataset of exactly balanced shards.

    The result is a PCollection of one `readers.Manifest`, which exists once the dataset is complete.
    Serialized Examples wait for their shards in `.staging/` of the directory, and only their locators are
    shuffled.

    Args:
        directory: The path or URL of the dataset, on any Beam filesystem; new or empty.
        schema: The features of every record. A `key` feature is filled from the key.
        num_shards, shard_size, splits, seed, max_rejects, overwrite: As for `write`.
        append, existing, label_names, options: As for `write`.

    Raises:
        UsageError: Before the pipeline runs: an argument is wrong, or the directory is not free. While
            it runs: two records have the same key, or the directory cannot be written.
        DataError: While the pipeline runs: a record does not fit the schema, all were rejected, the
            disk is full, or the runner lost records. No manifest is written.

    While the pipeline runs, a runner with separate processes raises its own exception, whose text
    contains the name and the message of the error.

    Example:
        >>> schema = Schema({"x": Feature("float32", [64])})
        >>> with beam.Pipeline() as pipeline:
        ...     pairs = pipeline | beam.Create([("a", {"x": np.zeros(64, np.float32)})])
        ...     manifest = pairs | WriteShards("shards/mine", schema)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schema: Schema,
        num_shards: int | None = None,
        shard_size: int | str = DEFAULT_SHARD_SIZE,
        splits: Mapping[str, float] | None = None,
        seed: int = 0,
        max_rejects: int | float | str = 0,
        overwrite: bool = False,
        append: bool = False,
        existing: Existing = "error",
        label_names: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._label_names = checked_names(label_names)
        how = num_shards, shard_size, splits, seed, max_rejects
        more = overwrite, options, append, existing
        self._output = output_of(directory, schema, *how, *more)

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        # Here, because the pipeline has the options of the store by now.
        with named_as_arguments():
            refuse_if_busy(self._output.directory)
            output = begun(self._output)
        # A dataset has no event time, so windows of the input do not matter.
        records |= "Global" >> beam.WindowInto(GlobalWindows())
        encoded = records | "Encode" >> beam.ParDo(_EncodeRecords(output)).with_outputs(
            _EncodeRecords.SUMMARY, _EncodeRecords.HASHES, STATISTICS, main="runs"
        )
        shards = (encoded[_EncodeRecords.SUMMARY], encoded[_EncodeRecords.HASHES]) | (
            "Plan" >> PlanShards(output, prepare=_prepare)
        )
        learned = Learned(output.schema, output.with_names(self._label_names))
        results = encoded["runs"] | "Shards" >> WriteRuns(output, 1, shards.plan, learned)
        manifest = (results, encoded[STATISTICS]) | CommitDataset(output, shards, learned)
        return manifest | "WarnOfRejects" >> beam.Map(_warned, AsList(results), output.directory)
