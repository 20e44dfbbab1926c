"""Errors of Python that become errors of the graph, with their text as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# A string [] in place of the message of an error, which is text and so no number. It is an array, because TensorFlow
# converts bytes twice.
NO_ERROR = np.array(b"0", object)

# TensorFlow shows where the first operation that a message names was made, which in a user's graph is twenty lines.
# No graph has this one.
_NODE = "\t [[{{node reading_failed}}]]"


def error_text(error: Exception) -> np.ndarray:
    """The message of an error on a line of its own, a string [].

    An exception would be shown with twenty lines of Python stack, and where errors are ignored
    TensorFlow would retry the step without end.
    """
    is_expected = isinstance(error, (ValueError, OSError, ImportError))
    text = str(error) if is_expected else f"{type(error).__name__}: {error}"
    return np.array(f"\n{' '.join(text.splitlines())}\n{_NODE}".encode(), object)


def unless_failed(error: tf.Tensor, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors; when run, fails with the message if there is one.

    Args:
        error: `NO_ERROR`, or what `error_text` returned, a string [].
        tensors: Tensors that Python returned together with it.
    """
    # The op whose error shows a string as it is: Assert escapes quotes and line ends. It is an
    # input of an Assert because TensorFlow drops an op whose result is not used.
    number = tf.strings.to_number(error)
    # Not tf.debugging.Assert, whose control flow the threads of a pool would run.
    failed = tf.raw_ops.Assert(condition=number == 0, data=[number])
    with tf.control_dependencies([failed]):
        return [tf.identity(tensor) for tensor in tensors]
