"""The passes over TFRecord files: their keys, the sketches that find near duplicates, and their records."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np

from beam_jobs.jobs.near import Near, SketchBuilder, Sketched
from beam_jobs.jobs.passes import (
    EncodedRecords,
    FirstPass,
    FoundRecords,
    SecondPass,
    mapped_records,
)
from beam_jobs.jobs.reshard.examples import Examples, ReshardSpec, examples_of
from beam_jobs.jobs.reshard.record_fit import SHAPE, RecordFit, with_features
from beam_jobs.jobs.reshard.schema_guess import LEARNED, SchemaGuess
from beam_jobs.jobs.split_rules import SplitRules
from beam_jobs.records.encode import RecordCounter, RecordEncoder
from beam_jobs.records.rejects import Reject
from beam_jobs.sources.chunks import Task
from readers.format.decode.records import Decoder
from readers.format.encode.index_rows import IndexRows
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, FRAME_BYTES, HEADER_BYTES, frame

# Records that are sketched together: pictures of 2 MiB take 128 MiB.
_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class ReshardFirstPass(FirstPass):
    """Task -> keys of records, and facts about the features of the first ones.

    Attributes:
        spec: Defines the records.
    """

    spec: ReshardSpec

    def found(self, task: Task) -> Iterator[FoundRecords]:
        for examples in examples_of(self.spec, self.rules, task):
            yield FoundRecords(
                examples.keys,
                examples.splits,
                self._sizes(examples),
                [None] * len(examples.keys),
                examples.rejects,
                learned=None if self.spec.given else _learned(examples),
                duplicates=examples.duplicates,
                texts=len(examples.keys),
            )

    def _sizes(self, examples: Examples) -> np.ndarray:
        """The size of each record's frame in bytes, without the features that are dropped."""
        if not self.spec.changes_records:
            return examples.stops - examples.starts + FRAME_BYTES
        sizes = [self._kept_bytes(examples.record(row)) for row in range(len(examples.keys))]
        return np.array(sizes, np.int64) + FRAME_BYTES

    def _kept_bytes(self, record: memoryview) -> int:
        try:
            return len(with_features(record, lambda n: self.spec.keeps(n.removesuffix(SHAPE))))
        except ValueError:  # The second pass rejects it.
            return 0


def _learned(examples: Examples) -> SchemaGuess:
    """Facts about those records of a batch that are among the first ones of their chunk."""
    chunk, batch, guess = examples.chunk, examples.batch, SchemaGuess()
    starts, stops = batch.spans
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
    def _fit(self) -> RecordFit:
        return RecordFit(self.learned.schema, self._keeps, self.spec.given is None)

    @functools.cached_property
    def _index_rows(self) -> IndexRows:
        return IndexRows(self.learned.schema)

    @functools.cached_property
    def _counted(self) -> dict[str, Feature]:
        return {name: f for name, f in self.learned.schema.items() if not f.step}

    def counter(self) -> RecordCounter:
        return super().counter() if self.output.mapper else RecordCounter(self._counted)

    def encoded(self, task: Task, encoder: RecordCounter) -> Iterator[EncodedRecords]:
        for examples in examples_of(self.spec, self.rules, task):
            if isinstance(encoder, RecordEncoder):  # The encoder has a mapper.
                yield self._mapped(examples, encoder)
            else:
                yield self._kept(examples, encoder)

    def _mapped(self, examples: Examples, encoder: RecordEncoder) -> EncodedRecords:
        decoder = Decoder(self.job_schema)
        return mapped_records(
            encoder,
            examples.keys,
            examples.splits,
            lambda row: decoder.decode(examples.record(row)),
            examples.rejects,
        )

    def _kept(self, examples: Examples, counter: RecordCounter) -> EncodedRecords:
        """The Examples that fit the schema, and the others as rejects."""
        data = examples.batch.data
        decoded, rows, errors = self._fit.check(data, examples.starts, examples.stops)
        late = []
        for row, error in sorted(errors.items()):
            where = examples.batch.place_of(examples.starts[row])
            key = examples.keys[row].decode("utf-8", "surrogateescape")
            reject = Reject.of(key, "decode", f"{where}: {error}")
            late.append((reject, int(examples.splits[row])))
        chosen, good = (
            [row not in errors for row in rows],
            [row for row in rows if row not in errors],
        )
        columns = {n: [*compress(decoded[n].arrays(), chosen)] for n in self._counted}
        splits = examples.splits[good]
        counter.count(splits, columns)
        return EncodedRecords(
            [examples.keys[row] for row in good],
            splits,
            [self._frame(examples, row) for row in good],
            self._index_rows.pack_all(columns, len(good)),
            examples.rejects,
            late,
        )

    def _frame(self, examples: Examples, row: int) -> bytes | memoryview:
        if self.spec.changes_records:
            return frame(with_features(examples.record(row), self._keeps))
        start, stop = int(examples.starts[row]), int(examples.stops[row])
        return examples.batch.data.data[start - HEADER_BYTES : stop + FOOTER_BYTES]

    def _keeps(self, name: str) -> bool:
        """Whether to keep a feature of an Example, which may hold the shapes of another feature."""
        of, schema = name.removesuffix(SHAPE), self.learned.schema
        if self.spec.keep:
            return name in schema or (of in schema and schema[of].has_companion)
        return name not in self.spec.drop and (of not in self.spec.drop or name in schema)


def example_sketches(spec: ReshardSpec, near: Near, rules: SplitRules, task: Task) -> Sketched:
    """The sketches of a task's records; one that does not fit the schema has none."""
    builder, decoder = SketchBuilder(near, task.id), Decoder(Schema(dict(near.compared.features)))
    for examples in examples_of(spec, rules, task):
        orders = rules.placement.orders(examples.keys)
        for start in range(0, len(orders), _AT_ONCE):
            rows = np.arange(len(orders))[start : start + _AT_ONCE]
            values = [_value_of(near, decoder, examples.record(row)) for row in rows.tolist()]
            builder.add(rows + examples.before, orders[rows], values)
    return builder.finish(task.count)


def _value_of(near: Near, decoder: Decoder, data: memoryview) -> Any:
    """The compared values of a serialized record; None if it cannot be decoded."""
    try:
        return near.value_of(decoder.decode(data))
    except ValueError:
        return None
