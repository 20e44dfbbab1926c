"""The two passes over files that hold several records, or are members of a streamed archive.

Nothing here imports Beam.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.passes import EncodedRecords, EncodingPlan, FirstPass, FoundRecords, SecondPass
from beam_jobs.jobs.protocols import FileJob, Learns, Part, PartsJob, RecordJob
from beam_jobs.jobs.record import (
    MORE_FRAMES,
    UNANNOTATED,
    SourceValues,
    source_values,
    whole_record,
)
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import OnReject, Reject, Stage
from beam_jobs.sources.chunks import Task
from beam_jobs.sources.labels import Label
from beam_jobs.sources.source import Source
from beam_jobs.storage.ahead import Read
from beam_jobs.storage.objects import reading_ahead

# Bytes of encoded records that are handed over at a time.
_BATCH_BYTES = 16 << 20

# Parts of a file whose splits are decided together.
_PARTS = 256


class FilePart(NamedTuple):
    """A whole file as its only part.

    Attributes:
        job: Defines the records.
        source: The file.
        content: Reads its bytes, once.
    """

    job: PartsJob
    source: Source
    content: Callable[[], bytes]
    labels: None = None
    rejects: tuple[Reject, ...] = ()

    @property
    def place(self) -> str:
        return self.source.file

    def planned(self) -> list[tuple[str, int]]:
        return self.job.parts_of(self.source, self.content())

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        return self.job.records_of(self.source, self.content())


class _Placed(NamedTuple):
    """Parts of a file.

    Attributes:
        parts: (part, what its source states, its split: a scalar of NumPy).
        rejects: Parts that cannot become records.
    """

    parts: list[tuple[Part, SourceValues, Any]]
    rejects: list[Reject]


def _files(job: PartsJob, task: Task) -> Iterator[tuple[Source, bytes | None]]:
    """Yields the files of a task, and the bytes of those that are members of a packed archive."""
    sources = [chunk.source for chunk in task.chunks]
    with reading_ahead(itertools.chain.from_iterable(map(job.inputs.reads, sources))):
        for source in sources:
            if source.packed and not source.error:
                yield from job.unpacked(source)
            else:
                yield source, None


def _content(job: PartsJob, source: Source, data: bytes | None) -> bytes:
    """The bytes of a file, which may be known."""
    return job.inputs.read(source) if data is None else data


def _placed(job: PartsJob, rules: SplitRules, task: Task) -> Iterator[_Placed]:
    """Yields the parts of all files of a task, some hundreds at a time."""
    for source, data in _files(job, task):
        read = functools.cache(functools.partial(_content, job, source, data))
        parts = job.parts_in(source, read)
        try:
            while some := list(itertools.islice(parts, _PARTS)):
                yield _place(job, rules, some)
        except RejectError as error:
            yield _Placed([], [Reject.of(source.key, "read", error)])


def _place(job: PartsJob, rules: SplitRules, parts: list[Part]) -> _Placed:
    """The parts, each with its split."""
    stated: list[tuple[Part, SourceValues]] = []
    rejects = []
    for part in parts:
        try:
            stated.append((part, source_values(job, part.source, labelled=part.labels is not None)))
        except RejectError as error:
            rejects.append(Reject.of(part.source.key, "read", error))
    splits, errors = rules.splits_of(
        [part.place.encode() for part, _ in stated],
        [part.source.row for part, _ in stated],
        [values.label for _, values in stated],
    )
    rejects += (Reject.of(stated[i][0].source.key, "read", errors[i]) for i in errors)
    placed = [
        (part, values, splits[number])
        for number, (part, values) in enumerate(stated)
        if number not in errors
    ]
    return _Placed(placed, rejects)


@dataclass(frozen=True, kw_only=True)
class FileFirstPass(FirstPass):
    """Task -> keys and labels of the records in files.

    Attributes:
        job: Defines the records.
    """

    job: PartsJob

    def found(self, task: Task) -> Iterator[FoundRecords]:
        for placed in _placed(self.job, self.rules, task):
            yield _found(placed)


def _found(placed: _Placed) -> FoundRecords:
    keys: list[bytes] = []
    splits: list[Any] = []
    sizes: list[int] = []
    labels: list[Label | None] = []
    rejects, classes = placed.rejects, []
    for part, values, split in placed.parts:
        try:
            planned = part.planned()
        except RejectError as error:
            rejects.append(Reject.of(part.source.key, "read", error))
            if values.label is not None:
                classes.append(values.label)
            continue
        rejects += part.rejects
        keys += (key.encode() for key, _ in planned)
        sizes += (size for _, size in planned)
        splits += [split] * len(planned)
        labels += [values.label] * len(planned) if part.labels is None else part.labels
    every = np.array(splits) if splits else np.empty(0, np.uint8)
    return FoundRecords(keys, every, np.array(sizes, np.int64), labels, rejects, classes)


@dataclass(frozen=True)
class FileSecondPass(SecondPass):
    """Task -> the encoded records in files.

    Attributes:
        job: Defines the records.
    """

    job: PartsJob

    def encoded(self, task: Task, encoder: RecordEncoder) -> Iterator[EncodedRecords]:
        batch = _Batch()
        for placed in _placed(self.job, self.plan.rules, task):
            batch.rejects += placed.rejects
            for part, values, split in placed.parts:
                for _ in self._add(batch, part, values, int(split), encoder):
                    # Windows may take many times the bytes of a file.
                    if batch.size >= _BATCH_BYTES:
                        yield batch.take()
        yield batch.take()

    def _add(
        self, batch: _Batch, part: Part, values: SourceValues, split: int, encoder: RecordEncoder
    ) -> Iterator[None]:
        """Adds the records of a part to a batch, one at a time."""
        done, labels = 0, part.labels
        try:
            for key, record in part.records():
                if labels is not None:
                    values = values._replace(label=labels[done])
                facts = record.pop(MORE_FRAMES, False), record.pop(UNANNOTATED, False)
                whole = whole_record(record, key, values, self.class_ids)
                batch.add(key, split, encoder.encode(split, whole, *facts))
                done += 1
                yield
            batch.rejects += part.rejects
        except (RejectError, ValueError) as error:
            batch.fail(part, split, done, error)


@dataclass
class _Batch:
    """Encoded records that are handed over together, and rejects."""

    keys: list[bytes] = field(default_factory=list)
    splits: list[int] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    late: list[tuple[Reject, int]] = field(default_factory=list)
    size: int = 0

    def take(self) -> EncodedRecords:
        """Returns what was added, and empties the batch."""
        splits = np.array(self.splits, np.uint8)
        taken = EncodedRecords(self.keys, splits, self.frames, self.rejects, self.late)
        self.keys, self.splits, self.frames, self.rejects, self.late = [], [], [], [], []
        self.size = 0
        return taken

    def add(self, key: str, split: int, frame: bytes) -> None:
        self.keys.append(key.encode())
        self.splits.append(split)
        self.frames.append(frame)
        self.size += len(frame)

    def fail(self, part: Part, split: int, done: int, error: Exception) -> None:
        """Rejects a part, or if the first pass has found its records, those that are not done."""
        try:
            planned = part.planned()
        except RejectError as reason:
            self.rejects.append(Reject.of(part.source.key, "read", reason))
            return
        stage: Stage = "decode" if isinstance(error, RejectError) else "encode"
        self.rejects += part.rejects
        self.late += ((Reject.of(key, stage, error), split) for key, _ in planned[done:])


class FilesInParts(RecordJob):
    """The answers to `RecordJob` that jobs of images and recordings share."""

    learns: ClassVar[Learns] = None
    tokenizer: ClassVar[str] = ""
    vocabulary: ClassVar[tuple[bytes, ...]] = ()

    def as_file_job(self) -> FileJob | None:
        return None if self.has_windows or self.inputs.packed else cast(PartsJob, self)

    def reads(self, source: Source) -> Iterator[Read]:
        """Yields what `load` reads of stores; by default it is the file."""
        return self.inputs.reads(source)

    def class_reads(self, source: Source) -> Iterator[Read]:
        """Yields what `classes_of` reads of stores; by default it is nothing."""
        return iter(())

    def parts_in(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        """Yields the parts of a file; by default it is one."""
        yield FilePart(cast(PartsJob, self), source, content)

    def first_pass(self, rules: SplitRules, on_reject: OnReject, tokenizer: str = "") -> FirstPass:
        return FileFirstPass(rules=rules, on_reject=on_reject, job=cast(PartsJob, self))

    def second_pass(self, plan: EncodingPlan) -> SecondPass:
        return FileSecondPass(plan, cast(PartsJob, self))
