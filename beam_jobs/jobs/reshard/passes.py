"""The two passes over TFRecord files."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from beam_jobs.errors import RejectError
from beam_jobs.jobs.passes import EncodedRecords, FirstPass, FoundRecords, Learner, SecondPass
from beam_jobs.jobs.reshard.example_walk import all_lists
from beam_jobs.jobs.reshard.framed import FrameBatch, decompressed, frame_batches
from beam_jobs.jobs.reshard.schema_guess import SchemaGuess
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.encode import RecordCounter
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, Task
from beam_jobs.sources.source import Source
from beam_jobs.storage.objects import reading_ahead
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder, parse_example
from readers.format.protobuf.wire import BYTES_LIST, INT64_LIST, fields, unpacked_varints, varint
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame

if TYPE_CHECKING:
    from beam_jobs.jobs.reshard.job import ReshardJob

# Records of a batch whose size is measured without the features that are dropped.
_MEASURED = 16

# Serialized records, uint8 [n], and where each begins and ends -> broken rows and the reasons.
FindBroken = Callable[[np.ndarray, np.ndarray, np.ndarray], list[tuple[int, str]]]


def batches_of(job: ReshardJob, task: Task) -> Iterator[tuple[Source, FrameBatch | Reject]]:
    """Yields (file, some of its records) for all chunks of a task, and a reject if one cannot be read."""
    chunks = [chunk for chunk in task.chunks if not chunk.is_empty]
    with reading_ahead(read for chunk in chunks for read in job.reads(chunk)):
        for chunk in chunks:
            for batch in _frame_batches(job, chunk):
                yield chunk.source, batch


def _frame_batches(job: ReshardJob, chunk: Chunk) -> Iterator[FrameBatch | Reject]:
    """Yields the records of a file or a range of it, and a reject if it cannot be read."""
    source = chunk.source
    try:
        if source.error:
            raise RejectError(source.error)
        with job.inputs.stream(source) as file:
            if not chunk.end:
                yield from frame_batches(decompressed(cast(io.BufferedReader, file)))
                return
            file.seek(chunk.start)
            stream = cast(io.BufferedReader, file)
            yield from frame_batches(stream, chunk.start, chunk.end, chunk.first)
    except RejectError as error:
        yield Reject.of(source.key, "read", error)
    except OSError as error:
        yield Reject.of(source.key, "read", f"cannot be read: {error}")


class FoundExamples(NamedTuple):
    """The Examples of a batch that have a split.

    Attributes:
        keys: The keys in UTF-8.
        splits: uint8 [n].
        starts, stops: int64 [n], where the data of each begins and ends in the batch.
        rejects: The other records.
    """

    keys: list[bytes]
    splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    rejects: list[Reject]

    def without(self, dropped: np.ndarray, first: int) -> tuple[FoundExamples, np.ndarray]:
        """The Examples that are kept, and the splits of those that are dropped, uint8 [m].

        Args:
            dropped: The numbers of the records of a task that are dropped, int64, rising.
            first: The number of the first of these Examples.
        """
        low, high = np.searchsorted(dropped, [first, first + len(self.keys)])
        if low == high:
            return self, np.empty(0, np.uint8)
        gone = dropped[low:high] - first
        kept = np.delete(np.arange(len(self.keys)), gone)
        keys = [self.keys[at] for at in kept.tolist()]
        left = FoundExamples(
            keys, self.splits[kept], self.starts[kept], self.stops[kept], self.rejects
        )
        return left, self.splits[gone]


def records_of(
    rules: SplitRules, source: Source, batch: FrameBatch, find_broken: FindBroken
) -> FoundExamples:
    """The records of a batch, the same ones in both passes.

    Args:
        rules: Decides the splits of records.
        source: The file.
        batch: Some of its records.
        find_broken: `broken_examples`, or a function that gives the same.
    """
    data, stops = batch.data, batch.stops - FOOTER_BYTES
    starts = batch.stops - batch.lengths + HEADER_BYTES
    filled = np.flatnonzero(batch.good & (starts < stops))
    empty = np.flatnonzero(batch.good & (starts == stops)).tolist()
    broken = dict.fromkeys(empty, "it is empty")
    for at, error in find_broken(data, starts[filled], stops[filled]):
        broken[int(filled[at])] = error
    rejects = [_reject(source, place.number, place.error) for place in batch.broken]
    for row, error in broken.items():
        where = f"byte {batch.offset + int(starts[row]) - HEADER_BYTES:,}"
        rejects.append(_reject(source, batch.first + row, f"{where}: not an Example: {error}"))
    rows = filled[~np.isin(filled, list(broken))] if broken else filled
    prefix = f"{source.key}#".encode("utf-8", "surrogateescape")
    keys = [b"%s%d" % (prefix, number) for number in (rows + batch.first).tolist()]
    columns = _columns(rules, data, starts[rows], stops[rows])
    splits, without = rules.splits_of(keys, columns, [None] * len(keys))
    if without:
        rejects += [
            _reject(source, batch.first + int(rows[at]), error) for at, error in without.items()
        ]
        kept = np.delete(np.arange(len(rows)), list(without))
        keys, splits, rows = [keys[at] for at in kept.tolist()], splits[kept], rows[kept]
    return FoundExamples(keys, splits, starts[rows], stops[rows], rejects)


def _reject(source: Source, number: int, error: str) -> Reject:
    return Reject.of(f"{source.key}#{number}", "read", error)


def broken_examples(
    data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> list[tuple[int, str]]:
    """The rows of records that are neither Examples nor SequenceExamples, with the reasons."""
    _, _, broken = all_lists(data, starts, stops)
    return broken


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
            every = records_of(self.rules, source, batch, guess.add if guess else broken_examples)
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


def _columns(
    rules: SplitRules, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> list[dict[str, Any]]:
    """The features that decide the splits of records; no rows if there are none."""
    names = rules.placement.split_features
    if not names:
        return []
    return [
        single_values(data.data[start:stop], names)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def single_values(data: memoryview, names: set[str]) -> dict[str, Any]:
    """The named features of an Example that hold a single text or integer."""
    values: dict[str, Any] = {}
    for name, (kind, chunks) in parse_example(data, names).items():
        if len(chunks) != 1:
            continue
        if kind == BYTES_LIST:
            with contextlib.suppress(UnicodeDecodeError):
                values[name] = str(chunks[0], "utf-8")
        elif kind == INT64_LIST and len(numbers := unpacked_varints(chunks[0])) == 1:
            values[name] = int(numbers[0])
    return values


@dataclass(frozen=True)
class ReshardSecondPass(SecondPass):
    """Task -> records, as they are or without some features, and their statistics.

    Attributes:
        job: Defines the records.
    """

    job: ReshardJob

    @functools.cached_property
    def _columns(self) -> ColumnDecoder:
        return ColumnDecoder(self.plan.schema)

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.plan.schema)

    def counter(self) -> RecordCounter:
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
