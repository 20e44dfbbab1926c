"""Lists the files that a pattern matches, on any filesystem."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator

from beam_jobs.errors import UsageError
from beam_jobs.storage.files import files_of, store_of
from beam_jobs.storage.paths import FIXED, fixed_folder, is_seen, unescaped
from beam_jobs.storage.ranges import ALL, Span, listed_in_ranges, spans_at, spans_of
from readers.files.files import FileInfo
from readers.files.local import is_local
from readers.files.stores.clients import is_store

# The parts of a pattern: stars, a set of characters (a bracket in front is one of them), or a character.
_TOKENS = re.compile(
    r"\*\*|[*?]|\[(?:!(?:\][^\]]*|[^\]]+)|(?!!)(?:\][^\]]*|[^\]]+))\]|.", re.DOTALL
)

_WILDCARDS = {"**": ".*", "*": r"[^/\\]*", "?": "."}

# With fewer folders than this, those inside them are looked for, up to `_LEVELS` below the first.
_ENOUGH_FOLDERS = 64
_LEVELS = 3

# Folders that link to each other in a circle have paths of any number of links: for 14 of them, more than
# anything can list.
_MOST_LINKS = 8

# The same for processes of this machine, for each of them: so that none is idle while the others list the last files.
_SPANS_PER_PROCESS = 4

# Every task lists the folders above those at which a listing is cut, so it is not cut at folders
# beside more files than this.
_MOST_LISTED_AGAIN = 100_000

# Processes of this machine read folders again in a moment, and the process that hands out spans only looks at as many
# files itself; a folder with more of them is cut among its files.
_MOST_LISTED_HERE = 5_000


def local_files(pattern: str, in_order: bool = False, span: Span = ALL) -> Iterator[FileInfo]:
    """Yields the local files that a pattern matches, as a shell would.

    Symlinked folders are followed; Beam's own walk silently leaves them out. Names that begin with a
    dot are skipped unless the pattern contains the dot. A broken symlink is a file that cannot be read.

    Args:
        in_order: Whether to sort each folder by name, which holds its entries in memory.
        span: The paths that are listed.

    Raises:
        UsageError: A path leads through many links to folders.
        OSError: A folder cannot be listed.
    """
    fixed = fixed_folder(pattern)
    top = unescaped(fixed)
    wanted, leads = _matching(pattern), _leading(pattern)
    hidden = "/." in pattern[len(fixed) :]

    # The folders from the top to the one that is listed: each with its device and inode, how many links
    # lead to it, and its entries.
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
                f"--input {pattern}: {folder} leads through {links} links to folders, expected "
                f"{_MOST_LINKS} at most: give the folders themselves"
            )
        in_turn = (
            sorted(entries, key=lambda entry: entry.name) if in_order else _files_first(entries)
        )
        listed.append((folder, identity, links, iter(in_turn)))

    enter(top, 0)
    while listed:
        folder, _, links, entries = listed[-1]
        for entry in entries:
            name = entry.name
            if name[0] == "." and not hidden:
                continue
            path = f"{folder}/{name}"
            if not _is_folder(entry):
                if wanted.match(path) and span.holds(path):
                    yield _local_info(entry, path)
            elif leads(path) and span.may_hold(path):
                enter(path, links + entry.is_symlink())
                break
        else:
            listed.pop()


def _leading(pattern: str) -> Callable[[str], bool]:
    """A function of a folder below the fixed one of a pattern: may there be matches in it?

    So one file is found without a walk through all folders beside it. The function is called only for
    folders whose parent it accepted.
    """
    fixed = fixed_folder(pattern)
    parts = pattern[len(fixed) + 1 :].split("/")
    # Only a single star stays within a name: `?` and `[!a]` match a slash, too.
    simple = itertools.takewhile(lambda part: "**" not in part and not {*"?["} & {*part}, parts)
    within = list(simple)
    folders = [
        _matching("/".join([fixed, *within[: level + 1]])) for level in range(len(parts[:-1]))
    ][: len(within)]
    above = unescaped(fixed).count("/") + 1

    def leads(folder: str) -> bool:
        level = folder.count("/") - above
        if level < len(folders):
            return folders[level].match(folder) is not None
        return len(within) < len(parts)

    return leads


def _files_first(entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    """Yields the entries that are no folders, then the folders, before which all have been read.

    So no descriptor is open while the folders are listed, however many levels they have.
    """
    folders = []
    for entry in entries:
        if _is_folder(entry):
            folders.append(entry)
        else:
            yield entry
    yield from folders


def _matching(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression, which matches what Beam's filesystems match."""
    return re.compile("".join(map(_regex_of, _TOKENS.findall(pattern))) + r"\Z", re.DOTALL)


