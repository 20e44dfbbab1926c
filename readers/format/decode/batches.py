"""Decodes many framed Examples together into columns of arrays.

The Examples of one writer have the same features in the same order, and the kernel decodes them. `Decoder`, which
defines the result, decodes records of any other form and features that the kernel cannot read. A record that does not
fit its schema does not affect others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from readers.format.compiled.columns import CompiledDecoder
from readers.format.compiled.library import RefusedRecords, address
from readers.format.decode.column import (
    Allocator,
    FeatureColumn,
    column_of,
    merged,
    object_array,
)
from readers.format.decode.records import Decoder
from readers.format.schema import Feature, Schema
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES

# How often irregular records are set aside before `Decoder` gets all records.
_ATTEMPTS = 8


class Decoded(NamedTuple):
    """The columns of some records.

    Attributes:
        columns: The column of each feature, for the records without an error; images are bytes or views of them.
        errors: Row -> why this record does not fit the schema.
        alike: int64 [R], ascending, the records with the same features in the same order.
    """

    columns: dict[str, FeatureColumn]
    errors: dict[int, str]
    alike: np.ndarray


class ColumnDecoder:
    """Decodes batches of framed Examples or SequenceExamples into columns. It is safe to share between threads.

    Checksums are ignored.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty) -> None:
        self._schema, self._decoder = schema, Decoder(schema)
        self._kernel = CompiledDecoder(schema, empty, checks=False)

    def decode(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Decoded:
        """Decodes a batch of records into columns.

        Args:
            data: uint8 [n], the records with their framing; images become views of it.
            starts, stops: int64 [B], where each record begins and ends, including the framing.
        """
        columns, rows = self._by_kernel(data, starts, stops)
        is_alike = np.zeros(len(starts), bool)
        is_alike[rows] = bool(columns)
        left = [name for name in self._schema if name not in columns]
        rest = Decoder(self._schema.select(left)) if left and columns else self._decoder
        records, errors = dict[int, dict[str, Any]](), dict[int, str]()
        for row in range(len(starts)) if left else np.flatnonzero(~is_alike).tolist():
            decoder = rest if is_alike[row] else self._decoder
            try:
                example = data.data[starts[row] + HEADER_BYTES : stops[row] - FOOTER_BYTES]
                records[row] = decoder.decode(example)
            except ValueError as error:
                errors[row] = str(error)
        if errors:
            good = np.setdiff1d(np.arange(len(starts)), list(errors))
            found = self.decode(data, starts[good], stops[good])
            return Decoded(found.columns, errors, good[found.alike])
        others = np.flatnonzero(~is_alike)
        whole = dict[str, FeatureColumn]()
        for name, feature in self._schema.items():
            if name in left:
                whole[name] = _column(feature, [record[name] for record in records.values()])
            elif len(others):
                odd = _column(feature, [records[row][name] for row in others.tolist()])
                whole[name] = merged(feature, [(rows, columns[name]), (others, odd)])
            else:
                whole[name] = columns[name]
        return Decoded(whole, {}, np.flatnonzero(is_alike))

    def _by_kernel(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, FeatureColumn], np.ndarray]:
        """The columns of the features that the kernel can read, and the rows of its records, int64 [R], ascending."""
        records, sizes = address(data) + starts, stops - starts
        rows = np.arange(len(starts))
        for _ in range(_ATTEMPTS):
            if not len(rows):
                break
            try:
                columns, *_ = self._kernel.batches(
                    records[rows], sizes[rows], (0, len(rows)), {}, data
                )
            except RefusedRecords as refused:
                # If most records differ from the first, the first one is irregular.
                most = 2 * np.count_nonzero(refused.good) > len(rows)
                rows = rows[refused.good] if most else rows[1:]
            else:
                return columns, rows
        # Without columns, `Decoder` gets all records and decodes each only once.
        return {}, np.arange(len(starts))


def _column(feature: Feature, values: list[Any]) -> FeatureColumn:
    return FeatureColumn(object_array(values)) if feature.is_image else column_of(feature, values)
