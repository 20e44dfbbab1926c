"""Values in a form in which those of several readers can be compared."""

from __future__ import annotations

from typing import Any

import numpy as np


def trace(value: Any) -> Any:
    """A value that equals that of another reader only if dtype, shape and every bit are the same."""
    if isinstance(value, list):
        return tuple(map(trace, value))
    if isinstance(value, (bytes, memoryview)):
        return "object", (), bytes(value)
    array = np.asarray(value)
    if array.dtype.hasobject:
        items = array.ravel().tolist()
        nested = tuple(trace(i) if isinstance(i, (list, np.ndarray)) else i for i in items)
        return "object", array.shape, nested if array.shape else nested[0]
    return array.dtype.name, array.shape, array.tobytes()
