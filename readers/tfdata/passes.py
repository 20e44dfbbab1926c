"""Reads the batches of a pass, starting at any number, as arrays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from readers.batches.batch_source import BatchSource
from readers.batches.stream import made_from
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.feed import Batch

_LOGGER = logging.getLogger("readers")


def read_pass(
    batches: BatchSource[Any], bridge: TensorBridge, of_pass: int, number: int, after_error: bool
) -> Iterator[Batch]:
    """Yields the batches of a pass from a number on. If `after_error` its place is unknown, the pass ends."""
    cursor, end = batches.bounds_of(of_pass)
    try:
        first, _ = batches.after(cursor, number, None)
    except Exception as error:
        if not after_error:
            raise
        _LOGGER.warning("%s: this pass ends early: %s", batches.plan.name, error)
        return
    for arrays, _ in made_from(batches, bridge.arrays, (first, 0), end):
        yield arrays
        del arrays  # Its memory can be used again while the next one is read.