def _regex_of(token: str) -> str:
    if token in _WILDCARDS:
        return _WILDCARDS[token]
    if len(token) == 1:
        return re.escape(token)
    negated = token[1] == "!"
    inside = token[1 + negated : -1].replace("\\", r"\\").replace("[", r"\[")
    if inside[0] == "^" and not negated:
        inside = f"\\{inside}"
    return f"[{'^' * negated}{inside}]"


def _remote_files(pattern: str, limited: bool, span: Span) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches in a store or on a filesystem of Beam's.

    Apart from symlinks, the same files match as in `local_files`.

    Args:
        limited: Whether only the first ones are needed, so that a store is listed page by page.
        span: The names that a store lists.
    """
    folder, prefix = fixed_folder(pattern), FIXED.findall(pattern)[0]
    wanted, hidden = _matching(pattern), "/." in pattern[len(folder) :]
    top = unescaped(folder)
    if is_store(pattern):
        store, start = store_of(pattern), unescaped(prefix)
        found: Iterable[FileInfo] = (
            store.objects(start) if limited else listed_in_ranges(store, start, span)
        )
    else:
        found = files_of(top).listed(top)
    for file in found:
        if wanted.match(file.path) and is_seen(file.path, top, hidden):
            yield file


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


def spans_of_pattern(
    pattern: str, is_alone: Callable[[str], bool], processes: int = 1
) -> list[Span]:
    """The spans that as many tasks list: all files that a pattern matches, each in one of them.

    Args:
        pattern: A pattern on a disk, in a store, or on another filesystem, which is not cut.
        is_alone: Whether a file is work enough for a task, given its path or URL.
        processes: The number of processes of this machine that list; 1 if workers of an engine do.
    """
    if is_local(pattern):
        return _local_spans(unescaped(fixed_folder(pattern)), is_alone, processes)
    if not is_store(pattern):
        return [ALL]
    with _as_usage_errors(pattern):
        return spans_of(store_of(pattern), unescaped(FIXED.findall(pattern)[0]), is_alone)


def _local_spans(top: str, is_alone: Callable[[str], bool], processes: int) -> list[Span]:
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
                    found += itertools.chain.from_iterable(_some_names(f, enough) for f in level)
                return spans_at(sorted(filter(_is_text, found)))
            if _is_folder(entry):
                folders.append(entry.path)
            elif is_alone(entry.path):
                files.append(entry.path)
        cuts = [*found, *files, *(f"{folder}/" for folder in folders)]
        found = sorted(filter(_is_text, cuts))
        if not folders or len(found) >= enough:
            break
        level = folders
    return spans_at(found)


def _some_names(folder: str, parts: int) -> list[str]:
    """Names that cut what a folder holds into parts of the same size."""
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(folder or "/"))
        step = max(-(-len(names) // parts), 1)
        return [f"{folder}/{name}" for name in names[step::step]]
    return []


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yields what a folder on a disk holds; nothing of one that cannot be read."""
    with contextlib.suppress(OSError), os.scandir(folder or "/") as entries:
        yield from entries


def _is_text(name: str) -> bool:
    """Whether a name is valid in UTF-8, in which the names of spans are handed to other workers."""
    return name == name.encode("utf-8", "replace").decode()


@contextlib.contextmanager
def _as_usage_errors(pattern: str) -> Iterator[None]:
    """Raises the errors of a filesystem as what they mean for a pattern."""
    try:
        yield
    except (ValueError, OSError) as error:  # BeamIOError is an OSError.
        raise UsageError(f"--input {pattern}: {error}") from None


def match(
    pattern: str, limit: int | None = None, in_order: bool = False, span: Span = ALL
) -> Iterator[FileInfo]:
    """Yields the files that a pattern matches.

    Args:
        limit: Maximum number of files. The first ones by name are yielded, the same in every run.
        in_order: Whether to sort by name without a limit, too.
        span: The names that are listed, if the pattern is on a disk or in a store and there is no
            limit.

    Raises:
        UsageError: the filesystem refuses, or its package is not installed.
    """
    with _as_usage_errors(pattern):
        if is_local(pattern):
            found = local_files(pattern, in_order or limit is not None, span)
        else:
            found = _remote_files(pattern, limit is not None, span)
        yield from itertools.islice(found, limit)
