"""Values of a fixture that are only made for the tests that run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lazily(dict[K, V], Generic[K, V]):
    """A dictionary that makes the value of a key when it is first asked for."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        self[key] = self._make(key)
        return self[key]
