"""`beam-shards expire`: drops older generations, and the files that no other one names."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator

from beam_jobs.dataset.changes import changing
from beam_jobs.dataset.generations import State, files_in, folder_of, state_of
from beam_jobs.errors import UsageError
from beam_jobs.storage.atomic import delete_files, drop_empty_directories, list_files
from readers.format.display import counted, format_bytes
from readers.format.manifest import TAGS, Manifest, generation_file, join, read_tag

# How long an unfinished folder is kept, so that its command may be repeated.
_KEPT_NS = 24 * 3600 * 10**9


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    if parsed.keep < 1:
        raise UsageError(f"--keep {parsed.keep}: expected at least 1")
    with changing(parsed.directory, {"name": "expire"}) as change:
        directory, state = change.directory, state_of(change.directory)
        kept = tagged(state).values()
        expired = [n for n in state.generations[: -parsed.keep] if n not in kept]
        names = drop(state, expired, time.time_ns() - _KEPT_NS)
    size = format_bytes(sum(state.sizes.get(name, 0) for name in names))
    dropped = ", ".join(map(str, expired)) or "none"
    yield f"{directory}: dropped generations: {dropped}; {counted(len(names), 'file')}, {size}"


def tagged(state: State) -> dict[str, int]:
    """The file of each tag, and the number of its generation."""
    tags = [name for name in state.sizes if folder_of(name) == TAGS]
    return {name: read_tag(state.directory, name.partition("/")[2])[0] for name in tags}


def drop(state: State, expired: Collection[int], since: int) -> list[str]:
    """Deletes generations, files that no other one names, and folders of runs that have ended without a file since (ns)."""
    directory = state.directory
    paths = {n: Manifest.read(f"{directory}@{n}").paths for n in state.generations}
    needed = {path for n in paths if n not in expired for path in paths[n]}
    ours = state.named | state.noted  # No shards of another writer are in such folders.
    dead = {p for n in expired for p in paths[n] if folder_of(p) in ours} - needed
    start = len(join(directory, ""))
    # A store may not state when a file was written.
    written = [(folder_of(f.path[start:]), f.modified or since + 1) for f in list_files(directory)]
    recent = {folder for folder, modified in written if modified > since}
    folders = {*map(folder_of, dead), *(state.noted - recent)} - {*map(folder_of, needed)}
    files = (dead | files_in(state, folders)) & state.sizes.keys()
    # Manifests go last: by them, the next command knows which files are dead.
    names = [*sorted(files), *map(generation_file, expired)]
    delete_files(join(directory, name) for name in names)
    drop_empty_directories(directory)
    return names
