"""The interface of jobs to the pipeline."""

from __future__ import annotations

import abc
import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from beam_jobs.dataset.output import Output
from beam_jobs.errors import UsageError
from beam_jobs.jobs.encodings import NONE, Encodings, with_encodings
from beam_jobs.jobs.near import Compared, Near, Sketched
from beam_jobs.jobs.passes import FirstPass, Learned, SecondPass
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.encode import Record
from beam_jobs.records.pieces import Divisible
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, RangeCount, Task, batch_chunks
from beam_jobs.sources.extra_features import ExtraFeature
from beam_jobs.sources.inputs import Inputs
from beam_jobs.sources.labels import LABEL, Labels, Names
from beam_jobs.sources.source import Label, Source
from beam_jobs.storage.files import reading_ahead
from beam_jobs.storage.listing import ALL, Span
from readers.files.stores.ahead import Read
from readers.format.schema import Feature, Schema


def complete_schema(
    own: Mapping[str, Feature],
    labels: Labels,
    extras: Iterable[ExtraFeature],
    encodings: Encodings = NONE,
    compressed: Mapping[str, Collection[str]] = NONE,
) -> Schema:
    """The schema of a job's records: their own features, then key, label and extra columns.

    `compressed` has the encodings of images that the job can give some features.

    Raises:
        UsageError: Two features have the same name, or a chosen encoding does not fit.
    """
    features = {**own, "key": Feature("string")}
    if labels.feature:
        features[LABEL] = labels.feature
    for extra in extras:
        if extra.name in features:
            raise UsageError(
                f"--extra_features {extra.name}: the records have a feature of this name; rename "
                "the column"
            )
        features[extra.name] = extra.feature
    return Schema(with_encodings(features, encodings, compressed))


def count_ranges(
    inputs: Inputs, count: Callable[[Inputs, Chunk], RangeCount], task: Task
) -> list[RangeCount]:
    """Counts the lines or records of each range of a task."""
    with reading_ahead(itertools.chain.from_iterable(map(inputs.range_reads, task.chunks))):
        return [count(inputs, chunk) for chunk in task.chunks]


@dataclass(frozen=True)
class LearnWords:
    """The first pass counts the words of a vocabulary, of at most `size` ids, including the two reserved ones."""

    size: int


@dataclass(frozen=True)
class LearnSubwords:
    """A tokenizer is trained on a sample of the texts, in a separate pass.

    Attributes:
        size: The maximum number of ids.
        sampler: Returns a function that samples a task, given the rules of splits and the size of
            all inputs in bytes.
    """

    size: int
    sampler: Callable[[SplitRules, int], Callable[[Task], Any]]


@dataclass(frozen=True)
class LearnSchema:
    """The schema is learned in the first pass.

    Attributes:
        empty: Makes an empty learner, into which those of all first passes are merged.
        schema_of: Returns the schema, from the merged learner and the features that determine splits.
    """

    empty: Callable[[], Divisible]
    schema_of: Callable[[Any, Collection[str]], Schema]


# What a job learns from all its records before it encodes the first one; None for nothing.
Learns = LearnWords | LearnSubwords | LearnSchema | None


class Part(Protocol):
    """A file, or a part of it, whose records share a split."""

    @property
    def source(self) -> Source:
        """The source, with its key, its columns, and the reason if it cannot become records."""

    @property
    def place(self) -> str:
        """The text whose hash gives its split."""

    @property
    def labels(self) -> Sequence[Label] | None:
        """The label of each record; None if `source` states that of all."""

    @property
    def rejects(self) -> Sequence[Reject]:
        """The part's records that cannot be written and are not among the others."""

    def planned(self) -> list[tuple[str, int]]:
        """(key, approximate bytes in its shard) of each record.

        Raises:
            RejectError: The part cannot become records.
        """

    def records(self) -> Iterator[tuple[str, Record]]:
        """Yields (key, features) of each record, in the order of `planned`.

        Raises:
            RejectError: The part cannot become records.
            UsageError: The records do not fit those of other files.
        """


