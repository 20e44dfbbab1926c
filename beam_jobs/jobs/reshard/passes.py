"""The two passes over TFRecord files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FoundRecords,
    Learner,
    SecondPass,
    mapped_records,
)
from beam_jobs.jobs.reshard.examples import FoundExamples, batches_of, broken_examples, records_of
from beam_jobs.jobs.reshard.framed import FrameBatch
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.records.encode import RecordCounter, RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder
from readers.format.protobuf.wire import fields, varint
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame

if TYPE_CHECKING:
    from beam_jobs.jobs.reshard.job import ReshardJob

# Records of a batch whose size is measured without the features that are dropped.
_MEASURED = 16


class SchemaLearner:
    """Merges facts about the features of records."""

    def __init__(self) -> None:
        self._guess = SchemaGuess()

    def add(self, part: SchemaGuess, /) -> None:
        self._guess.merge(part)

    def elements(self) -> Iterator[SchemaGuess]:
        yield self._guess


@dataclass(frozen=True, kw_only=True)
class ReshardFirstPass(FirstPass):
    """Task -> keys of records, and facts about their features.

    Attributes:
        job: Defines the records.
    """

    job: ReshardJob

    def learner(self) -> Learner | None:
        return SchemaLearner()

    def found(self, task: Task) -> Iterator[FoundRecords]:
        dropped, first = task.dropped_rows, 0
        for source, batch in batches_of(self.job, task):
            if isinstance(batch, Reject):
                yield FoundRecords.of_reject(batch)
                continue
            guess = None if self.job.given else SchemaGuess()
            find_broken = guess.add if guess else broken_examples
            try:
                every = records_of(self.rules, source, batch, find_broken)
            except UsageError as error:
                last = batch.first + len(batch.stops) - 1
                raise UsageError(
                    f"{source.key}: one of the records {batch.first} to {last}: {error.message}"
                ) from None
            found, duplicates = every.without(dropped, first)
            first += len(every.keys)
            sizes = self._sizes(batch.data.data, found)
            labels = [None] * len(found.keys)
            yield FoundRecords(
                found.keys,
                found.splits,
                sizes,
                labels,
                found.rejects,
                learned=guess,
                duplicates=duplicates,
                texts=len(found.keys),
            )

    def _sizes(self, view: memoryview, found: FoundExamples) -> np.ndarray:
        """The size of each record's frame in bytes; an estimate if features are dropped."""
        sizes = found.stops - found.starts + FRAME_BYTES
        if not self.job.changes_records or not len(sizes):
            return sizes
        rows = np.linspace(0, len(sizes) - 1, min(_MEASURED, len(sizes))).astype(np.int64).tolist()
        left = sum(
            len(with_features(view[found.starts[row] : found.stops[row]], self._keeps))
            + FRAME_BYTES
            for row in rows
        )
        return np.maximum(sizes * (left / int(sizes[rows].sum())), FRAME_BYTES).astype(np.int64)

    def _keeps(self, name: str) -> bool:
        return self.job.keeps(name.removesuffix("/shape"))


