"""Questions about many files, asked side by side: one to a store or a network disk takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

THREADS = 16

# Starting threads takes longer than asking a local disk about fewer files.
_FEW_LOCAL = 64


def map_in_threads(
    ask: Callable[[_Item], _Answer],
    items: Iterable[_Item],
    are_local: bool,
    most: int = THREADS,
) -> list[_Answer]:
    """The answer for each item, in their order; the error of the first item that has one is raised.

    Args:
        ask: A function that is safe to call from several threads.
        items: The items.
        are_local: Whether all answers come from local disks.
        most: How many are asked about at a time.
    """
    items = list(items)
    if len(items) < (_FEW_LOCAL if are_local else 2):
        return [ask(item) for item in items]
    with ThreadPoolExecutor(most) as threads:
        return list(threads.map(ask, items))