@dataclass(frozen=True)
class Job(abc.ABC):
    """A job whose files are read twice: to plan their records, and to encode them.

    Attributes:
        inputs: Where the records come from.
        class_names: Names of classes that are known before any record is read, by feature.
        schema: The schema of the records, or a placeholder if it is learned from them.
        learns: What the job learns from all records before it encodes the first one.
        tokenizer: The contents of a given tokenizer's file; empty without one.
        vocabulary: All words of a given vocabulary, in the order of their ids; empty without one.
    """

    inputs: Inputs

    if TYPE_CHECKING:  # Dataclass fields in some jobs, properties in others.

        @property
        def class_names(self) -> Names: ...
        @property
        def schema(self) -> Schema: ...
        @property
        def learns(self) -> Learns: ...
        @property
        def tokenizer(self) -> str: ...
        @property
        def vocabulary(self) -> tuple[bytes, ...]: ...

    def sources(self, pattern: str, limit: int | None = None) -> Iterator[Source]:
        """Yields the sources that a pattern matches, of at most `limit` files and archives, the first ones by name."""
        return self.inputs.sources(pattern, limit)

    def sources_in(self, pattern: str, span: Span) -> Iterator[Source]:
        """Yields the sources in a span of a pattern."""
        job = self if span == ALL else replace(self, inputs=replace(self.inputs, span=span))
        return job.sources(pattern)

    def tasks(self, pattern: str, span: Span) -> Iterator[Task]:
        """Yields the tasks of a span of a pattern: numbered chunks, or unnumbered ranges of one file."""
        # Whole files need not be read here, so only their number fills a task.
        task_bytes = sys.maxsize if self.whole_files else self.inputs.task_bytes
        chunks = itertools.chain.from_iterable(map(self.chunks, self.sources_in(pattern, span)))
        for _, alike in itertools.groupby(chunks, lambda c: (not c.first) and c.source.key):
            yield from batch_chunks(alike, task_bytes)

    def chunks(self, source: Source) -> Iterator[Chunk]:
        """Yields the pieces of a source that tasks read: the whole of it unless a job cuts it."""
        yield Chunk.whole(source)

    @abc.abstractmethod
    def first_pass(self, rules: SplitRules, tokenizer: str = "") -> FirstPass:
        """The pass that finds the records.

        Args:
            rules: Determines the split of each record.
            tokenizer: The contents of the tokenizer's file; empty without subwords.
        """

    @abc.abstractmethod
    def second_pass(self, output: Output, learned: Learned) -> SecondPass:
        """The pass that encodes the records."""

    @property
    def has_windows(self) -> bool:
        """Whether a source may give several records, all in one split."""
        return False

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about all inputs, which the manifest states with the options."""
        return {}

    def decoded(self) -> Job:
        """The job with pixels where its records have encoded images, for a function that takes them.

        Raises:
            UsageError: A function cannot take the records.
        """
        return self

    @property
    def record_rate(self) -> float | None:
        """Samples per second of the records' signals; None without signals, or if unknown."""
        return None

    @property
    def record_channels(self) -> int | None:
        """The number of channels of the records' signals or image; None without these, or if it differs."""
        return None

    @property
    def whole_files(self) -> bool:
        """Whether each record is a whole file, so that references can be shuffled in place of records."""
        return False

    def range_counter(self) -> Callable[[Task], list[RangeCount]] | None:
        """Counts what is in chunks without a number; None if all chunks have one."""
        return None

    @property
    @abc.abstractmethod
    def compared(self) -> Compared:
        """The features by which records are compared with each other.

        Raises:
            UsageError: No feature can be compared.
        """

    @abc.abstractmethod
    def sketcher(self, near: Near, rules: SplitRules) -> Callable[[Task], Sketched]:
        """Computes the sketches with which near duplicates are found."""

    def without_tokenizer(self) -> Job:
        """The job without its tokenizer, for steps that do not need it.

        Beam pickles a job anew for each step, which takes seconds for a tokenizer of megabytes.
        """
        nothing: dict[str, Any] = {"tokenizer": ""}
        return replace(self, **nothing) if self.tokenizer else self

    def unlearned(self) -> Job:
        """The job with records of the same form for which nothing has to be learned."""
        return self


class FileJob(Job):
    """A job whose files are read whole, and give one record each, or several."""

    learns: ClassVar[Learns] = None
    tokenizer: ClassVar[str] = ""
    vocabulary: ClassVar[tuple[bytes, ...]] = ()

    if TYPE_CHECKING:  # Dataclass fields.

        @property
        def labels(self) -> Labels: ...
        @property
        def extras(self) -> tuple[ExtraFeature, ...]: ...

    def reads(self, source: Source) -> Iterator[Read]:
        """Yields the reads of `load` in stores, in its order; by default the file."""
        return self.inputs.reads(source)

    def class_reads(self, source: Source) -> Iterator[Read]:
        """Yields the reads of `classes_of` in stores, in its order; by default none."""
        return iter(())

    @property
    def has_classes(self) -> bool:
        """Whether `classes_of` may find any."""
        return False

    def classes_of(self, source: Source) -> Mapping[str, Iterable[str]]:
        """The names of the classes in a record, by feature, by default none; `label` is not among them.

        Raises:
            RejectError: The source cannot become a record.
        """
        return {}

    @abc.abstractmethod
    def load(self, source: Source) -> Record:
        """The job's own features of the record of a file, without key, label and extra columns.

        Classes are given by name.

        Raises:
            RejectError: The file cannot become a record.
            UsageError: The record does not fit the other records.
        """

    @abc.abstractmethod
    def parts_in(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        """Yields the parts of a file; `content` reads its bytes, once, and raises RejectError if it cannot be read.

        Raises:
            RejectError: The file cannot become records.
        """

    def unpacked(self, source: Source) -> Iterator[tuple[Source, bytes]]:
        """Yields the members of a `.tar.gz` and their bytes."""
        return self.inputs.unpacked(source)

    @abc.abstractmethod
    def parts_of(self, source: Source, data: bytes) -> list[tuple[str, int]]:
        """(key, approximate bytes in its shard) of each record of a file.

        Raises:
            RejectError: The file cannot become records.
        """

    @abc.abstractmethod
    def records_of(self, source: Source, data: bytes) -> Iterator[tuple[str, Record]]:
        """Yields (key, features) of each record of a file, in the order of `parts_of`.

        Raises:
            RejectError: The file cannot become records.
            UsageError: The records do not fit those of other files.
        """


def file_job(job: Job) -> FileJob | None:
    """The job itself if each of its records is a whole file, else None."""
    return job if isinstance(job, FileJob) and job.whole_files else None
