"""Keeps files open while their dataset is in use, and buffers while their iterator is."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np
import tensorflow as tf

from readers.batches.by_length.batches import BatchesByLength, LengthReader
from readers.batches.by_step import BatchesByStep, StepReader

# Calls by an iterator that has outlived its dataset, each of which reopens the files. Usually the
# iterator only finishes what it had prefetched; one that calls more often is still reading.
_LAST_CALLS = 8

# In bytes: TensorFlow takes over an aligned array without a copy.
_ALIGNMENT = 64

_Batches = TypeVar("_Batches", BatchesByStep, BatchesByLength)


class DatasetHandle(Generic[_Batches]):
    """A reference to batches, which stay open as long as a dataset that reads them.

    TensorFlow keeps Python functions, and everything they refer to, until the process ends. So the
    functions refer to this handle only, and the dataset refers to the batches; iterators keep their
    dataset.

    Args:
        batches: The open batches.
        reopen: Opens them again for an iterator that has outlived its dataset.
    """

    def __init__(self, batches: _Batches, reopen: Callable[[], _Batches | None]) -> None:
        self._reopen: Callable[[], _Batches | None] = reopen
        self._batches: Callable[[], _Batches | None] = weakref.ref(batches)
        if not tf.executing_eagerly():
            # A dataset made inside a function leaves nothing but its graph behind.
            self._batches = lambda: batches
        self._reopened = 0
        self._names = weakref.WeakValueDictionary[int, _IteratorName]()
        self._numbers = itertools.count(1)

    def __call__(self) -> _Batches:
        batches = self._batches()
        if batches is None:
            batches = self._reopen()
            assert batches is not None
            self._reopened += 1
            if self._reopened > _LAST_CALLS:
                # Only objects inside TensorFlow still refer to the dataset, and they keep reading.
                self._batches = lambda: batches
        return batches

    def reader(self, number: int, place: Any) -> tuple[Any, np.ndarray]:
        """The reader of an iterator, and int64 [], the number to give in the iterator's next call.

        The iterator must keep that array, or a tensor that shares its memory: the reader is
        released when the array is.

        Args:
            number: The number from the last call of the iterator; 0 if there was none. An iterator
                that was restored from a checkpoint may have the number of another one.
            place: Where the iterator reads on.
        """
        name = self._names.get(number)
        reader = name.reader if name else None
        if name is None or reader is None or reader.place != place:
            batches = self()
            reader, name = batches.reader(), _IteratorName(next(self._numbers))
            # A dataset that is deleted must not leave files open in what TensorFlow still holds.
            if self._batches() is batches:
                self._names[name.number], name.reader = name, reader
        return reader, np.asarray(name)

    def kept_by(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset, which keeps the batches open from now on."""
        weakref.finalize(dataset, _release, self._names, self()).atexit = False
        return dataset


class _IteratorName:
    """The number of an iterator, in an array that lives as long as the iterator.

    Attributes:
        number: The number.
        reader: The reader of the iterator; None if none is kept.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.reader: StepReader | LengthReader | None = None
        memory = np.full(2 * _ALIGNMENT // 8, number, np.int64)
        start = -memory.ctypes.data % _ALIGNMENT // 8
        self._memory = memory[start : start + 1].reshape(())
        # An array made of this object refers to it.
        self.__array_interface__ = self._memory.__array_interface__


def _release(names: weakref.WeakValueDictionary[int, _IteratorName], batches: Any) -> None:
    """Releases all readers of batches, and with them the files."""
    for name in list(names.values()):
        name.reader = None
