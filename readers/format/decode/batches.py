"""Decoding of many serialized Examples at once into columns of arrays.

The Examples of one writer have the same fields in the same order. So all of them are scanned in
lockstep: each step reads the same tag, length or name in every record, with a few NumPy calls.
Records of any other form are left to `Decoder`, which defines the result; one that does not fit its schema
costs no other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from readers.format.decode.column import (
    Allocator,
    FeatureColumn,
    Spans,
    column_of,
    merged,
    object_array,
)
from readers.format.decode.records import Decoder, parse_example
from readers.format.decode.scanner import IrregularRecords, Scanner, require
from readers.format.protobuf.wire import INT64_LIST, varint
from readers.format.schema import Feature, Schema

# How often irregular records are set aside before all records are left to `Decoder`.
_ATTEMPTS = 8


class Decoded(NamedTuple):
    """The columns of some records.

    Attributes:
        columns: The column of each feature, images as their bytes or views of them, of the records without an error.
        errors: Row -> why the record does not fit the schema.
        alike: int64 [R], ascending, the records that have the same features in the same order.
    """

    columns: dict[str, FeatureColumn]
    errors: dict[int, str]
    alike: np.ndarray


class ColumnDecoder:
    """Decodes batches of serialized Examples or SequenceExamples into columns. It is safe to share between threads.

    Args:
        schema: The features to decode.
        empty: Allocates large arrays.
    """

    def __init__(self, schema: Schema, empty: Allocator = np.empty) -> None:
        self._schema, self._empty, self._decoder = schema, empty, Decoder(schema)
        self._kinds = {name: feature.codec.kind(feature) for name, feature in schema.items()}
        self._companions = {f"{n}/shape" for n, f in schema.items() if f.needs_companion}
        self._kinds |= dict.fromkeys(self._companions, INT64_LIST)

    def decode(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> Decoded:
        """The columns of a batch of records.

        Args:
            data: uint8 [n], the records, followed by at least `MARGIN` more bytes.
            starts, stops: int64 [B], where each record begins and ends.
        """
        columns, rows = self.regular(data, starts, stops)
        is_alike = np.zeros(len(starts), bool)
        is_alike[rows] = bool(columns)
        left = [name for name in self._schema if name not in columns]
        rest = Decoder(self._schema.select(left)) if left and columns else self._decoder
        records, errors = dict[int, dict[str, Any]](), dict[int, str]()
        for row in range(len(starts)) if left else np.flatnonzero(~is_alike).tolist():
            decoder = rest if is_alike[row] else self._decoder
            try:
                records[row] = decoder.decode(data.data[starts[row] : stops[row]])
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

    def regular(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[dict[str, FeatureColumn], np.ndarray]:
        """The columns of a batch, as far as its records can be decoded together.

        Returns:
            The columns of the features that are one value or one run of numbers; and int64 [R],
            ascending, the records that the columns hold. All other features and records are left to
            `Decoder`.
        """
        rows = np.arange(len(starts))
        for _ in range(_ATTEMPTS):
            if not len(rows):
                break
            try:
                columns = self._decode(data, starts[rows], stops[rows])
            except IrregularRecords as error:
                # If most records differ from the first, the first is the irregular one.
                most = 2 * np.count_nonzero(error.regular) > len(rows)
                rows = rows[error.regular] if most else rows[1:]
            else:
                return columns, rows
        # Without columns, `Decoder` gets all records, and decodes each only once.
        return {}, np.arange(len(starts))

    def _decode(
        self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> dict[str, FeatureColumn]:
        located = self._locate(data, starts, stops)
        columns = {}
        for name, spans in located.items():
            if name in self._schema:
                feature, shapes = self._schema[name], located.get(f"{name}/shape")
                column = feature.codec.column(feature, spans, shapes, self._empty)
                if column:
                    columns[name] = column
        return columns

    def _locate(self, data: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> dict[str, Spans]:
        """The spans of the features that are one value or one run of numbers, by name.

        They include `<name>/shape` for features that take their shape from it.
        """
        try:
            first = parse_example(data.data[starts[0] : stops[0]], self._kinds)
        except ValueError:  # It is not an Example.
            raise IrregularRecords(np.arange(len(starts)) > 0) from None
        spans = {}
        scanner = Scanner(data, starts, stops)
        scanner.expect(b"\x0a")
        ends = scanner.enter()
        require(ends == stops)
        for name, (kind, chunks) in first.items():
            key = name.encode()
            scanner.expect(b"\x0a")
            ends = scanner.enter()
            scanner.expect(b"\x0a" + varint(len(key)) + key + b"\x12")
            require(scanner.enter() == ends)
            if kind and kind == self._kinds.get(name) and len(chunks) == 1:
                scanner.expect(bytes([kind << 3 | 2]))
                require(scanner.enter() == ends)
                scanner.expect(b"\x0a")
                require(scanner.enter() == ends)
                spans[name] = Spans(data, scanner.at, ends)
            elif kind and name in self._companions:
                # Without it a shape might be found, where `Decoder` raises an error.
                raise IrregularRecords(np.arange(len(starts)) > 0)
            scanner.at = ends
        scanner.leave(stops)
        return spans


def _column(feature: Feature, values: list[Any]) -> FeatureColumn:
    return FeatureColumn(object_array(values)) if feature.is_image else column_of(feature, values)
