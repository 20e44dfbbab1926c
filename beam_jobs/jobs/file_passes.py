"""The two passes over files that hold several records, or are members of a streamed archive.

Nothing here imports Beam.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.dataset.output import Output
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.jobs.file_parts import FilePart, PlacedPart, placed_parts, split_sources
from beam_jobs.jobs.job import FileJob, Part
from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FirstPassResult,
    FoundRecords,
    Learned,
    SecondPass,
)
from beam_jobs.jobs.record import complete, source_values
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.encode import RecordEncoder
from beam_jobs.records.rejects import Reject, Stage
from beam_jobs.sources.chunks import Task, file_batches
from beam_jobs.sources.source import Label, Source, identity_of, unpack_reference, with_label
from beam_jobs.storage.files import reading_ahead
from beam_jobs.storage.listing import Span

# Bytes of encoded records that are handed over at a time.
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class FileFirstPass(FirstPass):
    """Task -> keys and labels of the records in files.

    If each file is one record, it need not be read before it is loaded.
    """

    job: FileJob

    def found(self, task: Task) -> Iterator[FoundRecords]:
        if self.job.whole_files:
            references = list(task.references)
            sources = list(map(unpack_reference, references))
            yield self._whole_files(sources, references, task.dropped_rows)
            return
        for parts, rejects in placed_parts(self.job, self.rules, task):
            yield _found(parts, rejects)

    def read_listed(self, pattern: str, span: Span) -> Iterator[FirstPassResult]:
        """Yields the results for the whole files in a span of a pattern, as they are listed; raises as `read` does."""
        for files, references in file_batches(self.job.sources_in(pattern, span)):
            found = self._whole_files(files, references, np.empty(0, np.int64))
            yield self.summarised([found], len(files))

    def _whole_files(
        self, files: list[Source], packed: list[bytes], dropped: np.ndarray
    ) -> FoundRecords:
        """The records of files, which are not opened, given their references and the rows that are dropped."""
        sources, labels, references, rejects = self._stated(files, packed)
        existing = self.rules.placement.skipped([source.key.encode() for source in sources])
        dropped = np.union1d(dropped, existing)
        places = [source.file for source in sources]
        found = split_sources(self.rules, places, sources, labels, dropped, rejects)
        (kept, splits), (_, duplicates) = found
        sources, labels = [sources[row] for row in kept], [labels[row] for row in kept]
        count = len(sources)
        return FoundRecords(
            [source.key.encode() for source in sources],
            splits,
            np.fromiter((source.size for source in sources), np.int64, count),
            labels,
            rejects,
            duplicates=duplicates,
            texts=count,
            class_counts=_class_counts(self.job, sources) if self.job.has_classes else {},
            references=[references[row] for row in kept],
            identities=np.fromiter(map(identity_of, sources), np.int64, count),
        )

    def sketches(self, near: Near, task: Task) -> Sketched:
        """The sketches of the records in a task's files, which are read and decoded again for this."""
        builder = SketchBuilder(near, task.id)
        if self.job.whole_files:
            self._sketch_whole_files(builder, list(task.references))
        else:
            for parts, _ in placed_parts(self.job, self.rules, task, numbered=True):
                for part in parts:
                    self._sketch_part(builder, part)
        return builder.finish(task.count)

    def _sketch_part(self, builder: SketchBuilder, placed: PlacedPart) -> None:
        try:
            left = len(placed.part.planned())
        except RejectError:
            return
        try:
            for number, (key, record) in enumerate(placed.part.records(), placed.first):
                order = self.rules.placement.orders([key.encode()])
                value = builder.near.value_of(record)
                builder.add(np.array([number], np.int64), order, [value])
                left -= 1
        except RejectError:
            builder.skip(left)  # They are rejected when they are encoded.

    def _sketch_whole_files(self, builder: SketchBuilder, packed: list[bytes]) -> None:
        files = list(map(unpack_reference, packed))
        sources, labels, _, rejects = self._stated(files, packed)
        places, nothing = [source.file for source in sources], np.empty(0, np.int64)
        (rows, _), _ = split_sources(self.rules, places, sources, labels, nothing, rejects)
        chosen = [sources[row] for row in rows]
        orders = self.rules.placement.orders([source.key.encode() for source in chosen])
        with reading_ahead(itertools.chain.from_iterable(map(self.job.reads, chosen))):
            for at, source in enumerate(chosen):
                try:
                    value = builder.near.value_of(self.job.load(source))
                except RejectError:
                    value = None  # The writer of its shard rejects it.
                one = slice(at, at + 1)
                builder.add(np.array(rows[one]), orders[one], [value])

    def _stated(
        self, files: list[Source], packed: list[bytes]
    ) -> tuple[list[Source], list[Label | None], list[bytes], list[Reject]]:
        """The files that may be records, their labels, their references with these, and the other files as rejects."""
        job, sources, labels = self.job, list[Source](), list[Label | None]()
        references, rejects = list[bytes](), list[Reject]()
        for source, reference in zip(files, packed, strict=True):
            try:
                values = source_values(job, source)
            except RejectError as error:
                rejects.append(Reject.of(source.key, "read", error))
                continue
            if source.packed:
                raise UsageError(
                    f"{source.key}: a packed archive can only be read from its start: name such files "
                    "with a separate --input that ends in .tar.gz or .tgz, and the others with "
                    "patterns such as '*.jpg'"
                )
            sources.append(source)
            labels.append(values.label)
            references.append(with_label(reference, source, values.label))
        return sources, labels, references, rejects


