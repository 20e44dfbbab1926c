"""Lists a store in ranges of names, many at once, in the order of the names.

A page of a listing names up to a thousand objects and says where the next one begins, so pages of one
listing come one after another. But a listing may begin after any name, so the names are cut into
ranges at folders. Objects side by side in one folder are listed page by page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain, islice, takewhile
from typing import NamedTuple

from readers.files.files import FileInfo
from readers.files.stores.ahead import in_background
from readers.files.stores.store import Page, RangeListed, Store

_AT_ONCE = 16

# Pages that wait for those before them: 128,000 objects take some 40 MB.
_PAGES_HELD = 128

# Folders in folders are looked for up to this depth, until there are `_AT_ONCE` of them.
_LEVELS = 3

# Spans of a long listing, of which some may be empty.
_SPANS = 1024

# Pages of folders that are read before a listing is cut into spans: 100,000 folders in 6 s.
_FOLDER_PAGES = 100


class Span(NamedTuple):
    """Consecutive names of a listing.

    Attributes:
        after: The URL or path that all of them follow; empty for the first ones.
        until: The last one that may be among them; None for the last ones.
    """

    after: str = ""
    until: str | None = None

    def holds(self, name: str) -> bool:
        """Whether a name is among them."""
        return self.after < name and (self.until is None or name <= self.until)

    def may_hold(self, folder: str) -> bool:
        """Whether names that begin with a folder's and a slash may be among them."""
        first, end = f"{folder}/", f"{folder}{_AFTER_SLASH}"
        return self.after < end and (self.until is None or first < self.until)


# No name in a folder follows the folder's with this character.
_AFTER_SLASH = chr(ord("/") + 1)


ALL = Span()


class _Range:
    """The objects with names after one, up to another.

    Attributes:
        after: The last name that is listed, or that is not in the range.
        until: The last name that may be in the range; None if it ends with the listing.
        pages: Pages that are not yielded yet.
        request: The request of the next page.
        ended: Whether there are no more pages.
    """

    def __init__(self, after: str, until: str | None) -> None:
        self.after, self.until = after, until
        self.pages: deque[list[FileInfo]] = deque()
        self.request: Future[Page] | None = None
        self.ended = False

    def add(self, page: Page) -> None:
        """Adds the next page."""
        files, until = page.files, self.until
        self.ended = not page.more
        if until is not None and files and files[-1].path >= until:
            self.ended = True
            files = [file for file in files if file.path <= until]
        if files:
            self.after = files[-1].path
            self.pages.append(files)

    def cut(self, cuts: Sequence[str]) -> list[_Range]:
        """Ends the range at the first cut, and returns those after it; `cuts` are in order."""
        names = [name for name in cuts if name > self.after]
        if not names:
            return []
        self.until = names[0]
        return [_Range(start, end) for start, end in zip(names, [*names[1:], None], strict=True)]


def listed_in_ranges(store: Store, prefix: str, span: Span = ALL) -> Iterator[FileInfo]:
    """Yields what `Store.objects` yields, or a span of it, in the same order; raises what it raises."""
    if not isinstance(store, RangeListed):
        yield from store.objects(prefix)
        return
    whole = _Range(*span)
    whole.add(store.page(prefix, span.after))
    if whole.ended:
        yield from chain.from_iterable(whole.pages)
        return
    folders = _folders(store, _first_folders(store, prefix)) if span == ALL else []
    found = _Ranges(store, prefix, [whole, *whole.cut(folders)])
    try:
        yield from found
    finally:
        found.close()


class _Ranges:
    """Consecutive ranges that are listed at the same time.

    Args:
        store: The store.
        prefix: What the URLs of all objects begin with.
        ranges: Ranges in the order of their names.
    """

    def __init__(self, store: RangeListed, prefix: str, ranges: Sequence[_Range]) -> None:
        self._store, self._prefix = store, prefix
        self._ranges = deque(ranges)

    def __iter__(self) -> Iterator[FileInfo]:
        while self._ranges:
            first = self._ranges[0]
            self._request()
            if first.pages:
                yield from first.pages.popleft()
            elif first.request:
                first.request.result()  # Raises what the request raised.
            else:
                self._ranges.popleft()
            self._collect()

    def close(self) -> None:
        """Gives up the requests that are not under way."""
        for each in self._ranges:
            if each.request:
                each.request.cancel()

    def _collect(self) -> None:
        for each in self._ranges:
            if each.request and each.request.done() and not each.request.exception():
                each.add(each.request.result())
                each.request = None

    def _request(self) -> None:
        """Requests the next pages of the first ranges."""
        left = _AT_ONCE - sum(each.request is not None for each in self._ranges)
        held = sum(len(each.pages) for each in self._ranges)
        for each in self._ranges:
            # The first one's pages are yielded next, however many of the others wait.
            may = (left > 0 and held < _PAGES_HELD) or each is self._ranges[0]
            if may and not each.request and not each.ended:
                each.request = in_background(self._store.page, self._prefix, each.after)
                left -= 1


def _folders(store: RangeListed, found: list[str]) -> list[str]:
    """Some of these folders and of those inside them, in order: about `_AT_ONCE`, if there are that many near."""
    for _ in range(_LEVELS - 1):
        if not 0 < len(found) < _AT_ONCE:
            break
        requests = [in_background(_first_folders, store, folder) for folder in found]
        inside = list(chain.from_iterable(request.result() for request in requests))
        if not inside:
            break
        found = sorted({*found, *inside})
    return _some(found, _AT_ONCE)


def _first_folders(store: RangeListed, prefix: str) -> list[str]:
    return next(store.folders(prefix), [])


def _some(names: Sequence[str], count: int) -> list[str]:
    """About as many of some names, evenly spread; all if there are no more."""
    return [*names[:: -(-len(names) // count) or 1]]


def spans_of(store: Store, prefix: str, is_alone: Callable[[str], bool]) -> list[Span]:
    """Consecutive spans that hold all objects whose URLs begin with a prefix, for as many tasks to list.

    Args:
        store: The store.
        prefix: What the URLs begin with.
        is_alone: Whether an object is work enough for a task, given its URL.
    """
    if not isinstance(store, RangeListed):
        return [ALL]
    first = store.page(prefix, "")
    if not first.more:
        return _between([file.path for file in first.files if is_alone(file.path)])
    pages = list(islice(takewhile(bool, store.folders(prefix)), _FOLDER_PAGES))
    cuts = _some(list(chain.from_iterable(pages)), _SPANS)
    if len(cuts) < _AT_ONCE:
        cuts = _folders(store, cuts)
    return _between(cuts)


def spans_at(names: Sequence[str]) -> list[Span]:
    """Consecutive spans that begin after some of the names, which are in order."""
    return _between(_some(names, _SPANS))


def _between(cuts: Sequence[str]) -> list[Span]:
    """The spans before, between and after some names, which are in order."""
    return [Span(start, end) for start, end in zip(["", *cuts], [*cuts, None], strict=True)]