@dataclass(frozen=True)
class ReshardSecondPass(SecondPass):
    """Task -> records, as they are or without some features, and their statistics.

    Attributes:
        job: Defines the records.
    """

    job: ReshardJob

    @functools.cached_property
    def _columns(self) -> ColumnDecoder:
        return ColumnDecoder(self.plan.job_schema)

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.plan.job_schema)

    def counter(self) -> RecordCounter:
        if self.plan.mapper:
            return super().counter()
        return RecordCounter({n: f for n, f in self.plan.schema.items() if not f.step})

    def encoded(self, task: Task, encoder: RecordCounter) -> Iterator[EncodedRecords]:
        dropped, first = task.dropped_rows, 0
        for source, batch in batches_of(self.job, task):
            if isinstance(batch, Reject):
                yield EncodedRecords.of_reject(batch)
                continue
            every = records_of(self.plan.rules, source, batch, broken_examples)
            yield self._encode_batch(batch, every.without(dropped, first)[0], encoder)
            first += len(every.keys)

    def _encode_batch(
        self, batch: FrameBatch, found: FoundExamples, encoder: RecordCounter
    ) -> EncodedRecords:
        if isinstance(encoder, RecordEncoder):  # It has a mapper.
            return mapped_records(
                encoder,
                found.keys,
                found.splits,
                lambda row: self._decoder.decode(
                    batch.data.data[int(found.starts[row]) : int(found.stops[row])]
                ),
                found.rejects,
            )
        columns, errors = self._decoded(batch.data, found.starts, found.stops)
        late = []
        for at, error in sorted(errors.items()):
            where = f"byte {batch.offset + int(found.starts[at]) - HEADER_BYTES:,}"
            key = found.keys[at].decode("utf-8", "surrogateescape")
            late.append((Reject.of(key, "decode", f"{where}: {error}"), int(found.splits[at])))
        good = [at for at in range(len(found.keys)) if at not in errors]
        splits = found.splits[good]
        encoder.count(splits, {n: [v[at] for at in good] for n, v in columns.items()})
        view = batch.data.data
        spans = zip(found.starts[good].tolist(), found.stops[good].tolist(), strict=True)
        frames = [self._frame(view, start, stop) for start, stop in spans]
        return EncodedRecords([found.keys[at] for at in good], splits, frames, found.rejects, late)

    def _frame(self, view: memoryview, start: int, stop: int) -> bytes | memoryview:
        if self.job.changes_records:
            return frame(with_features(view[start:stop], self._keeps))
        return view[start - HEADER_BYTES : stop + FOOTER_BYTES]

    def _keeps(self, name: str) -> bool:
        """Whether to keep a feature of an Example, which may hold the shapes of another feature."""
        of, schema = name.removesuffix("/shape"), self.plan.schema
        if self.job.keep:
            return name in schema or (of in schema and schema[of].has_companion)
        return name not in self.job.drop and (of not in self.job.drop or name in schema)

    def _decoded(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """The values of all counted features, and the errors of records that do not fit the schema."""
        found, regular = self._columns.decode(data, starts, stops)
        whole = {name for name, feature in self.plan.schema.items() if not feature.step}
        odd = np.setdiff1d(np.arange(len(starts)), regular)
        left = [name for name in self.plan.schema if name not in found]
        errors: dict[int, str] = {}
        values: dict[str, list[Any]] = {name: [None] * len(starts) for name in whole}
        for name, column in found.items():
            for at, value in zip(regular.tolist(), column.arrays(), strict=True):
                values[name][at] = value
        if not left and not len(odd):
            return values, errors
        rest = Decoder(self.plan.schema.select(left)) if left else None
        view = data.data
        odd_rows = set(odd.tolist())
        for at in range(len(starts)) if rest else odd.tolist():
            decoder = self._decoder if at in odd_rows or rest is None else rest
            try:
                record = decoder.decode(view[int(starts[at]) : int(stops[at])])
            except ValueError as error:
                errors[at] = str(error)
                continue
            for name in record.keys() & whole:
                value = record[name]
                values[name][at] = (
                    value.item() if self.plan.schema[name].encoding == "text" else value
                )
        return values, errors


def with_features(data: memoryview, keeps: Callable[[str], bool]) -> bytes:
    """An Example or SequenceExample with some of its features, unchanged.

    Args:
        data: The serialized record.
        keeps: Whether to keep the feature of a name.
    """
    messages = []
    for number, _, message in fields(data):
        entries = [
            b"\x0a" + varint(len(entry)) + bytes(entry)
            for _, _, entry in fields(message)
            if keeps(_name(entry))
        ]
        body = b"".join(entries)
        messages.append(bytes([number << 3 | 2]) + varint(len(body)) + body)
    return b"".join(messages)


def _name(entry: memoryview) -> str:
    for number, _, content in fields(entry):
        if number == 1:
            return str(content, "utf-8")
    return ""
