"""A store's bad weather: a proxy that makes a share of all requests fail, each in a way drawn at random."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

from tests.support.object_stores import Fault, Proxy, Request

_SLOW_SECONDS = (0.5, 3.0)

# A listing that ends early but looks whole is broken XML: no store sends that. Its path has no object.
_FAULTS: dict[str, Callable[[str, bool], Fault | None]] = {
    "500": lambda _method, _is_object: Fault(500),
    "503": lambda _method, _is_object: Fault(503),
    "reset": lambda _method, _is_object: Fault("refuse"),
    "lost answer": lambda _method, _is_object: Fault("refuse", after=True),
    "cut": lambda method, _is_object: Fault("cut") if method == "GET" else None,
    "short": lambda method, is_object: Fault("short") if method == "GET" and is_object else None,
    "slow": lambda _method, _is_object: None,
}


class Weather(Proxy):
    """A proxy through which requests fail by chance. It keeps counts, not the requests.

    Args:
        port: The store's port.
        share: The share of requests that fail.
        seed: The seed of the draws.

    Attributes:
        counts: Requests by method, and faults by kind.
    """

    def __init__(self, port: int, share: float, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._share, self._random, self._drawing = share, random.Random(seed), threading.Lock()
        super().__init__(port, errors_as="s3")

    def chosen(self, method: str, path: str) -> Fault | None:
        """The fault of this request, if any; a slow answer waits here."""
        with self._drawing:
            self.counts[f"requests {method}"] += 1
            if self._random.random() >= self._share:
                return None
            kind = self._random.choice(list(_FAULTS))
            seconds = self._random.uniform(*_SLOW_SECONDS)
            fault = _FAULTS[kind](method, "/" in path.strip("/"))
            if fault is None and kind != "slow":  # Not for this request: any that fits.
                kind, fault = "500", Fault(500)
            self.counts[f"fault {kind}"] += 1
        if kind == "slow":
            time.sleep(seconds)
        return fault

    def note(self, request: Request) -> None:
        """Keeps nothing of a request: hours of them would fill the memory."""
