"""A store's bad weather: a proxy that makes a share of all requests fail, each in a way drawn at random."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from tests.support.object_stores import Fault, Proxy, Request

_SLOW_SECONDS = (0.5, 3.0)

_FAULTS = {
    "500": Fault(500),
    "503": Fault(503),
    "reset": Fault("refuse"),
    "lost answer": Fault("refuse", after=True),
    "cut": Fault("cut"),
    "short": Fault("short"),
    "slow": None,
}


class Weather(Proxy):
    """A proxy through which requests fail by chance. It keeps counts, not the requests.

    Args:
        port: The store's port.
        share: The share of requests that fail.

    Attributes:
        counts: Requests by method, and faults by kind.
    """

    def __init__(self, port: int, share: float) -> None:
        self.counts: Counter[str] = Counter()
        self._share, self._random, self._drawing = share, random.Random(0), threading.Lock()
        super().__init__(port, errors_as="s3")

    def chosen(self, method: str, path: str) -> Fault | None:
        """The fault of this request, if any; a slow answer waits here."""
        with self._drawing:
            self.counts[f"requests {method}"] += 1
            if self._random.random() >= self._share:
                return None
            kind = self._random.choice(list(_FAULTS))
            seconds = self._random.uniform(*_SLOW_SECONDS)
            # A listing that ends early but looks whole is broken XML: no store sends that. Its path has no object.
            is_object = "/" in path.strip("/")
            if kind in ("cut", "short") and (
                method != "GET" or (kind == "short" and not is_object)
            ):
                kind = "500"
            self.counts[f"faults {kind}"] += 1
        if kind == "slow":
            time.sleep(seconds)
        return _FAULTS[kind]

    def note(self, request: Request) -> None:
        """Keeps nothing of a request: hours of them would fill the memory."""
