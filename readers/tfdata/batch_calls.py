"""What one call of Python reads: several batches, and the place of the next one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.by_length.batches import BatchesByLength
from readers.batches.by_step import BatchesByStep
from readers.order.state import Cursor
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.errors import NO_ERROR, error_text
from readers.tfdata.iterators import IteratorReaders
from readers.tfdata.python_calls import arrays_of_nothing

# Batches handed to TensorFlow in one Python call: a call costs as much as a batch of small records,
# and the next batch is decoded faster if the core has done nothing else in between. A call ends
# with the batch that makes it this large, because images and padding are larger than in their
# files.
_CALL_BYTES, _CALL_STEPS = 8 << 20, 16

# The place of an iterator before its first call, and after its last.
FIRST_PLACE, _LAST_PLACE = b"first", b""

_NO_END = np.iinfo(np.int64).max


class BatchCalls:
    """Reads the batches of all iterators over a dataset.

    The place of an iterator is the end of its pass and where to find its next batch, int64 [n] as bytes. Its first
    call begins the next pass over the dataset.

    Args:
        batches: The batches.
        bridge: Makes arrays of them.

    Attributes:
        batches: As given.
        specs: Of the arrays that a call returns.
    """

    def __init__(self, batches: BatchesByStep | BatchesByLength, bridge: TensorBridge) -> None:
        self.batches, self._bridge = batches, bridge
        self._readers, self._passes = IteratorReaders(batches), itertools.count()
        nbytes = (batches.plan.record_bytes or 1) * np.max(batches.options.batch_size)
        self._together = max(min(int(_CALL_BYTES / nbytes), _CALL_STEPS), 1)
        self._nothing = arrays_of_nothing(bridge.specs)
        text, number = tf.TensorSpec([], tf.string), tf.TensorSpec([], tf.int64)
        self.specs = [text, number, text, number, *bridge.specs * self._together]

    def read(self, place: bytes, name: int) -> list[Any]:
        """Reads the next batches of an iterator.

        Args:
            place: The place of the iterator.
            name: Its number from the last call; 0 before the first one.

        Returns:
            The error of the first batch, or `NO_ERROR`; the number of batches, 0 at the end of the pass; the
            next place of the iterator, and its number; and the arrays of each batch. The place after a batch
            that cannot be read is that of the batch after it.
        """
        if place == _LAST_PLACE:
            return arrays_of_nothing(self.specs)
        cursor, end = self._first() if place == FIRST_PLACE else self._at(place)
        reader, number = self._readers.reader(name, cursor)
        error, arrays, count, nbytes = NO_ERROR, list[np.ndarray](), 0, 0
        while count < self._together and nbytes < _CALL_BYTES:
            try:
                found = reader.batch(cursor, end)
                if found is None:
                    break
                batch = self._bridge.arrays(found[0], reader.memory.empty)
            except Exception as failure:
                if not count:  # After the batches before it, the next call fails.
                    error, cursor = error_text(failure), self._after(cursor)
                break
            cursor, count = found[1], count + 1
            nbytes += sum(array.nbytes for array in batch)
            arrays += batch
        rest = self._nothing * (self._together - count)
        return [error, np.int64(count), _place(cursor, end), number, *arrays, *rest]

    def _first(self) -> tuple[int | Cursor, int]:
        """Where the next pass over the dataset begins, and its end."""
        cursor, end = self.batches.bounds_of(next(self._passes))
        return cursor, _NO_END if end is None else end

    def _at(self, place: bytes) -> tuple[int | Cursor, int]:
        end, *numbers = np.frombuffer(place, np.int64).tolist()
        if isinstance(self.batches, BatchesByStep):
            return numbers[0], end
        return Cursor(numbers[0], numbers[1], tuple(numbers[2:])), end

    def _after(self, cursor: Any) -> int | Cursor:
        """Where to find the batch after the one at a cursor, which cannot be read."""
        if isinstance(self.batches, BatchesByStep):
            return cursor + 1
        return next(after for _, after in self.batches.groups(cursor, None))


def _place(cursor: int | Cursor, end: int) -> bytes:
    numbers = [cursor]
    if isinstance(cursor, Cursor):
        numbers = [cursor.epoch, cursor.place, *cursor.held]
    return np.array([end, *numbers], np.int64).tobytes()
