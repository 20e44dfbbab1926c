"""Lists the files that a pattern matches, on any filesystem; a store in ranges of names, many at once.

A page of a store's listing names up to a thousand objects and states where the next page begins, so the pages of
one listing are requested in turn. But a listing may begin after any name, so the names are cut into ranges at
folders. The objects of one folder are listed page by page.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from beam_jobs.errors import UsageError
from beam_jobs.storage.encodings import is_utf8
from beam_jobs.storage.files import files_of, store_of
from beam_jobs.storage.paths import (
    FIXED,
    fixed_folder,
    is_hidden,
    is_seen,
    leading,
    matching,
    unescaped,
)
from readers.files.files import FileInfo
from readers.files.local import is_local
from readers.files.stores.ahead import in_background
from readers.files.stores.clients import is_store
from readers.files.stores.store import Page, RangeListed, Store

# With fewer folders than this (on a disk, and in a store), folders inside them are searched, up to `_LEVELS` below
# the first.
_ENOUGH_FOLDERS, _AT_ONCE = 64, 16
_LEVELS = 3

# Folders that link to each other in a circle have paths of any number of links: with 14 folders, too many
# to list.
_MOST_LINKS = 8

# Spans per process of this machine, so that none is idle while the others list the last files.
_SPANS_PER_PROCESS = 4

# Every task lists the folders above those at which a listing is cut, so it is not cut at folders with
# more sibling files than this.
_MOST_LISTED_AGAIN = 100_000

# Processes of this machine read folders again quickly, and the process that hands out spans reads only this many
# files; a larger folder is cut among its files.
_MOST_LISTED_HERE = 5_000

# Names of a folder to sort, instead of all, to cut the folder at one of them.
_NAMES_PER_CUT = 64


# Pages that wait for earlier ones: 128,000 objects take about 40 MB.
_PAGES_HELD = 128

# Spans of a long listing; some may be empty.
_SPANS = 1024

# Pages of folders that are read before a listing is cut into spans: 100,000 folders in 6 s.
_FOLDER_PAGES = 100

# "0" sorts right after "/", so `folder0` ends the names in `folder`.
_AFTER_SLASH = chr(ord("/") + 1)


T = TypeVar("T")


class Span(NamedTuple):
    """Consecutive names of a listing.

    Attributes:
        after: The URL or path that all of them follow; empty for the first ones.
        until: The last one that may be among them; None for the last ones.
    """

    after: str = ""
    until: str | None = None

    def may_hold(self, folder: str) -> bool:
        """Whether names that begin with a folder's and a slash may be among them."""
        first, end = f"{folder}/", f"{folder}{_AFTER_SLASH}"
        return self.after < end and (self.until is None or first < self.until)


ALL = Span()


def list_part(
    list_: Callable[[str, Span], Iterable[T]],
    how: Callable[[Iterable[T]], Iterable[T]],
    part: tuple[str, Span],
) -> Iterable[T]:
    """Lists a part with `list` or `iter`; in this module, because processes of the pool must not import Beam."""
    return how(list_(*part))


