"""Keeps the files and memory behind a dataset open for exactly as long as the dataset is in use."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import tensorflow as tf

from readers.batches.by_length import BatchesByLength
from readers.batches.by_step import BatchesByStep

# Calls by an iterator that has outlived its dataset, each of which reopens the files. Usually the
# iterator only finishes what it had prefetched; one that calls more often is still reading.
_LAST_CALLS = 8

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

    def kept_by(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset, which keeps the batches open from now on."""
        weakref.finalize(dataset, lambda batches: None, self()).atexit = False
        return dataset