def _class_counts(job: FileJob, sources: Sequence[Source]) -> dict[str, Counter[str]]:
    """How often each class of other features than the label occurs in some records, by feature."""
    counts: dict[str, Counter[str]] = {}
    with reading_ahead(itertools.chain.from_iterable(map(job.class_reads, sources))):
        for source in sources:
            with contextlib.suppress(RejectError):  # Loading it reports the reason.
                for feature, names in job.classes_of(source).items():
                    counts.setdefault(feature, Counter()).update(names)
    return counts


def _found(placed: list[PlacedPart], rejects: list[Reject]) -> FoundRecords:
    keys: list[bytes] = []
    splits: list[Any] = []
    sizes: list[int] = []
    labels: list[Label | None] = []
    classes: list[Label] = []
    duplicates: list[Any] = []
    parts = len(placed) + len(rejects)
    rejected = len(rejects)
    for part, values, split, _, dropped in placed:
        try:
            planned = part.planned()
        except RejectError as error:
            rejects.append(Reject.of(part.source.key, "read", error))
            rejected += 1
            if values.label is not None:
                classes.append(values.label)
            continue
        rejects += part.rejects
        of_records = [values.label] * len(planned) if part.labels is None else part.labels
        kept = [number for number in range(len(planned)) if number not in dropped]
        keys += (planned[number][0].encode() for number in kept)
        sizes += (planned[number][1] for number in kept)
        splits += [split] * len(kept)
        labels += [of_records[number] for number in kept]
        duplicates += [split] * (len(planned) - len(kept))
    return FoundRecords(
        keys,
        _splits(splits),
        np.array(sizes, np.int64),
        labels,
        rejects,
        classes,
        duplicates=_splits(duplicates),
        texts=len(keys),
        parts=parts,
        rejected_parts=rejected,
    )


def _splits(found: list[Any]) -> np.ndarray:
    return np.array(found) if found else np.empty(0, np.uint8)


@dataclass(frozen=True)
class FileSecondPass(SecondPass):
    """Task -> the encoded records in files."""

    job: FileJob

    def encoded(self, task: Task, encoder: RecordEncoder) -> Iterator[EncodedRecords]:
        batch = EncodedRecords()
        for parts, rejects in placed_parts(self.job, self.rules, task):
            batch.rejects += rejects
            for found in parts:
                batch = yield from self._add(batch, found, encoder)
        yield batch

    def _add(
        self, batch: EncodedRecords, found: PlacedPart, encoder: RecordEncoder
    ) -> Generator[EncodedRecords, None, EncodedRecords]:
        """Adds the records of a part to a batch; yields full ones, and returns the last one."""
        part, values, split = found.part, found.values, int(found.split)
        done, labels = 0, part.labels
        try:
            for key, record in part.records():
                if done in found.dropped:
                    done += 1
                    continue
                if labels is not None:
                    values = values._replace(label=labels[done])
                complete(record, key, values, self.class_ids)
                try:
                    batch.add(key.encode(), split, *encoder.encode(split, record))
                except RejectError as error:  # of a function, which may take the next one
                    batch.late.append((Reject.of(key, "encode", error), split))
                done += 1
                if batch.size >= _BATCH_BYTES:  # Windows may take many times the bytes of a file.
                    yield batch
                    batch = EncodedRecords()
            batch.rejects += part.rejects
        except (RejectError, ValueError) as error:
            _fail(batch, found, done, error)
        return batch


def _fail(batch: EncodedRecords, found: PlacedPart, done: int, error: Exception) -> None:
    """Rejects a part, or if the first pass has found its records, the remaining ones."""
    part, split = found.part, int(found.split)
    try:
        planned = part.planned()
    except RejectError as reason:
        batch.rejects.append(Reject.of(part.source.key, "read", reason))
        return
    stage: Stage = "decode" if isinstance(error, RejectError) else "encode"
    batch.rejects += part.rejects
    batch.late += (
        (Reject.of(key, stage, error), split)
        for number, (key, _) in enumerate(planned[done:], done)
        if number not in found.dropped
    )


class FilesInParts(FileJob):
    """The methods of `Job` that jobs of images and recordings share."""

    @property
    def whole_files(self) -> bool:
        return not (self.has_windows or self.inputs.packed)

    def parts_in(self, source: Source, content: Callable[[], bytes]) -> Iterator[Part]:
        """Yields the parts of a file; by default it is one."""
        yield FilePart(self, source, content)

    def first_pass(self, rules: SplitRules, tokenizer: str = "") -> FirstPass:
        return FileFirstPass(rules=rules, job=self)

    def second_pass(self, output: Output, learned: Learned) -> SecondPass:
        return FileSecondPass(output, learned, self)

    def sketcher(self, near: Near, rules: SplitRules) -> Callable[[Task], Sketched]:
        return functools.partial(FileFirstPass(rules=rules, job=self).sketches, near)
