"""Where a dataset goes: what must be true of the directory before a job writes into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError

from beam_jobs.assign import MAX_SHARDS, Placement
from beam_jobs.errors import UsageError
from beam_jobs.files import GLOB, is_local
from beam_jobs.output_files import (
    STAGING,
    Found,
    delete_files,
    drop_halves,
    list_files,
    make_directory,
    write_file,
)
from beam_jobs.rejects import REJECTS
from readers.format.manifest import INDEX_SUFFIX, MANIFEST, TOKENIZER, VOCABULARY, join
from readers.format.schema import Feature, Schema

DEFAULT_SHARD_SIZE = 128 << 20
BALANCES = ("records", "bytes")

# What notes of committed shards end with.
DONE = ".done"

# There as long as a run is not finished; what lies beside it may be deleted.
MARKER = f"{STAGING}/UNFINISHED"

_UNFINISHED = b"An unfinished run of beam_jobs: no dataset yet. Run the job again.\n"

_OURS = re.compile(
    rf"{re.escape(MANIFEST)}|{re.escape(VOCABULARY)}|{re.escape(TOKENIZER)}"
    rf"|[^/]+-\d{{5}}-of-\d{{5}}\.tfrecord({re.escape(INDEX_SUFFIX)})?"
    rf"|{REJECTS}/[^/]+\.jsonl|{re.escape(STAGING)}/[^/]+"
)


@dataclass(frozen=True)
class Output:
    """A dataset to be written.

    Attributes:
        directory: As `resolve` gives it.
        schema: Of every record.
        placement: Seed and splits: where each key belongs.
        num_shards: For every split how many, 0 to choose by `shard_size`.
        shard_size: Bytes a shard should have, roughly.
        on_reject: "skip" to count and list bad inputs, "fail" to stop at the first.
        overwrite: Whether an existing dataset may be replaced.
        options: Of the job, for the manifest; nothing of the runner or the machine.
        balance: What shards of a split have as much of as can be: "records" or "bytes".
        stored: What features are called in Examples, where it is not their name in the schema.
        stratify: Whether every label has its share of records in every split.
    """

    directory: str
    schema: Schema
    placement: Placement
    num_shards: tuple[int, ...]
    shard_size: int = DEFAULT_SHARD_SIZE
    on_reject: str = "skip"
    overwrite: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    balance: str = "records"
    stored: Mapping[str, str] = field(default_factory=dict)
    stratify: bool = False


def resolve(directory: str) -> str:
    """The output directory as every worker sees it.

    Raises:
        UsageError: It is empty, or holds `*`, `?` or `[`, which Beam's filesystems take for a
            pattern even where they delete.
    """
    if not directory:
        raise UsageError("--output is empty: name a directory")
    if is_local(directory):
        path = str(Path(directory).expanduser().absolute())
    else:
        path = directory.rstrip("/")
    if GLOB.search(path):
        raise UsageError(f"--output {path}: expected a path without * ? and [")
    return path


def parse_num_shards(text: str, splits: tuple[str, ...]) -> tuple[int, ...]:
    """The number of shards of every split, from `16` or `train=16,val=2`; 0 where none is given.

    Raises:
        UsageError: A split is unknown, or a number is not in 1..99999.
    """
    shards = dict.fromkeys(splits, 0)
    for part in text.split(","):
        name, equals, number = part.strip().rpartition("=")
        if equals and name not in shards:
            raise UsageError(
                f"--num_shards {text}: no split {name!r}, --splits has {', '.join(splits)}"
            )
        if not number.isdecimal() or not 1 <= int(number) <= MAX_SHARDS:
            raise UsageError(f"--num_shards {text}: {number!r} is not a number in 1..{MAX_SHARDS}")
        shards.update(dict.fromkeys([name] if equals else splits, int(number)))
    return tuple(shards.values())


def parse_names(text: str, schema: Schema) -> dict[str, str]:
    """What features are called in Examples, by their names in the schema, from `image=image_raw,…`.

    Raises:
        UsageError: A feature is unknown, or two would have one name.
    """
    names: dict[str, str] = {}
    for part in text.split(","):
        name, equals, stored = part.strip().partition("=")
        if not equals or name not in schema or name in names:
            raise UsageError(
                f"--names {text}: expected FEATURE=NAME,… with features of {', '.join(schema)}, "
                f"each once; got {part!r}"
            )
        names[name] = stored
    try:
        renamed_schema(schema, names)
    except ValueError as error:
        raise UsageError(f"--names {text}: {error}") from None
    return names


def renamed_schema(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema with some features called otherwise.

    Raises:
        ValueError: Two features would have one name, or a name is none that a feature may have.
    """
    features: dict[str, Feature] = {}
    for name, feature in schema.items():
        stored = names.get(name, name)
        if stored in features:
            raise ValueError(f"two features would be called {stored!r}")
        features[stored] = feature
    return Schema(features)


