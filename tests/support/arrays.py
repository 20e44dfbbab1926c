"""Arrays that tests compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def assert_same(found: Any, expected: Any) -> None:
    """Asserts that two arrays have one dtype, one shape and the same bytes (or objects)."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype == object:
        assert found.tolist() == expected.tolist()
    elif found.tobytes() != expected.tobytes():  # NaNs with the same bits are the same
        np.testing.assert_array_equal(found, expected)
        raise AssertionError("the values are equal, their bits are not (-0.0 or a NaN)")


def ids(batches: Iterable[Mapping[str, Any]]) -> list[int]:
    """The feature `id` of all records, in the order of the batches."""
    return [number for batch in batches for number in np.asarray(batch["id"]).tolist()]
