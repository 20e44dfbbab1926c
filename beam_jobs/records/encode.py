"""Records -> framed Examples with their statistics, in any process: nothing here imports Beam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from beam_jobs.records.statistics import Statistics
from readers.format.encode import Encoder
from readers.format.schema import Feature
from readers.format.tfrecord import frame, frame_all

# Bytes of records whose statistics are gathered together, as their values are kept until then: of
# 150 recordings that takes a fifth of the time of one by one, and a token that occurs often in
# thousands of texts is counted once.
_BYTES_TOGETHER = 1 << 20


class RecordCounter:
    """Counts records that are handed over as they are.

    Args:
        schema: The features that are counted, by name.
    """

    def __init__(self, schema: Mapping[str, Feature]) -> None:
        self._schema = schema
        self._statistics: dict[int, Statistics] = {}

    def count(self, splits: np.ndarray, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds records.

        Args:
            splits: uint8 [n].
            columns: The values of each feature, as `Encoder.check` gives them.
        """
        for split in np.unique(splits).tolist():
            chosen = (splits == split).tolist()
            rows = {name: list(compress(values, chosen)) for name, values in columns.items()}
            self._of(split).add_columns(sum(chosen), rows)

    def _of(self, split: int) -> Statistics:
        return self._statistics.setdefault(split, Statistics(self._schema))

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        """Yields (split, statistics) of the records since the last call."""
        yield from self._statistics.items()
        self._statistics = {}


class RecordEncoder(RecordCounter):
    """Checks, encodes, frames and counts records.

    Args:
        encoder: Of their schema; several may share one.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder.schema)
        self._encoder = encoder
        self._pending: dict[int, list[Mapping[str, Any]]] = {}
        self._pending_bytes = 0

    def encode(self, split: int, record: Mapping[str, Any]) -> bytes:
        """The framed Example of a record that goes into a split.

        Raises:
            ValueError: It does not fit the schema.
        """
        values = self._encoder.check(record)
        framed = frame(self._encoder.pack(values))
        # Last: a record that is rejected must be in no figure.
        self._pending.setdefault(split, []).append(values)
        self._pending_bytes += len(framed)
        if self._pending_bytes >= _BYTES_TOGETHER:
            self._count()
        return framed

    def encode_all(self, splits: np.ndarray, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        """The framed Examples of many records.

        Args:
            splits: uint8 [n].
            columns: The values of each feature, as `Encoder.check` gives them.

        Raises:
            ValueError: A record is larger than any may be.
        """
        framed = frame_all(self._encoder.pack_all(columns))
        self.count(splits, columns)
        return framed

    def _count(self) -> None:
        for split, records in self._pending.items():
            self._of(split).add(records)
        self._pending = {}
        self._pending_bytes = 0

    def statistics(self) -> Iterator[tuple[int, Statistics]]:
        self._count()
        yield from super().statistics()
