"""`beam-shards tag`: gives a generation a name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from beam_jobs.dataset.output import STAGING, resolve
from beam_jobs.errors import JobError, TakenError, UsageError
from beam_jobs.storage.atomic import delete_files, write_file
from readers.files.of_path import files_of
from readers.format.manifest import (
    TAGS,
    DatasetError,
    Generation,
    generation_file,
    join,
    open_generation,
)

# Commits of other commands that may be in the way.
_ATTEMPTS = 10

_NAME = re.compile(r"(?!\d+\Z)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")


def pin(generation: Generation, name: str) -> str:
    """Tags a generation whose files another dataset is about to need; returns a line for people."""
    directory, manifest, sha256 = generation
    try:
        return tag(directory, f"{name}-{sha256[:8]}", manifest.generation)
    except (OSError, JobError, DatasetError) as error:  # It may be somebody else's.
        return f"{directory} cannot be tagged, so expire there may delete the files of this dataset ({error})"


def run(parsed: argparse.Namespace) -> Iterator[str]:
    """Runs the command; yields lines for people."""
    yield tag(parsed.directory, parsed.name, parsed.generation)


def tag(directory: str, name: str, number: int | None = None) -> str:
    """Names a generation of a dataset, the newest one without a number; returns `DIR@NAME: generation N`.

    Raises:
        UsageError: The name is not valid or taken.
        DatasetError: There is no such generation.
    """
    directory = resolve(directory)
    if not _NAME.fullmatch(name):
        raise UsageError(f"tag {name!r}: expected letters, digits, - and _, not only digits")
    found = open_generation(directory if number is None else f"{directory}@{number}")
    number = found.manifest.generation
    path, line = join(directory, f"{TAGS}/{name}"), f"{number} {found.sha256}\n"
    for _ in range(_ATTEMPTS):
        try:
            write_file(path, line.encode(), join(directory, f"{STAGING}/tags"))
            break
        except TakenError:
            raise UsageError(
                f"{directory}@{name} is another generation; tags never change"
            ) from None
        except FileNotFoundError:  # The commit of another command deletes what it finds unfinished.
            continue
    else:
        raise UsageError(f"{directory}: other commands are changing it; try again")
    manifest = join(directory, generation_file(number))
    if not files_of(manifest).exists(manifest):
        delete_files([path])
        raise UsageError(f"{directory}: another command has deleted generation {number}")
    return f"{directory}@{name}: generation {number}"
