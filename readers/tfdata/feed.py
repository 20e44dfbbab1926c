"""A thread that reads batches ahead of TensorFlow; its operations wait for them without the interpreter's lock."""

from __future__ import annotations

import atexit
import ctypes
import functools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from readers.format.compiled.library import LIBRARY, WITH_LOCK, address

# A batch: an array for each spec.
Batch = Sequence[np.ndarray]

_NUMBER, _POINTER, _TEXT = ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p

# The functions of `operations.c`: a feed is opened and closed; `next` returns what to do for it, and may wait; `put` and
# `fail` add a batch to one of its streams; `release` drops arrays that TensorFlow no longer needs; `end` closes all feeds.
_ARGUMENTS = {
    "open": [],
    "close": [_NUMBER],
    "next": [_NUMBER, _NUMBER, _POINTER],
    "put": [_NUMBER, _NUMBER, _POINTER, _NUMBER],
    "fail": [_NUMBER, _NUMBER, _NUMBER, _TEXT],
    "release": [],
    "end": [],
    "register": [_POINTER] * 5,
}

# The results of `next`; the same numbers as in `operations.c`.
_CLOSED, _READ, _FORGET, _NOTHING = range(4)

# Codes of TensorFlow's errors.
_INVALID_ARGUMENT, _OUT_OF_RANGE = 3, 11

# Functions of the Python interpreter, for `register`.
_OF_PYTHON = ["Py_IncRef", "Py_DecRef", "PyBytes_AsStringAndSize", "Py_AddPendingCall"]

# TensorFlow appends the stack of the first operation that a message names, twenty lines in a user's graph. No graph has
# this operation.
_NODE = "\t [[{{node reading_failed}}]]"

_OF_GRAPHS = list["Feed"]()

# The name of the threads, and for how many seconds the interpreter waits for each before it ends.
_NAME, _LONGEST_END = "readers.load", 5


def _function(library: Any, name: str) -> Callable[..., int]:
    function: Any = getattr(library, f"readers_feed_{name}")
    function.argtypes, function.restype = _ARGUMENTS[name], _NUMBER
    return function


_open, _close, _end, _wait_for_next = (
    _function(LIBRARY, name) for name in ("open", "close", "end", "next")
)
# These do not wait, so they keep the interpreter's lock: other threads would be slow to give it back.
_next, _put, _fail, _release = (
    _function(WITH_LOCK, name) for name in ("next", "put", "fail", "release")
)


class Feed:
    """The batches of all passes over a dataset. A thread reads them as long as this object exists.

    `stream` returns the batches of a pass, given its number, from the one with a second number on, and whether an error came
    before. `specs` are the dtypes and shapes of the arrays of a batch.
    """

    def __init__(
        self, stream: Callable[[int, int, bool], Iterator[Batch]], specs: Sequence[tf.TensorSpec]
    ) -> None:
        _register()
        self._specs, self._number = specs, _open()
        weakref.finalize(self, _close, self._number).atexit = False
        arguments = self._number, stream, specs
        threading.Thread(target=_read, args=arguments, daemon=True, name=_NAME).start()
        if not tf.executing_eagerly():
            # Only the graph of a dataset made inside a function may outlive it.
            _OF_GRAPHS.append(self)

    def begin(self) -> tf.Tensor:
        """Adds the start of a pass to the graph: its number, int64 []. The pass ends when TensorFlow releases it."""
        return _operation("BeamShardsBegin", [self._number], [tf.TensorSpec([], tf.int64)])[0]

    def batch(self, of_pass: tf.Tensor, number: tf.Tensor) -> list[tf.Tensor]:
        """Adds a batch to the graph: its tensors. The operation is out of range after the last batch.

        `of_pass`, int64 [], is the result of `begin`, or its copy from a checkpoint; `number`, int64 [], counts in the pass.
        """
        return _operation("BeamShardsNext", [self._number, of_pass, number], self._specs)


