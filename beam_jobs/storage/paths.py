"""Paths and patterns: makes them absolute, matches them, and finds their common folder."""

from __future__ import annotations

import fnmatch
import functools
import glob
import itertools
import os
import re
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

from beam_jobs.errors import UsageError
from beam_jobs.storage.encodings import is_utf8
from beam_jobs.storage.files import store_of
from readers.files.local import is_local, path_text
from readers.files.stores.clients import is_store

GLOB = re.compile(r"[*?\[]")

# Explorer's caches and settings, and the folder that macOS adds to archives.
_HIDDEN = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx"}

_ESCAPED = re.compile(r"\[([*?[])\]")

# The parts of a pattern: stars, a set of characters (a bracket in front is one of them), or other characters.
_PARTS = re.compile(
    r"\*\*|\*|\[(?:!(?:\][^\]]*|[^\]]+)|(?!!)(?:\][^\]]*|[^\]]+))\]|[^*\[]+|.", re.DOTALL
)

_STARS = {"**": ".*", "*": r"[^/\\]*"}

# The part of a pattern before its first wildcard.
FIXED = re.compile(r"(?:[^*?\[]|\[[*?[]\])*")


def absolute(pattern: str) -> str:
    """The absolute form of a pattern, which means the same in any directory.

    A directory, on a disk or in a store, becomes the pattern of all files under it. A local path that
    exists is taken literally, whatever characters it contains.

    Raises:
        UsageError: the pattern is empty, the name of its folder is not UTF-8, or a store denies access.
    """
    if not pattern:
        raise UsageError("--input is empty: name files or a folder")
    pattern = path_text(pattern)
    if is_store(pattern) and not GLOB.search(pattern):
        return pattern.rstrip("/") + ("/**" if _is_store_folder(pattern) else "")
    if not is_local(pattern):
        return pattern
    # Not Path.resolve: a symlink must keep its name, or keys would differ between machines.
    path = Path(pattern.rstrip("/") or "/").absolute()
    if not is_utf8(str(path)):
        raise UsageError(
            f"{pattern}: this is {str(path)!r}, whose name is not UTF-8: rename the folder: keys and the "
            "manifest are UTF-8"
        )
    if os.path.exists(path):  # Path.exists raises an error for a name that is too long.
        return glob.escape(str(path)) + ("/**" if path.is_dir() else "")
    return str(path)


def _is_store_folder(path: str) -> bool:
    """Whether there are objects under a path, and none at the path itself."""
    path = path.rstrip("/")
    store, below = store_of(path), f"{path}/"
    first = next(store.objects(path), None)  # A name sorts before all that begin with it.
    if not first or first.path == path:
        return False
    if first.path.startswith(below) and is_seen(first.path, path):
        return True
    return any(is_seen(file.path, path) for file in store.objects(below))


def refuse_links(directory: str) -> None:
    """Raises UsageError for an output that is a local file, or has links that would change files elsewhere."""
    if not is_local(directory) or not os.path.exists(directory):
        return
    if not os.path.isdir(directory):
        raise UsageError(f"--output {directory}: this is a file; name a directory")
    for entry in filter(os.DirEntry.is_symlink, os.scandir(directory)):
        raise UsageError(
            f"--output {directory}: {entry.name!r} is a link to {os.readlink(entry.path)}, whose files "
            "would be changed; remove the link, or name another directory"
        )


def absolute_path(path: str) -> str:
    """The absolute form of a local path; a remote path without final slashes."""
    path = path_text(path)
    return str(Path(path).absolute()) if is_local(path) else path.rstrip("/")


def fixed_folder(pattern: str) -> str:
    """The deepest folder that contains all possible matches, as written in the pattern."""
    fixed: str = FIXED.findall(pattern)[0]
    return fixed.rsplit("/", 1)[0]


def unescaped(pattern: str) -> str:
    """The path that `glob.escape` turned into this pattern."""
    return _ESCAPED.sub(r"\1", pattern)


def common_root(patterns: list[str]) -> str:
    """The deepest directory that contains all possible matches of patterns from `absolute`, without a final slash.

    Raises UsageError if the patterns are on different filesystems.
    """
    parts = [unescaped(fixed_folder(pattern)).split("/") for pattern in patterns]
    common = os.path.commonprefix(parts)  # noqa: RUF071  (Of lists of names.)
    root = "/".join(common)
    if not all(map(is_local, patterns)) and len(common) < 3:
        raise UsageError(f"--input {' '.join(patterns)}: the inputs have no common directory")
    return root


def comparable(path: str) -> str:
    """A path in the form in which paths are compared that people and programs wrote on several systems.

    Windows separates folders by backslashes, macOS decomposes letters with accents, spreadsheets add blanks.
    """
    parts = path.strip().replace("\\", "/").split("/")
    return unicodedata.normalize("NFC", "/".join(part for part in parts if part not in ("", ".")))


def spellings(path: str) -> Iterable[str]:
    """A path as it is, then without blanks around it, in composed letters, and in decomposed ones."""
    bare = path.strip()
    composed, decomposed = unicodedata.normalize("NFC", bare), unicodedata.normalize("NFD", bare)
    return dict.fromkeys((path, bare, composed, decomposed))


def is_hidden(name: str) -> bool:
    """Whether the name of a file or a folder marks it as hidden on Linux, macOS or Windows."""
    return (name[0] == "." and name not in (".", "..")) or name.lower() in _HIDDEN


def membership(folder: str) -> Callable[[str], bool]:
    """A function that checks whether a file is in an absolute folder, whatever symlinks lead to either; "" has none."""
    if not folder or not is_local(folder):
        return lambda path: bool(folder) and path.startswith(f"{folder}/")
    real = os.path.realpath(folder)

    # Files are listed folder by folder.
    @functools.lru_cache(maxsize=16)
    def is_below(other: str) -> bool:
        return is_local(other) and f"{os.path.realpath(other)}/".startswith(f"{real}/")

    return lambda path: is_below(path.rpartition("/")[0])


def is_seen(path: str, top: str, hidden: bool = False) -> bool:
    """Whether an object counts as a file under the folder `top`.

    Consoles create empty objects whose names end with a slash, to show folders.
    """
    names = filter(None, path[len(top) :].split("/"))
    return not path.endswith("/") and (hidden or not any(map(is_hidden, names)))


def leading(pattern: str) -> Callable[[str], bool]:
    """A function that checks whether a folder below the fixed one of a pattern may have matches.

    So one file is found without a walk through all neighbouring folders. The function is called only
    for folders whose parent it accepted.
    """
    fixed = fixed_folder(pattern)
    parts = pattern[len(fixed) + 1 :].split("/")
    # Only a single star stays within a name: `?` and `[!a]` also match a slash.
    simple = itertools.takewhile(lambda part: "**" not in part and not {*"?["} & {*part}, parts)
    within = list(simple)
    levels = range(1, min(len(parts), len(within) + 1))
    folders = [matching("/".join([fixed, *within[:level]])) for level in levels]
    above = unescaped(fixed).count("/") + 1

    def leads(folder: str) -> bool:
        level = folder.count("/") - above
        if level < len(folders):
            return folders[level].match(folder) is not None
        return len(within) < len(parts)

    return leads


def matching(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression, which matches what Beam's filesystems match."""
    # The standard library writes (?s:...)\Z, and its star would match a slash.
    parts = (_STARS.get(part) or fnmatch.translate(part)[4:-3] for part in _PARTS.findall(pattern))
    return re.compile("".join(parts) + r"\Z", re.DOTALL)