def match(
    pattern: str, limit: int | None = None, in_order: bool = False, span: Span = ALL
) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches.

    Args:
        limit: Maximum number of files. The first ones by name are yielded, the same in every run.
        in_order: Whether to sort by name without a limit, too.
        span: The names to list, if the pattern is on a disk or in a store, without a limit.

    Raises:
        UsageError: the files cannot be listed, or the package of the filesystem is not installed.
    """
    with _as_usage_errors(pattern):
        if is_local(pattern):
            files = _local_files(pattern, in_order or limit is not None, span)
        else:
            files = _remote_files(pattern, limit is not None, span)
        yield from itertools.islice(files, limit)


def spans_of_pattern(
    pattern: str, fills_task: Callable[[str], bool], processes: int = 1
) -> list[Span]:
    """Spans for tasks that list: each file that a pattern matches is in exactly one span.

    Args:
        pattern: A pattern; one that is neither on a disk nor in a store is not cut.
        fills_task: Whether a file is enough work for a task, given its path or URL.
        processes: The number of processes of this machine that list; 1 if workers of an engine do.
    """
    if is_local(pattern):
        return _local_spans(unescaped(fixed_folder(pattern)), fills_task, processes)
    if not is_store(pattern):
        return [ALL]
    with _as_usage_errors(pattern):
        return spans_of(store_of(pattern), unescaped(FIXED.findall(pattern)[0]), fills_task)


@contextlib.contextmanager
def _as_usage_errors(pattern: str) -> Iterator[None]:
    """Raises the errors of a filesystem as errors about a pattern."""
    try:
        yield
    except (ValueError, OSError) as error:  # BeamIOError is an OSError.
        raise UsageError(f"--input {pattern}: {error}") from None


def _local_files(pattern: str, in_order: bool, span: Span) -> Iterator[FileInfo]:
    """Yields the local files that a pattern matches, as a shell would.

    Symlinked folders are followed; Beam's own walk silently leaves them out. Hidden
    names are skipped unless the pattern names one that begins with a dot. A broken symlink is a file that cannot be read.
    """
    fixed = fixed_folder(pattern)
    top = unescaped(fixed)
    regex, leads = matching(pattern), leading(pattern)
    hidden = "/." in pattern[len(fixed) :]

    # The folders from the top to the current one: each with its device and inode, the number of links on
    # its path, and its entries.
    listed: list[tuple[str, tuple[int, int], int, Iterator[os.DirEntry[str]]]] = []

    def enter(folder: str, links: int) -> None:
        try:
            status = os.stat(folder or "/")
            entries = os.scandir(folder or "/")
        except (FileNotFoundError, NotADirectoryError):
            return
        identity = status.st_dev, status.st_ino
        if any(identity == above for _, above, *_ in listed):  # A link to a folder above itself.
            return
        if links > _MOST_LINKS:
            raise UsageError(
                f"--input {pattern}: {folder} is reached through {links} links to folders, expected "
                f"{_MOST_LINKS} at most: give the folders themselves"
            )
        some = _in_span(entries, f"{folder}/", span)
        in_turn = sorted(some, key=lambda entry: entry.name) if in_order else _files_first(some)
        listed.append((folder, identity, links, iter(in_turn)))

    enter(top, 0)
    while listed:
        folder, _, links, entries = listed[-1]
        for entry in entries:
            name = entry.name
            if not hidden and is_hidden(name):
                continue
            path = f"{folder}/{name}"
            if not _is_folder(entry):
                if regex.match(path):
                    yield _local_info(entry, path)
            elif leads(path) and span.may_hold(path):
                enter(path, links + entry.is_symlink())
                break
        else:
            listed.pop()


def _in_span(
    entries: Iterable[os.DirEntry[str]], folder: str, span: Span
) -> Iterable[os.DirEntry[str]]:
    """The entries of a folder that are folders, or files in a span; all tasks of a shared folder read it."""
    if span.after < folder and (span.until is None or not span.until.startswith(folder)):
        return entries
    start = len(folder)
    after = span.after[start:] if span.after.startswith(folder) else ""
    until = span.until[start:] if span.until and span.until.startswith(folder) else None
    return (
        entry
        for entry in entries
        if (after < entry.name and (until is None or entry.name <= until)) or _is_folder(entry)
    )


def _files_first(entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """Reads all entries, then yields those that are not folders, then the folders.

    So no descriptor is open while the folders are listed, however many levels they have.
    """
    folders = []
    for entry in entries:
        if _is_folder(entry):
            folders.append(entry)
        else:
            yield entry
    yield from folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # A link to itself.
        return False


def _local_info(entry: os.DirEntry[str], path: str) -> FileInfo:
    try:
        status = entry.stat()
    except OSError:  # A broken link.
        return FileInfo(path, 0, 0)
    return FileInfo(path, status.st_size, status.st_mtime_ns)


def _local_spans(top: str, fills_task: Callable[[str], bool], processes: int) -> list[Span]:
    """Spans of the files in a folder on a disk, cut at folders inside it and at files."""
    found, level, listed = list[str](), [top], 0
    enough = _SPANS_PER_PROCESS * processes if processes > 1 else _ENOUGH_FOLDERS
    most = _MOST_LISTED_HERE if processes > 1 else _MOST_LISTED_AGAIN
    for _ in range(_LEVELS):
        folders, files = list[str](), list[str]()
        for entry in itertools.chain.from_iterable(map(_entries, level)):
            listed += 1
            if listed > most:
                if processes > 1 and len(found) < enough:
                    found += _cuts(level, enough)
                return _between(_some(sorted(filter(is_utf8, found)), _SPANS))
            if _is_folder(entry):
                folders.append(entry.path)
            elif fills_task(entry.path):
                files.append(entry.path)
        cuts = [*found, *files, *(f"{folder}/" for folder in folders)]
        found = sorted(filter(is_utf8, cuts))  # As which spans are sent to other workers.
        if not folders or len(found) >= enough:
            break
        level = folders
    return _between(_some(found, _SPANS))


def _cuts(folders: Sequence[str], parts: int) -> list[str]:
    """Names that cut the contents of some folders into parts of about the same size.

    There are no more parts than the processes need, because each part is a pass over its folder, in which processes
    wait for each other: sixteen took sixteen times as long as one.
    """
    names = list[str]()
    for folder in folders:
        names += (entry.path for entry in _entries(folder))
    some = sorted(_some(names, parts * _NAMES_PER_CUT))
    step = -(-len(some) // parts) or 1
    return some[step::step]


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields the entries of a folder on a disk; none if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder or "/") as entries:
        yield from entries


def _remote_files(pattern: str, limited: bool, span: Span) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches in a store or on a filesystem of Beam's.

    Apart from symlinks, the same files match as in `local_files`.
    """
    folder, prefix = fixed_folder(pattern), FIXED.findall(pattern)[0]
    regex, hidden = matching(pattern), "/." in pattern[len(folder) :]
    top = unescaped(folder)
    if is_store(pattern):
        store, start = store_of(pattern), unescaped(prefix)
        files: Iterable[FileInfo] = (
            store.objects(start) if limited else listed_in_ranges(store, start, span)
        )
    else:
        files = files_of(top).listed(top)
    for file in files:
        if regex.match(file.path) and is_seen(file.path, top, hidden):
            yield file


