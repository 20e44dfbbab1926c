"""Queries about many files, made in parallel: each takes milliseconds in a store or on a network disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_LOCAL_THREADS = 16

# Starting threads takes longer than asking a local disk about fewer files.
_FEW_LOCAL = 64


def map_in_threads(
    ask: Callable[[_Item], _Answer], items: Iterable[_Item], are_local: bool, most: int = 64
) -> list[_Answer]:
    """The results for items in order, up to `most` computed at a time (fewer if local); raises the first item's error."""
    items = list(items)
    if len(items) < (_FEW_LOCAL if are_local else 2):
        return [ask(item) for item in items]
    with ThreadPoolExecutor(_LOCAL_THREADS if are_local else most) as threads:
        return list(threads.map(ask, items))
