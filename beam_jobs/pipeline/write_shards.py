"""`WriteShards`: any PCollection of records to a dataset of exactly balanced shards."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsList, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from beam_jobs.dataset.generations import begun, prepare, refuse_newer
from beam_jobs.dataset.lease import clear_ended, refuse_if_busy
from beam_jobs.dataset.output import (
    DEFAULT_SHARD_SIZE,
    Output,
    not_writable,
    parse_num_shards,
    parse_size,
    resolve,
)
from beam_jobs.dataset.resume import ShardResult
from beam_jobs.errors import DataError, JobError, UsageError
from beam_jobs.packages import check_crc32c
from beam_jobs.pipeline.commit_dataset import CommitDataset
from beam_jobs.pipeline.planning.shards import Planned, PlanShards
from beam_jobs.pipeline.steps import STATISTICS, allow_notebooks, at_end_of_bundle
from beam_jobs.pipeline.write_runs import WriteRuns
from beam_jobs.plan.placement import Placement, Splits, check_seed
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import (
    Block,
    BlockBuilder,
    frame_checksums,
    frame_lengths,
    pack_record,
    unpack_reject,
)
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.records.runs import RunBuilder
from beam_jobs.records.spool import Spool
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.atomic import make_directory
from readers.format.encode.records import Encoder
from readers.format.manifest import Manifest, join
from readers.format.schema import Feature, Schema

# Imported here, because pipelines begin with other transforms than `WriteShards`.
allow_notebooks()

_logger = logging.getLogger("beam_jobs")

# An option in a message that the command line and `WriteShards` share.
_FLAG = re.compile(r"(?<!\S)--(\w+)")

# Flag -> argument of `WriteShards`; other flags belong to Beam, and keep their names.
_ARGUMENTS = {
    "output": "directory",
    "overwrite": "overwrite=True",
    **{name: name for name in ("num_shards", "seed", "shard_size", "splits")},
}


@contextlib.contextmanager
def _named_as_arguments() -> Iterator[None]:
    """Replaces flags of the command line in an error by the arguments of `WriteShards`."""
    try:
        yield
    except JobError as error:
        message = _FLAG.sub(lambda flag: _ARGUMENTS.get(flag[1], flag[0]), error.message)
        raise type(error)(message) from None


def _prepare(output: Output, job: str, folder: str) -> None:
    with _named_as_arguments():
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
        self._runs = RunBuilder(spool)

    def setup(self) -> None:
        check_crc32c()
        self._ready = False

    def start_bundle(self) -> None:
        self._encoder = RecordEncoder(Encoder(self._output.schema))
        self._builder = BlockBuilder()
        self._runs = RunBuilder(self._spool)

    def process(self, element: tuple[str, Mapping[str, Any]]) -> Iterator[Any]:
        try:
            key, features = element
            if not isinstance(key, str) or not isinstance(features, Mapping):
                raise TypeError
            key.encode("utf-8", "surrogateescape")
        except (TypeError, ValueError):
            raise UsageError(
                f"WriteShards takes (key, features) with a text key and a dict of arrays, got "
                f"{str(element)[:80]!r}"
            ) from None
        placement = self._output.placement
        split = placement.split(key)
        record = dict(features)
        if "key" in self._output.schema:
            record.setdefault("key", key)
        body: bytes | Reject
        row = b""
        try:
            body, row = self._encoder.encode(split, record)
        except ValueError as error:
            body = Reject.of(key, "encode", error)
            if self._on_reject == "fail":
                raise DataError(f"{body}; {_CURE}") from None
        full = self._builder.add(placement.order(key), split, pack_record(key, body, row))
        if full:
            yield from self._emit(full)

    def finish_bundle(self) -> Iterator[Any]:
        if left := self._builder.flush():
            yield from map(at_end_of_bundle, self._emit(left))
        yield from (at_end_of_bundle(run.pack()) for run in self._runs.finish())
        for item in self._encoder.statistics():
            yield at_end_of_bundle(TaggedOutput(STATISTICS, item))

    def teardown(self) -> None:
        self._runs.give_up()  # Of a bundle that failed.

    def _check_directory(self) -> None:
        """Prepares the directory before the first file is written: it must be free."""
        with _named_as_arguments():
            refuse_newer(self._output)
            try:
                make_directory(self._spool.directory)
            except OSError as error:
                raise not_writable(self._output.directory, error) from None
        self._ready = True

    def _emit(self, block: Block) -> Iterator[Any]:
        if not self._ready:
            self._check_directory()
        yield from (run.pack() for run in self._runs.add(block))
        summary = Summary.empty(len(self._output.num_shards))
        frames = frame_lengths(block.payloads)
        for row in np.flatnonzero(frames == 0).tolist():
            summary.add_reject(int(block.splits[row]), unpack_reject(block.payloads[row]))
        good = frames > 0
        checksums = frame_checksums(block.payloads, frames)
        summary.identify(block.hashes[good], checksums[good])
        good_block = Block(
            block.hashes[good], block.splits[good], block.payloads
        ).without_payloads()
        summary.add_block(good_block)
        summary.add_sizes(block.splits, frames)
        Metrics.counter("records", "encoded").inc(len(good_block.hashes))
        yield TaggedOutput(self.SUMMARY, summary)
        yield TaggedOutput(self.HASHES, good_block.pack())


class _WarnOfRejects(beam.DoFn):
    """Logs how many records were rejected, once the dataset is complete."""

    def __init__(self, output: Output) -> None:
        self._directory = output.directory

    def process(self, manifest: Manifest, results: list[ShardResult]) -> Iterator[Manifest]:
        if rejected := manifest.rejected:
            found = rejected + sum(split.records for split in manifest.splits.values())
            _logger.warning(
                "%s of %s records do not fit the schema and were not written; the first: %s; "
                "all are listed in %s/",
                f"{rejected:,}",
                f"{found:,}",
                min(result.first_reject for result in results if result.first_reject),
                join(self._directory, os.path.dirname(manifest.rejects[0])),
            )
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
        splits = splits or {"train": 1}
        _check_arguments(schema, splits, on_reject, options)
        self._label_names, self._on_reject = tuple(label_names), on_reject
        if isinstance(label_names, str) or not all(isinstance(n, str) for n in self._label_names):
            raise UsageError(
                f"label_names {label_names!r:.80}: expected texts, such as ['cat', 'dog']"
            )
        with _named_as_arguments():
            check_seed(seed)
            shares = Splits.parse(",".join(f"{name}={share}" for name, share in splits.items()))
            self._output = Output(
                directory=resolve(os.fspath(directory)),
                schema=schema,
                placement=Placement(seed, shares),
                num_shards=parse_num_shards(num_shards, shares.names),
                shard_size=parse_size(str(shard_size)),
                overwrite=overwrite,
                options=dict(options or {}),
            )

    def expand(self, records: beam.PCollection) -> beam.PCollection:
        # Here, because the pipeline has the options of the store by now.
        with _named_as_arguments():
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


def _check_arguments(
    schema: Any, splits: Any, on_reject: str, options: Mapping[str, Any] | None
) -> None:
    """Checks the arguments of `WriteShards` that no other function checks."""
    if not isinstance(schema, Schema):
        raise UsageError(
            f"schema {schema!r:.80}: expected a Schema, such as "
            "Schema({'x': Feature('float32', (8,))})"
        )
    if not isinstance(splits, Mapping):
        raise UsageError(
            f"splits {splits!r:.80}: expected a dict such as {{'train': 0.8, 'val': 0.2}}"
        )
    if on_reject not in ("skip", "fail"):
        raise UsageError(f"on_reject={on_reject!r}: expected 'skip' or 'fail'")
    try:
        json.dumps(dict(options or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"options: expected JSON values ({error})") from None
    try:
        Encoder(schema)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if "key" in schema and schema["key"] != Feature("string"):
        raise UsageError(f"feature 'key' is {schema['key']}: expected string [], text")
