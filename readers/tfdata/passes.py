"""The passes over a dataset, each of which TensorFlow asks for one batch after another."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from readers.batches.batch_source import BatchSource
from readers.batches.stream import made_from
from readers.order.state import Cursor
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.errors import NO_ERROR, error_text
from readers.tfdata.python_calls import arrays_of_nothing

# How many passes are kept of iterators that were restored from a checkpoint, whose end is not seen.
_MOST_RESTORED = 4

# In bytes: TensorFlow takes over an aligned array without a copy.
_ALIGNMENT = 64

# A number of a pass, that of a name, and that of a batch in the pass.
_Key = tuple[int, int, int]

# Where a batch is, and the batches from it on, if they are read already.
_Position = tuple[int | Cursor, Iterator[Any] | None]


class Passes:
    """Reads the batches of all passes over a dataset.

    Args:
        batches: The batches.
        bridge: Makes arrays of them.

    Attributes:
        batches: As given.
        begin_specs, read_specs: Of the arrays that `begin` and `read` return.
    """

    def __init__(self, batches: BatchSource[Any], bridge: TensorBridge) -> None:
        self.batches, self._bridge = batches, bridge
        self._count, self._names = itertools.count(), itertools.count()
        self._alive = weakref.WeakValueDictionary[int, _Pass]()
        self._next = dict[_Key, _Position]()
        self._nothing = arrays_of_nothing(bridge.specs)
        text = tf.TensorSpec([], tf.string)
        self.begin_specs, self.read_specs = (
            [text, tf.TensorSpec([2], tf.int64)],
            [text, *bridge.specs],
        )

    def begin(self) -> list[Any]:
        """Begins the next pass: returns `NO_ERROR`, and int64 [2], its number and its name.

        The pass is released when that array is, which TensorFlow keeps while it reads the pass.
        """
        number, name = next(self._count), next(self._names)
        made = self._alive[name] = _Pass(number, name)
        weakref.finalize(made, self._forget, name).atexit = False
        return [NO_ERROR, np.asarray(made)]

    def read(self, which: np.ndarray, number: Any) -> list[Any]:
        """Reads a batch of a pass.

        Args:
            which: int64 [2], what `begin` returned, or its copy from a checkpoint.
            number: The number of the batch in the pass.

        Returns:
            The error, or `NO_ERROR`; and the arrays of the batch.

        Raises:
            StopIteration: The pass has ended.
        """
        of_pass, name = which.tolist()
        known = self._next.pop((of_pass, name, int(number)), None)
        cursor, stream = known or (self._place(of_pass, int(number)), None)
        if stream is None:
            _, end = self.batches.bounds_of(of_pass)
            stream = made_from(self.batches, self._bridge.arrays, (cursor, 0), end)
        error, arrays = NO_ERROR, self._nothing
        following: _Position
        try:
            arrays, (after, _) = next(stream)
            following = after, stream
        except StopIteration:
            raise
        except Exception as failure:
            error, following = error_text(failure), (self._after(cursor, 1), None)
        self._next[of_pass, name, int(number) + 1] = following
        if name not in self._alive:
            self._forget_restored()
        return [error, *arrays]

    def _place(self, of_pass: int, number: int) -> int | Cursor:
        """Where a batch of a pass is."""
        return self._after(self.batches.bounds_of(of_pass)[0], number)

    def _after(self, cursor: int | Cursor, count: int) -> int | Cursor:
        """Where the batch is that follows `count` others from a cursor on."""
        if isinstance(cursor, int):
            return cursor + count
        groups = itertools.chain.from_iterable(of for _, of in self.batches.epochs(cursor, None))
        return [cursor, *(group.after for group in itertools.islice(groups, count))][-1]

    def _forget(self, name: int) -> None:
        for key in [key for key in self._next if key[1] == name]:
            self._next.pop(key, None)

    def _forget_restored(self) -> None:
        restored = [key for key in self._next if key[1] not in self._alive]
        for key in restored[:-_MOST_RESTORED]:
            self._next.pop(key, None)


class _Pass:
    """A number of a pass and a name, in an array that lives as long as TensorFlow keeps it."""

    def __init__(self, number: int, name: int) -> None:
        memory = np.empty(2 * _ALIGNMENT // 8, np.int64)
        start = -memory.ctypes.data % _ALIGNMENT // 8
        self._memory = memory[start : start + 2]
        self._memory[:] = number, name
        # An array made of this object refers to it.
        self.__array_interface__ = self._memory.__array_interface__
