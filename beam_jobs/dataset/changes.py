"""Changes of a complete dataset: each command writes new files, and a generation that continues the newest one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import numpy as np

from beam_jobs.dataset.copies import statistics_of
from beam_jobs.dataset.generations import commit, finish_interrupted, state_of
from beam_jobs.dataset.lease import leased
from beam_jobs.dataset.output import Holder, not_writable, resolve
from beam_jobs.dataset.resume import DONE
from beam_jobs.errors import DataError, UsageError
from beam_jobs.storage.atomic import write_file
from readers.format.lookup.rows import RowList, pack_rows
from readers.format.lookup.stored import StoredSplit, stored_splits
from readers.format.manifest import Generation, Manifest, join, open_generation
from readers.format.splits import Split

# The note that shows that a folder is a command's: its first file, which the commit deletes.
_NOTE = f"change{DONE}"


@dataclass(frozen=True)
class Change(Holder):
    """A command that changes a dataset.

    Attributes:
        directory: The dataset.
        parent: The manifest of the generation that it continues.
        sha256: Of that manifest.
        operation: The command as the manifest states it: its `name`, and its options.
        run: The name of its folder in `STAGING`.
        in_place: As for `state_of`.
    """

    directory: str
    parent: Manifest
    sha256: str
    operation: Mapping[str, Any]
    run: str
    in_place: bool = False

    @property
    def splits(self) -> dict[str, StoredSplit]:
        """The splits of the parent."""
        return stored_splits(self.directory, self.parent)

    def folder(self, *contents: object) -> str:
        """The name of the folder of its files, the same on every machine: 8 hex digits of what decides them."""
        parts = [self.sha256, self.operation, *contents]
        text = json.dumps(parts, sort_keys=True, default=str).encode()
        return hashlib.blake2b(text, digest_size=4).hexdigest()

    def begin(self, folder: str) -> None:
        """Makes a folder this command's; before its first file."""
        self.write(f"{folder}/{_NOTE}", b"")

    def write(self, path: str, data: bytes) -> None:
        """Writes a file of the dataset; a file that is there must have the same bytes."""
        write_file(join(self.directory, path), data, self.staging)

    def commit(self, **fields: Any) -> Manifest:
        """Commits the next generation, which differs from the one before in some fields of the manifest.

        Raises:
            DataError: Another command has changed the dataset in the meantime.
        """
        manifest = replace(
            self.parent,
            generation=self.parent.generation + 1,
            ancestors=(*self.parent.ancestors, self.sha256) if self.parent.generation else (),
            operation=dict(self.operation),
            **fields,
        )
        commit(self, manifest, state_of(self.directory, self.in_place))
        return manifest


@contextlib.contextmanager
def changing(
    directory: str,
    operation: Mapping[str, Any],
    first: Manifest | None = None,
    in_place: bool = False,
) -> Iterator[Change]:
    """Holds a lease on a dataset while a command changes its newest generation, or makes the first one.

    Args:
        directory: The dataset.
        operation: `Change.operation`.
        first: The parent of the first generation of a new dataset, which only this operation may have completed.
        in_place: As for `state_of`.

    Raises:
        UsageError: Another command is at work in the directory, or it has other files.
        DatasetError: There is no dataset.
        DataError: A file of the dataset is missing, or the disk is full.
    """
    directory = resolve(directory)
    try:
        before = state_of(directory, in_place)  # Raises an error for foreign files.
    except UsageError:
        if first is None:
            open_generation(directory)  # If there is no dataset, its error says so.
        raise
    finish_interrupted(before)
    known = before.manifest
    if first and known and known.operation != operation:
        raise UsageError(f"--output {directory}: a dataset is here already; name another")
    if first and not known:
        parent = replace(first, generation=0, ancestors=(), operation={})
        generation = Generation(directory, parent, "")
    else:
        generation = open_generation(directory)
    if generation.directory != directory:
        raise UsageError(f"{directory}: only the newest generation can be changed: leave out @")
    run = uuid.uuid4().hex[:8]
    change = Change(directory, *generation[1:], operation, run, in_place)
    try:
        with leased(change, operation["name"]):
            yield change
    except FileNotFoundError as error:  # Of a file to read: folders are made with their files.
        raise DataError(f"{error.filename} is missing" if error.filename else str(error)) from None
    except OSError as error:
        raise not_writable(directory, error) from None


def with_rows(run: Holder, path: str, split: Split, seen: np.ndarray, is_subset: bool) -> Split:
    """A split of which readers see the rows that are true, bool [stored]; writes their list, or that of the others.

    A list of the seen rows makes the split a subset. The suffix of the path is added. A folder of a command begins with it.
    """
    is_subset = is_subset and bool(seen.any())
    rows, listed = np.flatnonzero(seen if is_subset else ~seen), None
    if len(rows):
        if isinstance(run, Change):
            run.begin(path.partition("/")[0])
        path, data = path + (".rows" if is_subset else ".gone"), pack_rows(rows, split.stored)
        write_file(join(run.directory, path), data, run.staging)
        listed = RowList(path, len(rows), google_crc32c.value(data))
    return replace(split, gone=None if is_subset else listed, rows=listed if is_subset else None)


def without(run: Holder, path: str, stored: StoredSplit, rows: np.ndarray) -> Split:
    """A split of which readers no longer see some rows, int64 [n], ascending; the extremes in its statistics are bounds.

    The path is that of `with_rows`.
    """
    split, seen = stored.split, stored.flags()
    seen[rows] = False
    gone, left = statistics_of(stored, rows).features, dict(split.statistics)
    for name, figures in left.items():
        rest = gone[name].negative()
        rest.add_json(figures, split.records)
        left[name] = rest.to_json()
    found = with_rows(run, path, split, seen, split.rows is not None)
    return replace(found, statistics=left)
