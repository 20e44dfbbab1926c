"""Questions about many files, asked side by side: one to a store or a network disk takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_THREADS = 16

# A store answers each after its latency, and takes little of a processor.
_STORE_THREADS = 64

# Starting threads takes longer than asking a local disk about fewer files.
_FEW_LOCAL = 64


def map_in_threads(
    ask: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    are_local: bool,
    most: int = _STORE_THREADS,
) -> list[_Answer]:
    """The answer for each item, in their order; the error of the first item that has one is raised.

    Args:
        ask: A function that is safe to call from several threads.
        items: The items.
        are_local: Whether all answers come from local disks.
        most: How many a store is asked about at a time.
    """
    items = list(items)
    if len(items) < (_FEW_LOCAL if are_local else 2):
        return [ask(item) for item in items]
    with ThreadPoolExecutor(_THREADS if are_local else most) as threads:
        return list(threads.map(ask, items))
