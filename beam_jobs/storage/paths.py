"""Paths and patterns: which are local, and the folder that all inputs share."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from beam_jobs.errors import UsageError
from beam_jobs.storage.objects import is_store, store_of

GLOB = re.compile(r"[*?\[]")

_ESCAPED = re.compile(r"\[([*?[])\]")

_FIXED = re.compile(r"(?:[^*?\[]|\[[*?[]\])*")

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_local(path: str) -> bool:
    """Whether a path has no `scheme://`."""
    return not _SCHEME.match(path)


def absolute(pattern: str) -> str:
    """The pattern as a worker in another directory must see it; most remote ones as they are.

    A directory, local or of a store, stands for all files below it; a local path that is there is
    meant as it stands, whatever characters it holds.

    Raises:
        UsageError: It is empty, or a store refuses.
    """
    if not pattern:
        raise UsageError("--input is empty: name files or a folder")
    if is_store(pattern) and not GLOB.search(pattern):
        return pattern.rstrip("/") + ("/**" if _is_store_folder(pattern) else "")
    if not is_local(pattern):
        return pattern
    # Not Path.resolve: a link must keep its name, or keys would differ between machines.
    path = Path(pattern.rstrip("/") or "/").expanduser().absolute()
    if path.exists():
        return glob.escape(str(path)) + ("/**" if path.is_dir() else "")
    return str(path)


def _is_store_folder(path: str) -> bool:
    """Whether objects lie below a path and none has its name."""
    path = path.rstrip("/")
    store = store_of(path)
    named = next(store.listed(path), None)  # A name stands before all that begin with it.
    if named and named.path == path:
        return False
    return any(_is_seen(found.path, path) for found in store.listed(f"{path}/"))


def absolute_path(path: str) -> str:
    """A path as a worker in another directory must see it; remote ones as they are."""
    return str(Path(path).expanduser().absolute()) if is_local(path) else path.rstrip("/")


def _fixed_folder(pattern: str) -> str:
    """The deepest folder above all that one pattern can match, as it stands in the pattern."""
    fixed: str = _FIXED.findall(pattern)[0]
    return fixed.rsplit("/", 1)[0]


def _unescaped(pattern: str) -> str:
    """The path that a pattern spells, as `glob.escape` wrote it."""
    return _ESCAPED.sub(r"\1", pattern)


def common_root(patterns: list[str]) -> str:
    """The deepest directory above everything that the patterns can match, without a final slash.

    Args:
        patterns: As `absolute` gives them.

    Raises:
        UsageError: They lie on different filesystems.
    """
    parts = []
    for pattern in patterns:
        parts.append(_unescaped(_fixed_folder(pattern)).split("/"))
    common = parts[0]
    for other in parts[1:]:
        same = [a == b for a, b in zip(common, other, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    root = "/".join(common)
    if not all(map(is_local, patterns)) and len(common) < 3:
        raise UsageError(f"--input {' '.join(patterns)}: the inputs have no common directory")
    return root


def _is_seen(path: str, top: str, hidden: bool = False) -> bool:
    """Whether an object is a file for those who look below `top`.

    Consoles make empty objects whose names end with a slash, to show folders.
    """
    return not path.endswith("/") and (hidden or "/." not in path[len(top) :])
