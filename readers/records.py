"""The records of a plan by their number, decoded, without TensorFlow."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from readers.dataset import Part, Plan
from readers.fetch import ShardBytes, read_index
from readers.format.example import Decoder
from readers.format.manifest import DatasetError
from readers.format.tfrecord import FOOTER_BYTES, HEADER_BYTES, unframe
from readers.pictures import with_pixels

# Each open local shard costs a file descriptor, of which a process often has 1024.
_OPEN_SHARDS = 256


class Records:
    """Random access to the records of a plan; safe to share between threads, and to pickle.

    Shards and their indexes are opened when the first record of theirs is asked for.

    Args:
        plan: One that knows its number of records.
        verify_crc: Whether the CRC32C of every record read is checked.
    """

    def __init__(self, plan: Plan, verify_crc: bool = True) -> None:
        if plan.records is None:
            raise ValueError(f"{plan.name}: the number of records is unknown")
        self.plan = plan
        self._verify_crc = verify_crc
        self._decoder = Decoder(plan.schema)
        self._ends = np.cumsum([part.take or 0 for part in plan.parts], dtype=np.int64)
        self._indexes: dict[int, np.ndarray] = {}
        self._shards: OrderedDict[int, ShardBytes] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.plan.records or 0

    def __getstate__(self) -> dict[str, Any]:
        return {"plan": self.plan, "verify_crc": self._verify_crc}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def read(self, numbers: Sequence[int] | np.ndarray) -> list[dict[str, Any]]:
        """The records of some numbers, each from 0 to the length, in the order asked for.

        Raises:
            CorruptRecordError: A record fails its checksum; the message names file and byte.
            ValueError: A record does not fit the schema; the message also names the feature.
        """
        wanted = np.asarray(numbers, np.int64)
        records: list[dict[str, Any]] = [{}] * len(wanted)
        parts = np.searchsorted(self._ends, wanted, side="right")
        for number in np.unique(parts).tolist():
            places = np.flatnonzero(parts == number)
            part = self.plan.parts[number]
            rows = wanted[places] - (self._ends[number] - (part.take or 0)) + part.skip
            shard, index = self._open(number)
            spans = index[rows]
            framed = shard.slices(spans)
            for place, (offset, _), data in zip(
                places.tolist(), spans.tolist(), framed, strict=True
            ):
                records[place] = self._record(part.path, offset, data)
        return records

    def _record(self, path: str, offset: int, framed: memoryview) -> dict[str, Any]:
        if self._verify_crc:
            data = unframe(framed, path, offset)
        else:
            data = framed[HEADER_BYTES:-FOOTER_BYTES]
        try:
            return with_pixels(self._decoder.decode(data), self.plan.schema)
        except ValueError as error:
            raise ValueError(f"{path}: the record at byte {offset}: {error}") from None

    def _open(self, number: int) -> tuple[ShardBytes, np.ndarray]:
        part = self.plan.parts[number]
        with self._lock:
            if number not in self._indexes:
                self._indexes[number] = _checked_index(part)
            if number not in self._shards:
                self._shards[number] = ShardBytes(part.path)
                if len(self._shards) > _OPEN_SHARDS:
                    self._shards.popitem(last=False)
            self._shards.move_to_end(number)
            return self._shards[number], self._indexes[number]


def _checked_index(part: Part) -> np.ndarray:
    index = read_index(part.path)
    if len(index) != part.total:
        raise DatasetError(
            f"{part.path}: the manifest says {part.total} records, the index has {len(index)}"
        )
    return index
