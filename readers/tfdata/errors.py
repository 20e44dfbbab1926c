"""Errors of Python that become errors of the graph, with their text as it is."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

# A string [] in place of the message of an error.
NO_ERROR = b""


def error_text(error: Exception) -> bytes:
    """The message of an error on a line of its own.

    An exception would be shown with twenty lines of Python stack, and where errors are ignored
    TensorFlow would retry the step without end.
    """
    is_expected = isinstance(error, (ValueError, OSError, ImportError))
    text = str(error) if is_expected else f"{type(error).__name__}: {error}"
    return f"\n{' '.join(text.splitlines())}".encode()


def unless_failed(error: tf.Tensor, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The tensors; when run, fails with the message if there is one.

    Args:
        error: `NO_ERROR`, or what `error_text` returned, a string [].
        tensors: Tensors that Python returned together with it.
    """
    # The op whose error shows a string as it is: Assert escapes quotes and line ends. It is an
    # input of an Assert because TensorFlow drops an op whose result is not used.
    text = tf.where(error == NO_ERROR, b"0", error)
    number = tf.strings.to_number(text, name="reading_failed")
    with tf.control_dependencies([tf.debugging.Assert(number == 0, [number])]):
        return [tf.identity(tensor) for tensor in tensors]
