"""Calls of Python by TensorFlow's threads, none of which is left when the interpreter ends.

TensorFlow keeps a Python function that a graph may call until the process ends, and all that it refers to. So there is
one for all datasets, which finds the function of one by its number as long as that exists.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from readers.tfdata.errors import error_text

# In seconds: how long no call may begin before all iterators count as idle. One that reads ahead begins
# a call within a millisecond of the last one, until its buffers are full.
_QUIET = 0.5

_NUMBERS = itertools.count()


class PythonFunction:
    """A function of Python that graphs may call as long as this object exists.

    Args:
        function: Returns an array for each spec. The first is an error, a string [].
        specs: The dtypes and shapes of its arrays.
        is_stateful: Whether it may return something else for the same arrays.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Any]],
        specs: Sequence[tf.TensorSpec],
        is_stateful: bool = False,
    ) -> None:
        self._function, self._specs, self._is_stateful = function, specs, is_stateful
        self._number = next(_NUMBERS)
        _FUNCTIONS[self._number] = self
        if not tf.executing_eagerly():
            # A dataset made inside a function leaves only its graph behind.
            _OF_GRAPHS.append(self)

    def __call__(self, tensors: Sequence[Any]) -> list[tf.Tensor]:
        """Adds a call to the graph.

        Args:
            tensors: What the function is called with, as arrays.

        Returns:
            The tensors, of unknown shapes. If the function raises an error, or if the interpreter ends, all but the
            error have no elements, and scalars are 0 or empty.
        """
        # The number is an input: equal calls without state become one.
        given = [tf.constant(self._number, tf.int64), *map(tf.convert_to_tensor, tensors)]
        dtypes = [spec.dtype for spec in self._specs]
        call = tf.raw_ops.PyFunc if self._is_stateful else tf.raw_ops.PyFuncStateless
        return list(call(input=given, token=_token(), Tout=dtypes))

    def run(self, *arrays: np.ndarray) -> Sequence[Any]:
        """The arrays of a call."""
        try:
            with _CALLS.one() as may_run:
                if not may_run:
                    raise StopIteration
                return self._function(*arrays)
        except StopIteration:  # The operation is out of range.
            raise
        except Exception as error:
            return [error_text(error), *arrays_of_nothing(self._specs[1:])]


_FUNCTIONS = weakref.WeakValueDictionary[int, PythonFunction]()

_OF_GRAPHS = list[PythonFunction]()


def _called(number: Any, *arrays: np.ndarray) -> Sequence[Any]:
    function = _FUNCTIONS.get(int(number))
    if function is None:
        raise RuntimeError(
            "the dataset of readers.load was deleted while an iterator of it still reads: keep the dataset"
        )
    return function.run(*arrays)


@functools.cache
def _token() -> str:
    """The name by which graphs call `_called`."""
    with tf.Graph().as_default() as graph:
        (found,) = tf.numpy_function(_called, [tf.constant(0, tf.int64)], [tf.int64])
    _GRAPHS.append(graph)  # It keeps the function.
    token: bytes = found.op.get_attr("token")
    return token.decode()


_GRAPHS = list[tf.Graph]()


def arrays_of_nothing(specs: Sequence[tf.TensorSpec]) -> list[np.ndarray]:
    """Arrays without elements, of some dtypes and numbers of dimensions; scalars are 0 or b""."""
    return [
        np.full(
            [0] * spec.shape.rank, b"" if spec.dtype == tf.string else 0, spec.dtype.as_numpy_dtype
        )
        for spec in specs
    ]


def of_shapes(tensors: Sequence[tf.Tensor], specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """The tensors, with the shapes of the specs."""
    return [tf.ensure_shape(t, s.shape) for t, s in zip(tensors, specs, strict=True)]


class _Calls:
    """Counts the calls in progress, and refuses others once the interpreter ends.

    A thread that then waits for the interpreter's lock never gets it. So the iterator that made the call
    waits without end when it is deleted, and the process with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active, self._last, self._is_ending = 0, 0.0, False

    @contextlib.contextmanager
    def one(self) -> Iterator[bool]:
        """Counts a call; whether it may run, because the interpreter does not end."""
        with self._lock:
            may_run = not self._is_ending
            if may_run:
                self._last = time.monotonic()
                self._active += 1
        try:
            yield may_run
        finally:
            if may_run:
                with self._lock:
                    self._active -= 1

    def end(self) -> None:
        """Refuses all further calls, and waits until none is in progress or begins."""
        with self._lock:
            self._is_ending = True
        while self._active or time.monotonic() - self._last < _QUIET:
            time.sleep(_QUIET / 100)


_CALLS = _Calls()
atexit.register(_CALLS.end)
