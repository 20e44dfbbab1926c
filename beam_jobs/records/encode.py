"""Encodes records as framed Examples, and counts them in statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from beam_jobs.records.mapping import Mapper
from beam_jobs.records.statistics import Statistics
from readers.format.encode.index_rows import IndexRows
from readers.format.encode.records import Encoder
from readers.format.schema import Feature
from readers.format.tfrecord import frame_all, frame_parts

# Bytes of records whose values are kept and counted together: for 150 recordings, a fifth of the time
# of one by one. Tokens are counted once for thousands of texts.
_COUNTED_BYTES = 1 << 20


class Record(dict[str, Any]):
    """The features of a record by name.

    Args:
        features: The first of them.
        remarks: What was not read of its input, and what was taken for what, in words that many records share.
    """

    def __init__(self, features: Mapping[str, Any], remarks: tuple[str, ...] = ()) -> None:
        super().__init__(features)
        self.remarks = remarks


class RecordCounter:
    """Collects the statistics of records that have the features of a schema, by split."""

    def __init__(self, schema: Mapping[str, Feature]) -> None:
        self._schema = schema
        self._statistics: dict[int, Statistics] = {}

    def count(self, splits: np.ndarray, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds n records, given their splits, uint8 [n], and n values of each feature, from `Encoder.check`."""
        for split in np.unique(splits).tolist():
            chosen = (splits == split).tolist()
            rows = {name: list(compress(values, chosen)) for name, values in columns.items()}
            self._of(split).add_columns(sum(chosen), rows)

    def _of(self, split: int) -> Statistics:
        if split not in self._statistics:
            self._statistics[split] = Statistics(self._schema)
        return self._statistics[split]

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        """Yields (split, statistics of its records since the last call)."""
        yield from self._statistics.items()
        self._statistics = {}


class RecordEncoder(RecordCounter):
    """Checks, encodes, frames and counts records, whose features a mapper may make first."""

    def __init__(self, encoder: Encoder, mapper: Mapper | None = None) -> None:
        super().__init__(encoder.schema)
        self._encoder, self._mapper = encoder, mapper
        self._rows = IndexRows(encoder.schema)
        self._pending: dict[int, list[Mapping[str, Any]]] = {}
        self._pending_bytes = 0

    def encode(self, split: int, record: Mapping[str, Any], key: str = "") -> tuple[bytes, bytes]:
        """The framed Example of a record of a split, and its row of the index.

        Args:
            split: The number of the split.
            record: The features.
            key: The record's key, if the features do not state it.

        Raises:
            ValueError: the record does not fit the schema.
            RejectError, UsageError: the mapper raises it.
        """
        if self._mapper:
            values = self._mapper.values(record, key or record["key"])
        else:
            values = self._encoder.check(record)
        framed = frame_parts(self._encoder.parts(values))
        # Last, because a rejected record must not be counted.
        if isinstance(record, Record):
            for remark in record.remarks:
                self._of(split).remarks.add(remark, key or record["key"])
        self._pending.setdefault(split, []).append(values)
        self._pending_bytes += len(framed)
        if self._pending_bytes >= _COUNTED_BYTES:
            self._count()
        return framed, self._rows.pack(values)

    def encode_all(
        self, splits: np.ndarray, columns: Mapping[str, Sequence[Any]]
    ) -> tuple[list[bytes], list[bytes]]:
        """The framed Examples of n records, and their rows of the index; ValueError if one is too large."""
        framed = frame_all(self._encoder.pack_all(columns))
        self.count(splits, columns)
        return framed, self._rows.pack_all(columns, len(framed))

    def _count(self) -> None:
        for split, records in self._pending.items():
            self._of(split).add(records)
        self._pending = {}
        self._pending_bytes = 0

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        self._count()
        yield from super().statistics()
