"""The two passes over files that hold several records, or are members of a streamed archive.

Nothing here imports Beam.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.passes import (
    EncodedRecords,
    EncodingPlan,
    FirstPass,
    FoundRecords,
    SecondPass,
    SplitRules,
)
from beam_jobs.jobs.protocols import FileJob, Learns, PartsJob, RecordJob
from beam_jobs.jobs.record import SourceValues, source_values, whole_record
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import OnReject, Reject, Stage
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.labels import Label
from beam_jobs.sources.source import Source

# Bytes of encoded records that are handed over at a time.
_BATCH_BYTES = 16 << 20


def _files(job: PartsJob, task: Task) -> Iterator[tuple[Source, bytes | None]]:
    """Yields the files of a task, and the bytes of those that are members of a packed archive."""
    for chunk in task.chunks:
        source = chunk.source
        if source.packed and not source.error:
            yield from job.unpacked(source)
        else:
            yield source, None


def _read(job: PartsJob, source: Source) -> bytes:
    """The bytes of a file.

    Raises:
        RejectError: It cannot be read.
    """
    try:
        return job.inputs.read(source)
    except OSError as error:
        raise RejectError(f"cannot be read: {error}") from None


def _split(rules: SplitRules, source: Source, label: Label | None) -> Any:
    """The one split of all records of a file, a scalar of NumPy.

    Raises:
        RejectError: The file's name or its row does not state a known split.
    """
    splits, errors = rules.splits_of([source.file.encode()], [source.row], [label])
    if errors:
        raise RejectError(errors[0])
    return splits[0]


@dataclass(frozen=True, kw_only=True)
class FileFirstPass(FirstPass):
    """Task -> keys and labels of the records in files.

    Attributes:
        job: Defines the records.
    """

    job: PartsJob

    def found(self, task: Task) -> Iterator[FoundRecords]:
        for source, data in _files(self.job, task):
            label = None
            try:
                values = source_values(self.job, source)
                split = _split(self.rules, source, values.label)
                label = values.label
                data = _read(self.job, source) if data is None else data
                parts = self.job.parts_of(source, data)
            except RejectError as error:
                yield FoundRecords.of_reject(Reject.of(source.key, "read", error), label)
                continue
            splits = np.full(len(parts), split)
            sizes = np.array([size for _, size in parts], np.int64)
            keys = [key.encode() for key, _ in parts]
            yield FoundRecords(keys, splits, sizes, [values.label] * len(parts), [])


@dataclass(frozen=True)
class FileSecondPass(SecondPass):
    """Task -> the encoded records in files.

    Attributes:
        job: Defines the records.
    """

    job: PartsJob

    def encoded(self, task: Task, encoder: RecordEncoder) -> Iterator[EncodedRecords]:
        for source, data in _files(self.job, task):
            try:
                values = source_values(self.job, source)
                split = int(_split(self.plan.rules, source, values.label))
                data = _read(self.job, source) if data is None else data
            except RejectError as error:
                yield EncodedRecords.of_reject(Reject.of(source.key, "read", error))
                continue
            yield from self._encoded(source, data, split, values, encoder)

    def _encoded(
        self,
        source: Source,
        data: bytes,
        split: int,
        values: SourceValues,
        encoder: RecordEncoder,
    ) -> Iterator[EncodedRecords]:
        """Yields the records of a file in batches: windows may take many times its bytes."""
        keys: list[bytes] = []
        frames: list[bytes] = []
        done = size = 0
        late: list[tuple[Reject, int]] = []
        try:
            for key, record in self.job.records_of(source, data):
                frames.append(
                    encoder.encode(split, whole_record(record, key, values, self.class_ids))
                )
                keys.append(key.encode())
                done, size = done + 1, size + len(frames[-1])
                if size >= _BATCH_BYTES:
                    yield _batch(keys, frames, split)
                    keys, frames, size = [], [], 0
        except (RejectError, ValueError) as error:
            stage: Stage = "decode" if isinstance(error, RejectError) else "encode"
            try:
                planned = [key for key, _ in self.job.parts_of(source, data)]
            except RejectError:
                yield EncodedRecords.of_reject(Reject.of(source.key, "read", error))
                return
            late = [(Reject.of(key, stage, error), split) for key in planned[done:]]
        yield _batch(keys, frames, split)._replace(late=late)


def _batch(keys: list[bytes], frames: list[bytes], split: int) -> EncodedRecords:
    return EncodedRecords(keys, np.full(len(frames), split, np.uint8), frames, [])


class FilesInParts(RecordJob):
    """The answers to `RecordJob` that jobs of images and recordings share."""

    learns: ClassVar[Learns] = None
    tokenizer: ClassVar[str] = ""
    vocabulary: ClassVar[tuple[bytes, ...]] = ()

    def as_file_job(self) -> FileJob | None:
        return None if self.has_windows or self.inputs.packed else cast(PartsJob, self)

    def chunks(self, source: Source) -> Iterator[Chunk]:
        yield Chunk(source, 0, 0, 1, source.size)

    def first_pass(self, rules: SplitRules, on_reject: OnReject, tokenizer: str = "") -> FirstPass:
        return FileFirstPass(rules=rules, on_reject=on_reject, job=cast(PartsJob, self))

    def second_pass(self, plan: EncodingPlan) -> SecondPass:
        return FileSecondPass(plan, cast(PartsJob, self))
