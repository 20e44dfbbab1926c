"""Errors of Python that become errors of the graph, with their text as it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

# In place of an error message, which is text and so no number.
_NO_ERROR = "0"


def no_error() -> np.ndarray:
    """What stands for no error, a string []."""
    return np.array(_NO_ERROR.encode(), object)


def error_text(error: Exception) -> np.ndarray:
    """The message of an error on a line of its own, a string [].

    An exception would be shown with twenty lines of Python stack, and where errors are ignored
    TensorFlow would retry the step without end.
    """
    return np.array(f"\n{message_of(error)}".encode(), object)


def message_of(error: Exception) -> str:
    """The message of an error, on one line."""
    is_expected = isinstance(error, (ValueError, OSError, ImportError))
    text = str(error) if is_expected else f"{type(error).__name__}: {error}"
    return " ".join(text.splitlines())


def has_failed(error: tf.Tensor) -> tf.Tensor:
    """Whether a string [] is a message of `error_text`, bool []."""
    return tf.ensure_shape(error, []) != _NO_ERROR


def unless_failed(error: tf.Tensor, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors; when run, fails with the message if there is one.

    Args:
        error: What `no_error` or `error_text` returned, a string [].
        tensors: Tensors that Python returned together with it.
    """
    # The op whose error shows a string as it is: Assert escapes quotes and line ends. It is an
    # input of an Assert because TensorFlow drops an op whose result is not used.
    number = tf.strings.to_number(tf.ensure_shape(error, []), name="reading_failed")
    with tf.control_dependencies([tf.debugging.Assert(number == 0, [number])]):
        return [tf.identity(tensor) for tensor in tensors]
