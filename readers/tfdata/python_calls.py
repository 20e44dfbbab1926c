"""Calls of Python by TensorFlow's threads, none of which is left when the interpreter ends."""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from readers.tfdata.errors import error_text, no_error

# In seconds: how long no call may begin before all iterators count as idle. One that reads ahead begins
# a call within a millisecond of the last one, until its buffers are full of errors.
_QUIET = 0.5


def python_call(
    function: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    specs: Sequence[tf.TensorSpec],
    stateful: bool = False,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Calls a Python function whenever the graph is run.

    Args:
        function: Returns an array for each spec.
        tensors: What it is called with, as arrays.
        specs: The dtypes of its arrays, and their numbers of dimensions.
        stateful: Whether it may return something else for the same arrays.

    Returns:
        The error, string [], which `unless_failed` raises; and the tensors, of unknown shapes. If the
        function fails, the tensors have no elements, and scalars are 0; so they are without an error when the
        interpreter ends, which must end the dataset.
    """

    def called(*arrays: np.ndarray) -> list[Any]:
        try:
            with _CALLS.one() as may_run:
                found = function(*arrays) if may_run else arrays_of_nothing(specs)
                return [no_error(), *found]
        except Exception as error:
            # Made only now: TensorFlow keeps this function, and what belongs to it, for good.
            return [error_text(error), *arrays_of_nothing(specs)]

    dtypes = [tf.string, *(spec.dtype for spec in specs)]
    error, *found = tf.numpy_function(called, tensors, dtypes, stateful=stateful)
    return error, found


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
