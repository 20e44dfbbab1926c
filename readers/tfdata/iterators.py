"""The readers of the iterators over a dataset: each has buffers of its own as long as it exists."""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import numpy as np

from readers.batches.batch_source import BatchSource
from readers.batches.reading import BatchReader

# In bytes: TensorFlow takes over an aligned array without a copy.
_ALIGNMENT = 64


class IteratorReaders:
    """A reader for each iterator. TensorFlow does not say which iterator calls: it gives a number in each call.

    Args:
        batches: What is read.
    """

    def __init__(self, batches: BatchSource[Any]) -> None:
        self._batches = batches
        self._names = weakref.WeakValueDictionary[int, _IteratorName]()
        self._numbers = itertools.count(1)

    def reader(self, number: int, place: Any) -> tuple[BatchReader, np.ndarray]:
        """The reader of an iterator, and int64 [], the number to give in the iterator's next call.

        The iterator must keep that array, or a tensor that shares its memory: the reader is
        released when the array is.

        Args:
            number: The number from the last call of the iterator; 0 if there was none. An iterator
                that was restored from a checkpoint may have the number of another one.
            place: Where the iterator reads on.
        """
        name = self._names.get(number)
        if name is None or name.reader.place != place:
            name = _IteratorName(next(self._numbers), BatchReader(self._batches))
            self._names[name.number] = name
        return name.reader, np.asarray(name)


class _IteratorName:
    """The number of an iterator, in an array that lives as long as the iterator.

    Attributes:
        number: The number.
        reader: The reader of the iterator.
    """

    def __init__(self, number: int, reader: BatchReader) -> None:
        self.number, self.reader = number, reader
        memory = np.full(2 * _ALIGNMENT // 8, number, np.int64)
        start = -memory.ctypes.data % _ALIGNMENT // 8
        self._memory = memory[start : start + 1].reshape(())
        # An array made of this object refers to it.
        self.__array_interface__ = self._memory.__array_interface__
