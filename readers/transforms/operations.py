"""The operations that transforms are made of, for TensorFlow tensors or for NumPy arrays.

A transform is written once: `arrays` and `tftensors` have functions with the same names. So both
kinds have the same checks and draw the same numbers, and no transform imports TensorFlow.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

# A `tf.Tensor` or a `np.ndarray`; functions return the kind that they receive. TensorFlow has no
# types for checkers, and a union with `np.ndarray` would reject correct programs.
Array = Any


def operations_of(*values: Any) -> ModuleType:
    """The operations for tensors if any value is a tensor, otherwise those for arrays."""
    # Without an import of TensorFlow, no value is a tensor.
    is_tensor = getattr(sys.modules.get("tensorflow"), "is_tensor", None)
    if is_tensor and any(map(is_tensor, values)):
        from readers.transforms import tftensors

        return tftensors
    from readers.transforms import arrays

    return arrays
