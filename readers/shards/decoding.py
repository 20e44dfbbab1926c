"""Decoding of records with their framing; errors name the file of a record and its position."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from readers.decoders.decoder import Batch
from readers.decoders.record_work import RecordWork
from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.column import (
    Allocator,
    FeatureColumn,
    Rows,
    column_of,
    merged,
    object_array,
)
from readers.format.decode.image_columns import image_column
from readers.format.decode.images import with_pixels
from readers.format.decode.records import Decoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES
from readers.shards.framed import FramedRecords
from readers.shards.plan import Plan


class FramedDecoder:
    """Decodes some features of a plan's records. It is safe to share between threads.

    Args:
        plan: The plan, whose files errors name.
        schema: The features to decode.
        empty: Allocates large arrays.
        work: What is done to each decoded record; None for nothing.
        rows: Allocates the pixels of each record by itself; None if they may be in one array.
    """

    def __init__(
        self,
        plan: Plan,
        schema: Schema,
        empty: Allocator = np.empty,
        work: RecordWork | None = None,
        rows: Rows | None = None,
    ) -> None:
        self._plan, self._schema, self._empty, self._work = plan, schema, empty, work
        self._rows = rows
        self._records = Decoder(schema)
        self._columns = ColumnDecoder(schema, empty)

    def record(self, framed: FramedRecords, row: int) -> dict[str, Any]:
        """One of the records, before any work on it.

        Raises:
            ValueError: The record does not fit the schema.
        """
        record = self._decode(framed, row, self._records)
        with self._locating_errors(framed, row):
            return with_pixels(record, self._schema)

    def columns(
        self, framed: FramedRecords, keys: np.ndarray | None = None
    ) -> dict[str, FeatureColumn]:
        """The column of each feature, with all of the records.

        Args:
            framed: The records.
            keys: int64 [B], their keys, for the work on them.

        Raises:
            ValueError: A record does not fit the schema, or the work on it fails.
        """
        schema = self._schema
        starts, stops = framed.starts + HEADER_BYTES, framed.stops - FOOTER_BYTES
        columns, rows = self._columns.decode(framed.data, starts, stops)
        if len(rows) < len(starts):
            others = np.setdiff1d(np.arange(len(starts)), rows)
            irregular = self._one_by_one(framed, others, schema)
            columns = {
                name: merged(schema[name], [(rows, column), (others, irregular[name])])
                for name, column in columns.items()
            }
        left = [name for name in schema if name not in columns]
        if left:
            every = np.arange(len(starts))
            columns |= self._one_by_one(framed, every, schema.select(left))
        located = functools.partial(self._locating_errors, framed)
        made = self._work.made if self._work else {}
        for name, feature in schema.items():
            if feature.is_image and name not in made:
                encoded = columns[name].flat().tolist()
                columns[name] = image_column(
                    name, feature, encoded, located, self._empty, self._rows
                )
        if self._work is None:
            return columns
        assert keys is not None
        return self._work.columns(Batch(columns, keys, located, self._empty, self._rows))

    def _one_by_one(
        self, framed: FramedRecords, rows: np.ndarray, schema: Schema
    ) -> dict[str, FeatureColumn]:
        """The columns of some of the records, decoded in the way that accepts every form."""
        decoder = Decoder(schema)
        records = [self._decode(framed, row, decoder) for row in rows.tolist()]
        return {
            name: _column(feature, [record[name] for record in records])
            for name, feature in schema.items()
        }

    def _decode(self, framed: FramedRecords, row: int, decoder: Decoder) -> dict[str, Any]:
        with self._locating_errors(framed, row):
            return decoder.decode(framed.record(row)[HEADER_BYTES:-FOOTER_BYTES])

    @contextlib.contextmanager
    def _locating_errors(self, framed: FramedRecords, row: int) -> Iterator[None]:
        """Adds the record's file, number and position to the message of an error."""
        try:
            yield
        except ValueError as error:
            path, number = self._plan.parts[framed.parts[row]].path, framed.rows[row]
            raise ValueError(
                f"{path}: record {number} at byte {framed.offsets[row]}: {error}"
            ) from error.__cause__


def _column(feature: Feature, values: list[Any]) -> FeatureColumn:
    return FeatureColumn(object_array(values)) if feature.is_image else column_of(feature, values)
