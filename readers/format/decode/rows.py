"""Decodes many serialized Examples at once; one that does not fit its schema costs no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from readers.format.decode.batches import ColumnDecoder
from readers.format.decode.records import Decoder
from readers.format.schema import Schema


class Rows(NamedTuple):
    """The values of some records.

    Attributes:
        values: Feature -> the value of each record, as from `Decoder`, but texts are bytes, and encoded
            images may be views of the buffer. It means nothing for a record with an error.
        errors: Row -> why the record does not fit.
        alike: The rows, ascending, of records that have the same features in the same order.
    """

    values: dict[str, list[Any]]
    errors: dict[int, str]
    alike: list[int]


class RowDecoder:
    """Decodes batches of serialized Examples or SequenceExamples.

    Args:
        schema: The features to decode. Any others are ignored.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._columns, self._decoder = ColumnDecoder(schema), Decoder(schema)

    def decode(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Rows:
        """The values of a batch of records.

        Args:
            data: uint8 [n], the records, followed by at least `MARGIN` more bytes.
            starts, stops: int64 [B], where each record begins and ends.
        """
        columns, regular = self._columns.decode(data, starts, stops)
        alike = regular.tolist() if columns else []
        values: dict[str, list[Any]] = {name: [None] * len(starts) for name in self._schema}
        errors: dict[int, str] = {}

        def decode(decoder: Decoder, rows: Sequence[int]) -> None:
            for row in rows:
                try:
                    record = decoder.decode(data.data[starts[row] : stops[row]])
                except ValueError as error:
                    errors[row] = str(error)
                    continue
                for name, value in record.items():
                    is_text = self._schema[name].encoding == "text"
                    values[name][row] = value.item() if is_text else value

        for name, column in columns.items():
            for row, value in zip(alike, column.arrays(), strict=True):
                values[name][row] = value
        decode(self._decoder, np.setdiff1d(np.arange(len(starts)), alike).tolist())
        if alike and (left := [name for name in self._schema if name not in columns]):
            decode(Decoder(self._schema.select(left)), alike)
        return Rows(values, errors, alike)
