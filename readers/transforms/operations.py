"""The operations by which transforms are computed, for TensorFlow's tensors or for NumPy arrays.

A transform is written once: `arrays` and `tftensors` have functions of the same names for
it. So both kinds have the same checks, draw the same numbers, and no transform imports TensorFlow.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

# A `tf.Tensor` or a `np.ndarray`; functions return the kind that they are given. TensorFlow has no
# types for checkers, and a union with `np.ndarray` would refuse correct programs.
Array = Any


def operations_of(*values: Any) -> ModuleType:
    """The operations of tensors if a value is a tensor, otherwise those of arrays."""
    # Where nobody has imported TensorFlow, no value is a tensor.
    is_tensor = getattr(sys.modules.get("tensorflow"), "is_tensor", None)
    if is_tensor and any(map(is_tensor, values)):
        from readers.transforms import tftensors

        return tftensors
    from readers.transforms import arrays

    return arrays
