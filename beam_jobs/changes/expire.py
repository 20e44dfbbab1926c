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

# An unfinished folder is kept for this long, so that its command may be repeated.
_UNFINISHED_NS = 24 * 3600 * 10**9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    text = "how many of the newest generations to keep; those with a tag are kept, too"
    parser.add_argument("--keep", metavar="N", type=int, required=True, help=text)


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    if parsed.keep < 1:
        raise UsageError(f"--keep {parsed.keep}: expected at least 1")
    with changing(parsed.directory, {"name": "expire"}) as change:
        directory, state = change.directory, state_of(change.directory)
        kept = {*state.generations[-parsed.keep :], *tagged(state).values()}
        late = time.time_ns() - _UNFINISHED_NS
        expired, names = drop(state, {*state.generations} - kept, late)
    size = format_bytes(sum(state.sizes[name] for name in names))
    listed = ", ".join(map(str, expired)) or "none"
    yield f"{directory}: dropped generations: {listed}; deleted {counted(len(names), 'file')}, {size}"


def tagged(state: State) -> dict[str, int]:
    """The file of each tag, and the number of its generation."""
    tags = (name for name in state.sizes if name.startswith(f"{TAGS}/"))
    return {name: read_tag(state.directory, name.removeprefix(f"{TAGS}/"))[0] for name in tags}


def drop(state: State, generations: Collection[int], late: int) -> tuple[list[int], list[str]]:
    """Deletes generations, the files that no other one names, and folders of runs that have ended.

    Args:
        state: The dataset.
        generations: Their numbers.
        late: Folders of runs with a file that is newer, in nanoseconds, are kept.

    Returns:
        The numbers of the generations, and the names of the deleted files.
    """
    directory = state.directory
    paths = {n: Manifest.read(f"{directory}@{n}").paths for n in state.generations}
    needed = {path for number in paths.keys() - generations for path in paths[number]}
    expired = [number for number in paths if number in generations]
    dead = {path for number in expired for path in paths[number]} - needed
    start = len(join(directory, ""))
    recent = {folder_of(f.path[start:]) for f in list_files(directory) if f.modified > late}
    unnamed = {*map(folder_of, dead), *(state.noted - recent)} - {*map(folder_of, needed)}
    files = sorted((dead | files_in(state, unnamed)) & state.sizes.keys())
    manifests = [*map(generation_file, expired)]
    # Manifests go last: they show the next command which files are dead.
    for names in (files, manifests):
        delete_files(join(directory, name) for name in names)
    drop_empty_directories(directory)
    return expired, [*files, *manifests]
