"""Values that a process creates once, in whichever thread needs them first, and a forked process creates again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class PerProcess(Generic[_Value]):
    """Up to `most` values by key, such as clients of servers, whose connections and threads a fork must not share."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Hashable, _Value] = {}
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        # A thread of the parent may have held its lock. The parent still uses its values, so they are not closed.
        self._of_parent, self._values = self._values, {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """The value of a key, which is created if this process has none."""
        if (value := self._values.get(key)) is not None:
            return value
        with self._lock:
            if (value := self._values.get(key)) is None:
                if len(self._values) >= self._most:
                    self._values = {}
                value = self._values[key] = make()
        return value
