"""The retry policy for requests to a store, for reading and writing: which are retried, and after which waits."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

# Waits of about 0.5, 1, 2, ... 16 seconds: eight tries take about 48 s.
TRIES, FIRST_WAIT, LONGEST_WAIT = 8, 0.5, 16.0


def may_pass(status: int) -> bool:
    """Whether the same request may succeed a moment after a response with this HTTP status."""
    return status in (408, 429) or (status >= 500 and status != 501)


def tries(most: int) -> Iterator[int]:
    """Yields 1 to `most`, with growing random waits between, so that throttled requests do not return together."""
    for number in range(1, most + 1):
        if number > 1:
            longest = min(FIRST_WAIT * 2 ** (number - 2), LONGEST_WAIT)
            time.sleep(longest * random.uniform(0.5, 1.5))
        yield number