def _files(directory: str) -> list[str]:
    try:
        return [path for path, _ in list_files(directory)]
    except (BeamIOError, ValueError, OSError) as error:
        raise UsageError(f"--output {directory}: {error}") from None


def check_output(directory: str, overwrite: bool) -> list[str]:
    """The files of an earlier run that must go before a job writes into a directory.

    Raises:
        UsageError: It holds a dataset, or shards of unknown origin, and `overwrite` is not set; or
            files that are none of ours.
    """
    if is_local(directory) and Path(directory).exists() and not Path(directory).is_dir():
        raise UsageError(f"--output {directory}: this is a file; name a directory")
    paths = _files(directory)
    names = {path[len(directory.rstrip("/")) + 1 :] for path in paths}
    strange = sorted(name for name in names if not _OURS.fullmatch(name))
    if strange:
        raise UsageError(
            f"--output {directory}: it holds {strange[0]!r}, which is not part of a dataset; "
            "name an empty or a new directory"
        )
    unfinished = any(name.startswith(f"{STAGING}/") for name in names)
    if names and not (overwrite or unfinished or MANIFEST in names):
        raise UsageError(
            f"--output {directory}: it holds {min(names)!r} but neither a manifest nor the marks of "
            "an unfinished run; name another directory, or add --overwrite to replace what is there"
        )
    if MANIFEST in names and not overwrite:
        raise UsageError(
            f"--output {directory}: a dataset is here already; add --overwrite to replace it"
        )
    return paths


def prepare_output(directory: str, overwrite: bool, keep: str = "") -> None:
    """Makes a directory ready for a job: marked as unfinished, and empty or with shards to keep.

    What an unfinished run left stays, as its shards may be what this job would write. Anything
    else goes, its manifest first: half a dataset never looks whole.

    Args:
        keep: What the paths begin with that this job has written there already; empty for none.

    Raises:
        UsageError: As `check_output`, or the directory cannot be written.
    """
    paths = check_output(directory, overwrite)
    paths = [path for path in paths if not (keep and path.startswith(keep))]
    manifest, marker = join(directory, MANIFEST), join(directory, MARKER)
    try:
        make_directory(join(directory, STAGING))
        if marker in paths and manifest not in paths:
            staging = join(directory, STAGING)
            halves = [p for p in paths if p.startswith(staging) and not p.endswith((marker, DONE))]
            delete_files(halves)
            drop_halves(directory)
            return
        write_file(directory, MARKER, _UNFINISHED)
        delete_files([manifest] if manifest in paths else [])
        delete_files(path for path in paths if path not in (manifest, marker))
    except OSError as error:
        raise UsageError(
            f"--output {directory}: cannot be written ({error}); choose another place"
        ) from None


def remove_leftovers(directory: str, names: set[str], found: Iterable[Found]) -> None:
    """Deletes what runs before left in a dataset's directory.

    Args:
        names: The files of the dataset; what is in staging stays as well.
        found: All files below the directory.
    """
    keep = {join(directory, name) for name in names}
    staging = join(directory, STAGING) + "/"
    delete_files(path for path, _ in found if path not in keep and not path.startswith(staging))
