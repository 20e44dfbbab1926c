"""`WriteShards`: any PCollection of records to a dataset of exactly balanced shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.dataset.generations import begun, prepare, refuse_newer
from beam_jobs.dataset.lease import clear_ended, refuse_if_busy
from beam_jobs.dataset.output import (
    DEFAULT_SHARD_SIZE,
    Output,
    not_writable,
)
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import UsageError
from beam_jobs.packages import check_crc32c
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.shards import Planned, PlanShards
from beam_jobs.pipeline.steps import STATISTICS, allow_notebooks, at_end_of_bundle
from beam_jobs.pipeline.write_runs import WriteRuns
from beam_jobs.records.spool import Spool
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import make_directory
from beam_jobs.writing.arguments import (
    checked_names,
    named_as_arguments,
    output_of,
    warn_of_rejects,
)
from beam_jobs.writing.encode import EncodedBlock, RunEncoder
from readers.format.manifest import Manifest
from readers.format.schema import Schema

# Imported here, because pipelines begin with other transforms than `WriteShards`.
allow_notebooks()


def _prepare(output: Output, job: str, folder: str) -> None:
    with named_as_arguments():
        prepare(output, job, folder)
        clear_ended(output.directory, output.run)


OnReject = Literal["skip", "fail"]

# The advice for a program whose record does not fit the schema.
_CURE = "make it fit, or pass on_reject='skip' to list such records in rejects/ and write the rest"


class _EncodeRecords(beam.DoFn):
    """(key, features) -> packed indexes of runs of encoded records.

    Other outputs are a summary and the hashes of each block, and statistics: planning needs only
    these small elements, while the records wait for the shuffle.
    """

    SUMMARY, HASHES = "summary", "hashes"

    def __init__(self, output: Output, spool: Spool, on_reject: OnReject) -> None:
        self._output, self._spool, self._on_reject = output, spool, on_reject

    def setup(self) -> None:
        check_crc32c()
        self._ready = False
        self._records: RunEncoder | None = None

    def start_bundle(self) -> None:
        cure = None if self._on_reject == "skip" else _CURE
        self._records = RunEncoder(self._output, self._spool, cure, self._check_directory)

    def process(self, element: tuple[str, Mapping[str, Any]]) -> Iterator[Any]:
        is_pair = isinstance(element, tuple | list) and len(element) == 2
        assert self._records
        for block in self._records.add(*(element if is_pair else (None, element))):
            yield from self._emit(block)

    def finish_bundle(self) -> Iterator[Any]:
        assert self._records
        for block in self._records.finish():
            yield from map(at_end_of_bundle, self._emit(block))
        for item in self._records.statistics():
            yield at_end_of_bundle(TaggedOutput(STATISTICS, item))

    def teardown(self) -> None:
        if self._records:
            self._records.give_up()  # Of a bundle that failed.

    def _check_directory(self) -> None:
        """Prepares the directory before the first file is written: it must be free."""
        if self._ready:
            return
        with named_as_arguments():
            refuse_newer(self._output)
            try:
                make_directory(self._spool.directory)
            except OSError as error:
                raise not_writable(self._output.directory, error) from None
        self._ready = True

    def _emit(self, block: EncodedBlock) -> Iterator[Any]:
        Metrics.counter("records", "encoded").inc(len(block.hashes.hashes))
        yield from (run.pack() for run in block.runs)
        yield TaggedOutput(self.SUMMARY, block.summary)
        yield TaggedOutput(self.HASHES, block.hashes.pack())


class _WarnOfRejects(beam.DoFn):
    """Logs how many records were rejected, once the dataset is complete."""

    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, manifest: Manifest, results: list[ShardResult]) -> Iterator[Manifest]:
        warn_of_rejects(self._directory, manifest, results)
        yield manifest


class WriteShards(beam.PTransform):
    """PCollection of (key, dict of arrays) -> a dataset of exactly balanced shards.

    The result is a PCollection of one `readers.Manifest`, which exists once the dataset is complete.
    Serialized Examples wait for their shards in `.staging/` of the directory, and only their locators are
    shuffled.

    Args:
        directory: The path or URL of the dataset, on any Beam filesystem; new or empty.
        schema: The features of every record. A `key` feature is filled from the key.
        num_shards: The number of shards of every split; None to derive it from `shard_size`.
        shard_size: The approximate size of a shard: a number of bytes, or text such as "128MiB".
        splits: Split names and their shares, which add up to 1; None for only "train".
        seed: Determines the splits and the order of records.
        on_reject: "fail" stops at the first record that does not fit the schema; "skip" lists such
            records in `rejects/`, writes the others, and logs a warning with their number.
        overwrite: Whether a dataset in `directory` may be replaced.
        label_names: Names of the labels by id, for the manifest.
        options: Anything else to record in the manifest, as JSON values.

    Raises:
        UsageError: Before the pipeline runs: an argument is wrong, or the directory is not free. While
            it runs: two records have the same key, or the directory cannot be written.
        DataError: While the pipeline runs: a record does not fit the schema, all were rejected, the
            disk is full, or the runner lost records. No manifest is written.

    While the pipeline runs, a runner with separate processes raises its own exception, whose text
    contains the name and the message of the error.

    Example:
        pairs | WriteShards("shards/mine", schema=Schema({"x": Feature("float32", [64])}))
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        schema: Schema,
        num_shards: int | None = None,
        shard_size: int | str = DEFAULT_SHARD_SIZE,
        splits: Mapping[str, float] | None = None,
        seed: int = 0,
        on_reject: OnReject = "fail",
        overwrite: bool = False,
        label_names: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if on_reject not in ("skip", "fail"):
            raise UsageError(f"on_reject={on_reject!r}: expected 'skip' or 'fail'")
        self._label_names, self._on_reject = checked_names(label_names), on_reject
        self._output = output_of(
            directory, schema, num_shards, shard_size, splits, seed, overwrite, options
        )

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        # Here, because the pipeline has the options of the store by now.
        with named_as_arguments():
            refuse_if_busy(self._output.directory)
            output = begun(self._output)
        spool = Spool(output.staging)
        # A dataset has no event time, so windows of the input do not matter.
        records |= "Global" >> beam.WindowInto(GlobalWindows())
        encoded = records | "Encode" >> beam.ParDo(
            _EncodeRecords(output, spool, self._on_reject)
        ).with_outputs(_EncodeRecords.SUMMARY, _EncodeRecords.HASHES, STATISTICS, main="runs")
        shards = (encoded[_EncodeRecords.SUMMARY], encoded[_EncodeRecords.HASHES]) | (
            "Plan" >> PlanShards(output, prepare=_prepare)
        )
        planned = Planned(
            inputs=encoded["runs"],
            hashes=encoded[_EncodeRecords.HASHES],
            shards=shards,
            names={LABEL: self._label_names},
            schema=output.schema,
        )
        results = (planned.inputs, shards.plan) | "Shards" >> WriteRuns(
            output, 1, spool, output.schema
        )
        manifest = (results, encoded[STATISTICS]) | CommitDataset(output, planned)
        return manifest | "WarnOfRejects" >> beam.ParDo(_WarnOfRejects(output), AsList(results))