class _Range:
    """The objects with names after one, up to another; `until` is None if they end with the listing."""

    def __init__(self, after: str, until: str | None) -> None:
        self.after, self.until = after, until  # `after` becomes the last listed name.
        self.pages: deque[list[FileInfo]] = deque()  # Those that are not yielded yet.
        self.request: Future[Page] | None = None
        self.ended = False  # Whether the last page was requested.

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

    def ask(self, store: RangeListed, prefix: str) -> bool:
        """Requests the next page, unless it is under way or the range has ended."""
        if self.request or self.ended:
            return False
        self.request = in_background(store.page, prefix, self.after)
        return True

    def collect(self) -> None:
        """Adds the requested page, if it has arrived."""
        if self.request and self.request.done() and not self.request.exception():
            self.add(self.request.result())
            self.request = None


def listed_in_ranges(store: Store, prefix: str, span: Span = ALL) -> Iterator[FileInfo]:
    """Yields the objects of `Store.objects`, or a span of them, in the same order; raises the same errors."""
    if not isinstance(store, RangeListed):
        yield from store.objects(prefix)
        return
    first = _Range(*span)
    first.add(store.page(prefix, span.after))
    ranges = deque([first])
    if not first.ended and span == ALL:
        folders = _folders(store, _first_folders(store, prefix))
        spans = _between([folder for folder in folders if folder > first.after])
        first.until = spans[0].until
        ranges += [_Range(*each) for each in spans[1:]]
    try:
        while ranges:
            first = ranges[0]
            left = _AT_ONCE - sum(each.request is not None for each in ranges)
            room = _PAGES_HELD - sum(len(each.pages) for each in ranges)
            for each in ranges:
                # The pages of the first range are yielded next, however many pages of others wait.
                if each is first or (left > 0 and room > 0):
                    left -= each.ask(store, prefix)
            if first.pages:
                yield from first.pages.popleft()
            elif first.request:
                first.request.result()  # Raises the error of the request.
            else:
                ranges.popleft()
            for each in ranges:
                each.collect()
    finally:
        for each in ranges:
            if each.request:
                each.request.cancel()


def _folders(store: RangeListed, folders: list[str]) -> list[str]:
    """Some of these folders and of their subfolders, in order: about `_AT_ONCE`, if that many are found quickly."""
    for _ in range(_LEVELS - 1):
        if not 0 < len(folders) < _AT_ONCE:
            break
        requests = [in_background(_first_folders, store, folder) for folder in folders]
        deeper = list(itertools.chain.from_iterable(request.result() for request in requests))
        if not deeper:
            break
        folders = sorted({*folders, *deeper})
    return _some(folders, _AT_ONCE)


def _first_folders(store: RangeListed, prefix: str) -> list[str]:
    return next(store.folders(prefix), [])


def _some(names: Sequence[str], count: int) -> list[str]:
    """About that many of some names, evenly spread; all of them if there are fewer."""
    return [*names[:: -(-len(names) // count) or 1]]


def spans_of(store: Store, prefix: str, fills_task: Callable[[str], bool]) -> list[Span]:
    """Consecutive spans of all objects whose URLs begin with a prefix; arguments as for `spans_of_pattern`."""
    if not isinstance(store, RangeListed):
        return [ALL]
    first = store.page(prefix, "")
    if not first.more:
        return _between([file.path for file in first.files if fills_task(file.path)])
    pages = list(itertools.islice(itertools.takewhile(bool, store.folders(prefix)), _FOLDER_PAGES))
    cuts = _some(list(itertools.chain.from_iterable(pages)), _SPANS)
    if len(cuts) < _AT_ONCE:
        cuts = _folders(store, cuts)
    return _between(cuts)


def _between(cuts: Sequence[str]) -> list[Span]:
    """The spans before, between and after some names, which are in order."""
    return [Span(start, end) for start, end in zip(["", *cuts], [*cuts, None], strict=True)]
