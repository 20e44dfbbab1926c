"""The two passes over TFRecord files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FoundRecords,
    Learner,
    SecondPass,
    mapped_records,
)
from beam_jobs.jobs.reshard.examples import FoundExamples, batches_of, records_of
from beam_jobs.jobs.reshard.fit import Names, misfit, name_of, value_error
from beam_jobs.jobs.reshard.framed import FrameBatch
from beam_jobs.jobs.reshard.schema_guess import LEARNED, SchemaGuess
from beam_jobs.jobs.reshard.spec import ReshardSpec
from beam_jobs.records.encode import RecordCounter, RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Chunk, Task
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder
from readers.format.encode.index_rows import IndexRows
from readers.format.protobuf.wire import fields, varint
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame

# Records of a batch whose size is measured without the features that are dropped.
_MEASURED = 16


@dataclass(frozen=True, kw_only=True)
class ReshardFirstPass(FirstPass):
    """Task -> keys of records, and facts about the features of the first ones.

    Attributes:
        spec: Defines the records.
    """

    spec: ReshardSpec

    def learner(self) -> Learner | None:
        return SchemaGuess()

    def found(self, task: Task) -> Iterator[FoundRecords]:
        dropped, first = task.dropped_rows, 0
        for chunk, batch in batches_of(self.spec, task):
            if isinstance(batch, Reject):
                yield FoundRecords.of_reject(batch)
                continue
            every = records_of(self.rules, chunk.source, batch)
            found, duplicates = every.without(dropped, first)
            first += len(every.keys)
            yield FoundRecords(
                found.keys,
                found.splits,
                self._sizes(batch.data.data, found),
                [None] * len(found.keys),
                found.rejects,
                learned=None if self.spec.given else _learned(chunk, batch),
                duplicates=duplicates,
                texts=len(found.keys),
            )

    def _sizes(self, view: memoryview, found: FoundExamples) -> np.ndarray:
        """The size of each record's frame in bytes; an estimate if features are dropped."""
        sizes = found.stops - found.starts + FRAME_BYTES
        if not self.spec.changes_records or not len(sizes):
            return sizes
        rows = np.linspace(0, len(sizes) - 1, min(_MEASURED, len(sizes))).astype(np.int64).tolist()
        left = sum(
            self._kept_bytes(view[found.starts[row] : found.stops[row]]) + FRAME_BYTES
            for row in rows
        )
        return np.maximum(sizes * (left / int(sizes[rows].sum())), FRAME_BYTES).astype(np.int64)

    def _kept_bytes(self, record: memoryview) -> int:
        try:
            return len(with_features(record, self._keeps))
        except ValueError:  # The second pass rejects it.
            return 0

    def _keeps(self, name: str) -> bool:
        return self.spec.keeps(name.removesuffix("/shape"))


def _learned(chunk: Chunk, batch: FrameBatch) -> SchemaGuess:
    """Facts about those records of a batch that are among the first ones of their chunk."""
    guess, (starts, stops) = SchemaGuess(), batch.spans
    good = batch.good & (starts < stops)
    for row in np.flatnonzero(good[: max(chunk.first + LEARNED - batch.first, 0)]).tolist():
        key = f"{chunk.source.key}#{batch.first + row}"
        guess.learn(key, batch.data.data[starts[row] : stops[row]])
    return guess


