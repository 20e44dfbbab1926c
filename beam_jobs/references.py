"""The pipeline of jobs whose record is a file: references are shuffled, bytes are not.

Keys travel; the writer of a shard opens, decodes and encodes each file of its shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton, TaggedOutput

from beam_jobs.assign import Plan
from beam_jobs.blocks import Block, BlockBuilder
from beam_jobs.commit import CommitDataset
from beam_jobs.encode import STATISTICS, RecordEncoder, check_crc32c
from beam_jobs.errors import RejectError
from beam_jobs.files import NOT_UTF8, Inputs, is_utf8
from beam_jobs.group import GroupByShard
from beam_jobs.labels import LabelIds, Labels
from beam_jobs.output import Output
from beam_jobs.plan import PlanShards
from beam_jobs.rejects import Reject
from beam_jobs.shard_writer import ShardResult, ShardWriter, check_records
from beam_jobs.summary import SAMPLE, Summary, label_names_of
from readers.format.example import Encoder
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES


class FileJob(Protocol):
    """A job whose record is a file."""

    @property
    def inputs(self) -> Inputs:
        """The files."""

    @property
    def labels(self) -> Labels:
        """Where their labels come from."""

    def load(self, key: str) -> dict[str, Any]:
        """The features of one file, without `key` and `label`.

        Raises:
            RejectError: The file cannot become a record.
            UsageError: It can, but does not fit the others.
        """


def load_record(job: FileJob, key: str, ids: LabelIds) -> dict[str, Any]:
    """The whole record of a file.

    Raises:
        RejectError, UsageError: As `FileJob.load`.
    """
    if not is_utf8(key):
        raise RejectError(NOT_UTF8)
    record = job.load(key)
    record["key"] = key
    label = job.labels.of(key)
    if label is not None:
        record["label"] = ids[label]
    return record


class _ListFiles(beam.DoFn):
    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._placement = job, output.placement

    def process(self, pattern: str) -> Iterator[bytes]:
        builder = BlockBuilder()
        placement = self._placement
        found = 0
        for key, _ in self._job.inputs.files(pattern):
            found += 1
            payload = key.encode("utf-8", "surrogateescape")
            block = builder.add(placement.order(key), placement.split(key), payload)
            if block:
                yield block
        left = builder.flush()
        if left:
            yield left
        Metrics.counter("files", "found").inc(found)


class _Summarise(beam.DoFn):
    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._splits = job, len(output.num_shards)

    def process(self, packed: bytes) -> Iterator[Summary]:
        block = Block.unpack(packed)
        keys = _keys(block)
        summary = Summary.empty(self._splits)
        summary.add_block(block)
        labels = (self._job.labels.of(key) for key in keys if is_utf8(key))
        summary.add_labels({label for label in labels if label is not None})
        smallest = np.argsort(block.hashes)[:SAMPLE].tolist()
        summary.add_sample((int(block.hashes[row]), keys[row]) for row in smallest)
        yield summary


def _keys(block: Block) -> list[str]:
    return [payload.decode("utf-8", "surrogateescape") for payload in block.payloads]


class _Measure:
    """Mean bytes of some records, framing included; None when none can be loaded."""

    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._schema = job, output.schema

    def __call__(self, keys: list[str]) -> float | None:
        encoder = Encoder(self._schema)
        sizes = []
        for key in keys:
            record: dict[str, Any] = {"key": key}
            if "label" in self._schema:
                record["label"] = 0
            try:
                record |= self._job.load(key)
                sizes.append(len(encoder.encode(record)) + HEADER_BYTES + FOOTER_BYTES)
            except (RejectError, ValueError):
                continue  # The shard's writer will list it.
        return sum(sizes) / len(sizes) if sizes else None


class _WriteReferences(beam.DoFn):
    def __init__(self, job: FileJob, output: Output) -> None:
        self._job, self._output = job, output

    def setup(self) -> None:
        check_crc32c()

    def process(
        self, element: tuple[int, Iterable[bytes]], plan: bytes, names: tuple[str, ...]
    ) -> Iterator[ShardResult | TaggedOutput]:
        key, packed = element
        writer = ShardWriter(self._output, Plan.unpack(plan), key)
        blocks = [Block.unpack(block) for block in packed]
        hashes = np.concatenate([block.hashes for block in blocks])
        payloads = [payload for block in blocks for payload in block.payloads]
        order = sorted(range(len(payloads)), key=lambda row: (hashes[row], payloads[row]))
        keys = [payloads[row] for row in order]
        check_records(hashes[order], keys, writer.name, writer.expected)
        encoder = RecordEncoder(self._output)
        yield writer.write(self._outcomes(keys, writer.split, encoder, LabelIds(names)), known=0)
        for statistics in encoder.statistics():
            yield TaggedOutput(STATISTICS, statistics)

    def _outcomes(
        self, keys: list[bytes], split: int, encoder: RecordEncoder, ids: LabelIds
    ) -> Iterator[bytes | Reject]:
        for encoded_key in keys:
            key = encoded_key.decode("utf-8", "surrogateescape")
            try:
                yield encoder.encode(split, load_record(self._job, key, ids))
            except RejectError as error:
                yield Reject.of(key, "decode", error)
            except ValueError as error:
                yield Reject.of(key, "encode", error)


class WriteFiles(beam.PTransform):
    """The whole pipeline of a `FileJob`, from patterns to a PCollection of one Manifest.

    Args:
        job: What a record is, and how to load it.
        output: The dataset.
    """

    def __init__(self, job: FileJob, output: Output) -> None:
        super().__init__()
        self._job, self._output = job, output

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        job, output = self._job, self._output
        blocks = (
            pipeline
            | "Patterns" >> beam.Create(job.inputs.patterns)
            | "List" >> beam.ParDo(_ListFiles(job, output))
            | "Spread" >> beam.Reshuffle()
        )
        summaries = blocks | "Summarise" >> beam.ParDo(_Summarise(job, output))
        plan, summary = (summaries, blocks) | "Plan" >> PlanShards(output, _Measure(job, output))
        names = summary | "LabelNames" >> beam.Map(label_names_of)
        written = (
            (blocks, plan)
            | "Group" >> GroupByShard()
            | "Write"
            >> beam.ParDo(
                _WriteReferences(job, output), AsSingleton(plan), AsSingleton(names)
            ).with_outputs(STATISTICS, main="results")
        )
        nothing = pipeline | "NoVocabulary" >> beam.Create([()])
        return (plan, written["results"], written[STATISTICS], names, nothing) | CommitDataset(
            output
        )
