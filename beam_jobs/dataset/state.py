"""The files and the newest generation in an output directory."""

from __future__ import annotations

import re
from typing import NamedTuple

from apache_beam.io.filesystem import BeamIOError

from beam_jobs.dataset.output import STAGING
from beam_jobs.dataset.resume import DONE
from beam_jobs.errors import UsageError
from beam_jobs.storage.atomic import list_files
from beam_jobs.storage.files import read_bytes
from beam_jobs.storage.paths import refuse_links
from readers.format.manifest import GENERATIONS, MANIFEST, Manifest, generation_file, join

GENERATION = re.compile(rf"{GENERATIONS}/([1-9][0-9]{{0,17}})\.json")

_OURS = re.compile(rf"{GENERATION.pattern}|{re.escape(MANIFEST)}|tags/[^/]+|{STAGING}/.+")

# What a job writes into its folder.
OF_A_JOB = re.compile(
    rf"[0-9a-f]{{8}}/([^/]+({DONE}|\.tfrecord(\.index)?)|rejects/[^/]+\.jsonl|vocabulary\.txt|tokenizer\.json)"
)

# What `python -m readers card` writes beside a complete dataset.
CARD = frozenset(["README.md", "croissant.json"])

_NOTE = re.compile(rf"([0-9a-f]{{8}})/[^/]+{DONE}")


class State(NamedTuple):
    """The state of a directory.

    Attributes:
        sizes: Name, relative to it -> size in bytes, of its files.
        content: The file of the newest generation; empty if no dataset is complete.
        manifest: The manifest in it; None if no dataset is complete.
        named: The folders that generations name.
    """

    sizes: dict[str, int]
    content: bytes = b""
    manifest: Manifest | None = None
    named: frozenset[str] = frozenset()

    @property
    def folders(self) -> frozenset[str]:
        """The folders of jobs: the first file in each is a note."""
        return self.named | {found[1] for found in map(_NOTE.fullmatch, self.sizes) if found}

    @property
    def generations(self) -> list[int]:
        """The numbers of the generations."""
        return sorted(int(found[1]) for found in map(GENERATION.fullmatch, self.sizes) if found)


def state_of(directory: str) -> State:
    """The state of a directory.

    Raises:
        UsageError: It cannot be listed, holds what is not part of a dataset, or its manifest is damaged.
    """
    try:
        refuse_links(directory)
        start = len(join(directory, ""))
        sizes = {file.path[start:]: file.size for file in list_files(directory)}
        state = State(sizes)
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--output {directory}: {error}") from None
    for number in state.generations:  # There are two if the older one has to be deleted still.
        path = join(directory, generation_file(number))
        try:
            content = read_bytes(path)
            manifest = Manifest.from_bytes(content)
        except (BeamIOError, ValueError, OSError, RecursionError) as error:
            raise UsageError(f"--output: {path}: {error}; name another directory") from None
        state = State(sizes, content, manifest, state.named.union(map(folder_of, manifest.paths)))
    # Without a note, files in a folder are those of an attempt that came too late, or of somebody else: they are left alone.
    strange = [name for name in sizes if not (_OURS.fullmatch(name) or OF_A_JOB.fullmatch(name))]
    strange = sorted(name for name in strange if folder_of(name) not in state.folders)
    if state.content:
        strange = [name for name in strange if name not in CARD]
    elif MANIFEST in sizes:
        strange.append(MANIFEST)
    if strange:
        raise UsageError(
            f"--output {directory}: it holds {strange[0]!r}, which is not part of a dataset; "
            "move it away, or name an empty or a new directory"
        )
    return state


def folder_of(name: str) -> str:
    """The first part of a file's name, which is its job's folder if it has one."""
    return name.partition("/")[0]
