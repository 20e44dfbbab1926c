"""Reads the batches of a pass, starting at any number, as arrays."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

from readers.batches.batch_source import BatchSource
from readers.batches.stream import made_from
from readers.order.state import Cursor
from readers.tfdata.bridge import TensorBridge
from readers.tfdata.feed import Batch

_LOGGER = logging.getLogger("readers")


def read_pass(
    batches: BatchSource[Any], bridge: TensorBridge, of_pass: int, number: int
) -> Iterator[Batch]:
    """Yields the batches of a pass, starting at a number."""
    cursor, end = batches.bounds_of(of_pass)
    first = _after(batches, cursor, number)
    for arrays, _ in made_from(batches, bridge.arrays, (first, 0), end):
        yield arrays
        del arrays  # Its memory can be used again while the next one is read.


def _after(batches: BatchSource[Any], cursor: int | Cursor, count: int) -> int | Cursor:
    """The cursor after `count` more batches. Without it the pass cannot continue, which `ignore_errors` would hide."""
    if isinstance(cursor, int):
        return cursor + count
    groups = itertools.chain.from_iterable(of for _, of in batches.epochs(cursor, None))
    try:
        for group in itertools.islice(groups, count):
            cursor = group.after
    except Exception as error:
        _LOGGER.warning("%s: this pass ends early: %s", batches.plan.name, error)
        raise
    return cursor
