"""`beam-shards expire`: drops older generations, and the files that no other one names."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from beam_jobs.dataset.changes import changing
from beam_jobs.dataset.generations import files_in, folder_of, state_of
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
        tags = [
            name.removeprefix(f"{TAGS}/") for name in state.sizes if name.startswith(f"{TAGS}/")
        ]
        kept = {
            *state.generations[-parsed.keep :],
            *(read_tag(directory, name)[0] for name in tags),
        }
        paths = {n: Manifest.read(f"{directory}@{n}").paths for n in state.generations}
        needed = {path for number in kept & paths.keys() for path in paths[number]}
        expired = [number for number in paths if number not in kept]
        dead = {path for number in expired for path in paths[number]} - needed
        start, late = len(join(directory, "")), time.time_ns() - _UNFINISHED_NS
        recent = {folder_of(f.path[start:]) for f in list_files(directory) if f.modified > late}
        unnamed = {*map(folder_of, dead), *(state.noted - recent)} - {*map(folder_of, needed)}
        files = sorted((dead | files_in(state, unnamed)) & state.sizes.keys())
        # Manifests go last: they show the next command which files are dead.
        names = [*files, *map(generation_file, expired)]
        delete_files(join(directory, name) for name in files)
        delete_files(join(directory, generation_file(number)) for number in expired)
        drop_empty_directories(directory)
    size = format_bytes(sum(state.sizes[name] for name in names))
    listed = ", ".join(map(str, expired)) or "none"
    yield f"{directory}: dropped generations: {listed}; deleted {counted(len(names), 'file')}, {size}"