def _operation(name: str, inputs: Sequence[Any], specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Adds an operation on numbers, int64 [], to the graph; returns its results."""
    numbers = [tf.convert_to_tensor(number, tf.int64) for number in inputs]
    dtypes = [spec.dtype for spec in specs]
    enums = [dtype.as_datatype_enum for dtype in dtypes]
    attribute = tf.compat.v1.AttrValue(list=tf.compat.v1.AttrValue.ListValue(type=enums))
    graph = tf.compat.v1.get_default_graph()
    results = graph.create_op(name, numbers, dtypes, attrs={"dtypes": attribute}).outputs
    for tensor, spec in zip(results, specs, strict=True):
        tensor.set_shape(spec.shape)
    return list(results)


@functools.cache
def _register() -> None:
    (path,) = Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework.*")
    of_python = (getattr(ctypes.pythonapi, name) for name in _OF_PYTHON)
    pointers = (ctypes.cast(function, _POINTER) for function in of_python)
    # With the lock, so that only one of several threads registers them.
    register = _function(WITH_LOCK, "register")
    if not register(ctypes.CDLL(str(path))._handle, *pointers):
        raise ImportError(
            f"readers.load cannot use TensorFlow {tf.__version__}, whose C API lacks a function: "
            "pip install -U 'beam-shards[tensorflow]'"
        )


def _read(
    feed: int, stream: Callable[[int, int, bool], Iterator[Batch]], specs: Sequence[tf.TensorSpec]
) -> None:
    """Reads the batches that a feed asks for, until it is closed."""
    answer, streams = np.empty(3, np.int64), dict[int, Iterator[Batch] | None]()
    at = address(answer)
    batch: Batch | None
    of_specs = [
        (spec.dtype.as_datatype_enum, np.dtype(spec.dtype.as_numpy_dtype), len(spec.shape))
        for spec in specs
    ]
    while True:
        _release()
        if (what := _next(feed, 0, at)) == _NOTHING:
            what = _wait_for_next(feed, 1, at)
        if what == _NOTHING:
            continue
        number, of_pass, first = answer.tolist()
        if what == _CLOSED:
            break
        if what == _FORGET:
            streams.pop(number, None)
            continue
        try:
            if (batches := streams.get(number)) is None:
                batches = streams[number] = stream(of_pass, first, number in streams)
            batch = next(batches)
            _hand_over(feed, number, batch, of_specs)
        except BaseException as error:  # If this thread ended, operations would wait forever.
            # A generator that has raised an error ends: a new one reads what follows.
            batches = streams[number] = None
            is_end = isinstance(error, StopIteration)
            _fail(feed, number, _OUT_OF_RANGE if is_end else _INVALID_ARGUMENT, _message(error))
        finally:
            batch = None  # Its memory is reused as soon as TensorFlow has released it.
    _release()


def _hand_over(
    feed: int, stream: int, arrays: Batch, of_specs: Sequence[tuple[int, np.dtype[Any], int]]
) -> None:
    """Puts the arrays of a batch into a feed; texts are bytes."""
    described, kept = list[int](), list[np.ndarray]()
    for array, (enum, dtype, rank) in zip(arrays, of_specs, strict=True):
        if array.dtype != dtype or array.ndim != rank:
            raise TypeError(
                f"{array.dtype} {list(array.shape)}: expected {dtype} of {rank} dimensions"
            )
        contiguous = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        kept.append(contiguous)
        described += (id(contiguous), address(contiguous), contiguous.nbytes, enum, rank)
        described += contiguous.shape
    table = np.array(described, np.int64)
    if _put(feed, stream, address(table), len(kept)):
        raise MemoryError("there is no memory left for a batch")


def _message(error: BaseException) -> bytes:
    """The text of an error on a separate line.

    TensorFlow would show a Python exception with twenty lines of its stack.
    """
    text = " ".join("".join(traceback.format_exception_only(error)).splitlines())
    if isinstance(error, (ValueError, OSError, ImportError)):
        text = text.partition(": ")[2]
    # The name of a file may have bytes that are not UTF-8.
    return f"\n{text}\n{_NODE}".encode(errors="backslashreplace")


@atexit.register
def _end_all() -> None:
    """Ends all threads: a thread that needs the interpreter's lock after the interpreter ended never gets it."""
    _end()
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(_LONGEST_END)
