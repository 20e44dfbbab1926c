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

from beam_jobs.dataset.generations import commit, finish_interrupted, state_of
from beam_jobs.dataset.lease import Holder, leased
from beam_jobs.dataset.output import STAGING, not_writable, resolve
from beam_jobs.dataset.resume import DONE
from beam_jobs.errors import DataError, UsageError
from beam_jobs.records.statistics import FeatureStatistics
from beam_jobs.storage.atomic import write_file
from readers.format.lookup.rows import RowList, pack_rows
from readers.format.lookup.stored import stored_values
from readers.format.manifest import DatasetError, Generation, Manifest, join, open_generation
from readers.format.schema import Schema
from readers.format.splits import Split

# The note that shows that a folder is a command's: its first file, which the commit deletes.
_NOTE = f"change{DONE}"


@dataclass(frozen=True)
class Change:
    """A command that changes a dataset.

    Attributes:
        directory: The dataset.
        parent: The manifest of the generation that it continues.
        sha256: Of that manifest.
        operation: The command as the manifest states it: its `name`, and its options.
        run: The name of its folder in `STAGING`.
    """

    directory: str
    parent: Manifest
    sha256: str
    operation: Mapping[str, Any]
    run: str

    @property
    def staging(self) -> str:
        """The folder of its unfinished files."""
        return join(self.directory, f"{STAGING}/{self.run}")

    @property
    def generation(self) -> int:
        """The number of the generation that it makes."""
        return self.parent.generation + 1

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

    def write_rows(self, path: str, rows: np.ndarray, stored: int) -> RowList | None:
        """As `written_rows`, in a folder of this command."""
        if len(rows):
            self.begin(path.partition("/")[0])
        return written_rows(self, path, rows, stored)

    def commit(self, **fields: Any) -> Manifest:
        """Commits the next generation, which differs from the one before in some fields of the manifest.

        Raises:
            DataError: Another command has changed the dataset in the meantime.
        """
        manifest = replace(
            self.parent,
            generation=self.generation,
            ancestors=(*self.parent.ancestors, self.sha256) if self.sha256 else (),
            operation=dict(self.operation),
            **fields,
        )
        commit(self, manifest, state_of(self.directory))
        return manifest


def written_rows(run: Holder, path: str, rows: np.ndarray, stored: int) -> RowList | None:
    """Writes a list of rows, int64 [n], ascending, of a split with `stored` records; None for an empty one."""
    if not len(rows):
        return None
    data = pack_rows(rows, stored)
    write_file(join(run.directory, path), data, run.staging)
    return RowList(path, len(rows), google_crc32c.value(data))


@contextlib.contextmanager
def changing(
    directory: str,
    operation: Mapping[str, Any],
    first: Manifest | None = None,
) -> Iterator[Change]:
    """Holds a lease on a dataset while a command changes its newest generation, or makes the first one.

    Args:
        directory: The dataset.
        operation: `Change.operation`.
        first: The parent of the first generation of a new dataset, which only this operation may have completed.

    Raises:
        UsageError: There is no dataset, or another command is at work in its directory.
        DataError: A file of the dataset is missing, or the disk is full.
    """
    directory = resolve(directory)
    before = state_of(directory)  # Raises an error for foreign files.
    finish_interrupted(before)
    known = before.manifest
    if first and known and known.operation != operation:
        raise UsageError(f"--output {directory}: a dataset is here already; name another")
    try:
        if first and not known:
            parent = replace(first, generation=0, ancestors=(), operation={})
            generation = Generation(directory, parent, "")
        else:
            generation = open_generation(directory)
    except DatasetError as error:
        raise UsageError(str(error)) from None
    if generation.directory != directory:
        raise UsageError(f"{directory}: only the newest generation can be changed: leave out @")
    run = uuid.uuid4().hex[:8]
    change = Change(directory, generation.manifest, generation.sha256, operation, run)
    try:
        with leased(change, operation["name"]):
            yield change
    except FileNotFoundError as error:  # Of a file to read: folders are made with their files.
        raise DataError(f"{error.filename} is missing" if error.filename else str(error)) from None
    except OSError as error:
        raise not_writable(directory, error) from None


def statistics_without(
    directory: str, manifest: Manifest, split: Split, rows: np.ndarray
) -> dict[str, Any]:
    """The statistics of a split without some of its records, whose extremes are bounds."""
    left = dict(split.statistics)
    for family, names in manifest.features_of.items():
        shards = split.shards_of(family)
        features = {
            n: f for n, f in manifest.schema.items() if n in left.keys() & names and not f.step
        }
        gone = {name: FeatureStatistics.like(f, left[name]) for name, f in features.items()}
        for values in stored_values(directory, shards, Schema(features), rows) if features else ():
            for name, statistics in gone.items():
                statistics.add(features[name], values[name])
        for name, statistics in gone.items():
            rest = statistics.negative()
            rest.add_json(left[name], split.records)
            left[name] = rest.to_json()
    return left
