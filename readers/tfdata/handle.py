"""A stream's files and memory, held as long as the dataset that reads it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import tensorflow as tf

from readers.batches.by_length import Grouped
from readers.batches.by_step import Stream

# Of an iterator that has outlived its dataset: what it has made ahead is soon all, or it reads on.
_LAST_CALLS = 8

_S = TypeVar("_S", Stream, Grouped)


class Kept(Generic[_S]):
    """A stream, with its files and memory, that is there as long as a dataset which reads it.

    TensorFlow keeps a function of Python, and all that it refers to, until the process ends. So the
    function refers to this, and the dataset to the stream; iterators keep their dataset.

    Args:
        stream: The stream.
        reopen: Opens it again, for an iterator that has outlived its dataset.
    """

    def __init__(self, stream: _S, reopen: Callable[[], _S | None]) -> None:
        self._reopen: Callable[[], _S | None] = reopen
        self._stream: Callable[[], _S | None] = weakref.ref(stream)
        if not tf.executing_eagerly():
            # Of a dataset that is made within a function, only the graph is left after it.
            self._stream = lambda: stream
        self._reopened = 0

    def __call__(self) -> _S:
        stream = self._stream()
        if stream is None:
            stream = self._reopen()
            assert stream is not None
            self._reopened += 1
            if self._reopened > _LAST_CALLS:
                # Something of TensorFlow's alone refers to the dataset, and reads on.
                self._stream = lambda: stream
        return stream

    def by(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The dataset, which keeps the stream from now on."""
        weakref.finalize(dataset, lambda stream: None, self()).atexit = False
        return dataset