@dataclass(frozen=True)
class ReshardSecondPass(SecondPass):
    """Task -> records, as they are or without some features, and their statistics.

    Attributes:
        spec: Defines the records.
    """

    spec: ReshardSpec

    @functools.cached_property
    def _columns(self) -> ColumnDecoder:
        return ColumnDecoder(self.plan.job_schema)

    @functools.cached_property
    def _decoder(self) -> Decoder:
        return Decoder(self.plan.job_schema)

    @functools.cached_property
    def _rows(self) -> IndexRows:
        return IndexRows(self.plan.schema)

    @functools.cached_property
    def _names(self) -> Names:
        return Names(self.plan.schema)

    def counter(self) -> RecordCounter:
        if self.plan.mapper:
            return super().counter()
        return RecordCounter({n: f for n, f in self.plan.schema.items() if not f.step})

    def encoded(self, task: Task, encoder: RecordCounter) -> Iterator[EncodedRecords]:
        dropped, first = task.dropped_rows, 0
        for chunk, batch in batches_of(self.spec, task):
            if isinstance(batch, Reject):
                yield EncodedRecords.of_reject(batch)
                continue
            every = records_of(self.plan.rules, chunk.source, batch)
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
            where = batch.place_of(found.starts[at])
            key = found.keys[at].decode("utf-8", "surrogateescape")
            late.append((Reject.of(key, "decode", f"{where}: {error}"), int(found.splits[at])))
        good = [at for at in range(len(found.keys)) if at not in errors]
        splits = found.splits[good]
        columns = {name: [values[at] for at in good] for name, values in columns.items()}
        encoder.count(splits, columns)
        view = batch.data.data
        spans = zip(found.starts[good].tolist(), found.stops[good].tolist(), strict=True)
        frames = [self._frame(view, start, stop) for start, stop in spans]
        keys, rows = [found.keys[at] for at in good], self._rows.pack_all(columns, len(good))
        return EncodedRecords(keys, splits, frames, rows, found.rejects, late)

    def _frame(self, view: memoryview, start: int, stop: int) -> bytes | memoryview:
        if self.spec.changes_records:
            return frame(with_features(view[start:stop], self._keeps))
        return view[start - HEADER_BYTES : stop + FOOTER_BYTES]

    def _keeps(self, name: str) -> bool:
        """Whether to keep a feature of an Example, which may hold the shapes of another feature."""
        of, schema = name.removesuffix("/shape"), self.plan.schema
        if self.spec.keep:
            return name in schema or (of in schema and schema[of].has_companion)
        return name not in self.spec.drop and (of not in self.spec.drop or name in schema)

    def _decoded(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, list[Any]], dict[int, str]]:
        """The values of all counted features, and the errors of records that do not fit the schema."""
        schema, learned = self.plan.schema, self.spec.given is None
        view, bounds = data.data, np.stack([starts, stops], 1).tolist()

        def record_at(row: int) -> memoryview:
            start, stop = bounds[row]
            return view[start:stop]

        found, regular = self._columns.decode(data, starts, stops)
        # Records of one form, which have the same names.
        alike = regular.tolist() if found else []
        odd = np.setdiff1d(np.arange(len(starts)), alike).tolist()
        left = [name for name in schema if name not in found]
        rest = Decoder(schema.select(left)) if left else self._decoder
        errors: dict[int, str] = {}
        values: dict[str, list[Any]] = {
            name: [None] * len(starts) for name, feature in schema.items() if not feature.step
        }
        for name, column in found.items():
            for at, value in zip(alike, column.arrays(), strict=True):
                values[name][at] = value
        for decoder, rows in ((self._decoder, odd), (rest, alike if left else [])):
            for at in rows:
                try:
                    record = decoder.decode(record_at(at))
                except ValueError as error:
                    errors[at] = str(error)
                    continue
                for name, value in record.items():
                    if name in values:
                        is_text = schema[name].encoding == "text"
                        values[name][at] = value.item() if is_text else value
                    elif learned and (wrong := value_error(schema[name], value)):
                        errors[at] = wrong
        if learned:
            errors |= {
                at: wrong
                for name, column in values.items()
                if schema[name].is_image or schema[name].encoding == "text"
                for at, value in enumerate(column)
                if value is not None and (wrong := value_error(schema[name], value))
            }
        # One record shows the names of those of one form.
        groups = [[at] for at in odd if at not in errors] + ([alike] if alike else [])
        doubtful = [
            at
            for group in groups
            if not self._names.hold(record_at(group[0]), self._keeps)
            for at in group
        ]
        for at in {*errors, *doubtful}:
            if wrong := misfit(schema, record_at(at), self._keeps, learned):
                errors[at] = wrong
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
            if keeps(name_of(entry))
        ]
        body = b"".join(entries)
        messages.append(bytes([number << 3 | 2]) + varint(len(body)) + body)
    return b"".join(messages)
