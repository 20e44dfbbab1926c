"""Reads manifests and schema files of TFRecord files, before any record is read."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.storage.files import open_file
from beam_jobs.storage.paths import absolute_path
from readers.format.dtypes import numpy_dtype
from readers.format.manifest import (
    MANIFEST,
    Manifest,
    newest_manifest,
)
from readers.format.schema import Schema

# The folder of a job's files in the directory of its dataset.
_OF_A_JOB = re.compile(r"(.*)/([0-9a-f]{8})")

# The most bytes read of a manifest or a vocabulary.
MAX_TEXT_BYTES = 256 << 20

# The name of a shard: of `train-00000-of-00008.tfrecord`, or `mnist-train.tfrecord-00000-of-00008`.
_SHARD = re.compile(r"(.+?)(\.tfrecords?)?-\d+-of-\d+\b.*")

# Path -> the content of a file next to shards, on disk or in an archive.
ReadText = Callable[[str], bytes]

# Folder -> its manifest, why the manifest is broken, or None without one.
Manifests = Mapping[str, Manifest | str | None]


class InputSplits(NamedTuple):
    """The splits that input files belong to.

    Attributes:
        names: The splits in the order of the manifests; empty if no file belongs to one.
        lone: Why a file belongs to no split although there is a manifest; empty if all belong to one.
        suggested: The beginnings of the names of shards, sorted, if there is no manifest.
    """

    names: tuple[str, ...] = ()
    lone: str = ""
    suggested: tuple[str, ...] = ()


def place_of(path: str) -> tuple[str, str]:
    """The directory of a file's dataset, and the file's path in it."""
    folder, _, name = path.rpartition("/")
    if match := _OF_A_JOB.fullmatch(folder):
        return match[1], f"{match[2]}/{name}"
    return folder, name


def read_text(path: str) -> bytes:
    """The content of a file next to shards; raises OSError if it is missing or unreadable."""
    with open_file(path) as file:
        return file.read(MAX_TEXT_BYTES)


def manifests_in(folders: Collection[str], read: ReadText = read_text) -> Manifests:
    """Reads the manifests in some folders, each once."""
    return {folder: _manifest_in(folder, read) for folder in sorted(folders)}


def _manifest_in(folder: str, read: ReadText) -> Manifest | str | None:
    def content(path: str) -> bytes:
        try:
            return read(path)
        except OSError as error:  # Each filesystem has its own.
            raise FileNotFoundError from error

    try:
        newest = newest_manifest(folder, content)
    except (ValueError, RejectError) as error:
        return str(error)
    return newest[1] if newest else None


def refuse_hidden(files: Mapping[str, Collection[str]], manifests: Manifests) -> None:
    """Raises a UsageError if files have records or features that the newest generation lacks; arguments as for `splits_of`."""
    for folder, manifest in manifests.items():
        if not isinstance(manifest, Manifest):
            continue
        older = any("/" in name and name not in manifest.paths for name in files[folder])
        if older or {"gone", "rows", "families"} & {*manifest.requires}:
            raise UsageError(
                f"--input {folder}: its files also have records that are gone, or features in other files; write them anew "
                f"with beam-shards compact {folder}, drop the others with beam-shards expire {folder} --keep 1"
            )


def splits_of(files: Mapping[str, Collection[str]], manifests: Manifests) -> InputSplits:
    """The splits of input files, which the manifests next to them list.

    Args:
        files: Directory of a dataset -> the paths of the files in it; see `place_of`.
        manifests: The manifests in these folders.
    """
    if not any(manifests.values()):
        every = itertools.chain.from_iterable(files.values())
        shards = (_SHARD.fullmatch(path.rpartition("/")[2]) for path in every)
        return InputSplits(suggested=tuple(sorted({shard[1] for shard in shards if shard})))
    names: dict[str, None] = {}
    lone = []
    for folder, paths in sorted(files.items()):
        manifest = manifests[folder]
        if not isinstance(manifest, Manifest):
            lone.append(manifest or f"{folder} has no {MANIFEST}")
            continue
        split_of = {s.path: name for name, split in manifest.splits.items() for s in split.shards}
        lone += [f"{folder}/{MANIFEST} does not list {p}" for p in paths if p not in split_of]
        kept = {split_of.get(path) for path in paths}
        names |= {name: None for name in manifest.splits if name in kept}
    return InputSplits(tuple(names), lone[0] if lone else "")


def description_of(manifests: Manifests, schema: str) -> tuple[str, Manifest] | None:
    """The folder and the manifest that describe all records; None if the records must be read.

    Args:
        manifests: The manifests in the folders of the records.
        schema: A file with a schema or a manifest; empty for the manifests in the folders.

    Raises:
        UsageError: A manifest is broken, two contradict each other, or some folders give numbers a
            meaning and others have no manifest.
    """
    given = read_schema(schema) if schema else None
    if given and not any(_meanings(given)):
        return "", given
    stated = {}
    for folder, manifest in manifests.items():
        if isinstance(manifest, str):
            raise UsageError(f"{manifest}; or give a --schema")
        if manifest:
            stated[folder] = manifest
    if not (given or stated):
        return None
    first = absolute_path(schema) if given else next(iter(stated))
    known = given or stated[first]
    for folder, other in stated.items():
        # A given schema may leave features out.
        if _meanings(other) != _meanings(known) or not (given or other.schema == known.schema):
            raise UsageError(
                f"--input: {first} and {folder} differ in features, labels, tokens, channels or box order, so the same "
                "number would have two meanings: reshard them one by one"
            )
    if given:
        return first.rpartition("/")[0], known
    if len(stated) == len(manifests):
        return first, known
    if any(_meanings(known)):
        bare = next(folder for folder in manifests if folder not in stated)
        raise UsageError(
            f"--input: the {MANIFEST} in {first} gives numbers a meaning, but {bare} has no "
            f"{MANIFEST}: reshard them one by one, or give --schema {first}/{MANIFEST} if it applies "
            "to all"
        )
    return None


def _meanings(manifest: Manifest) -> tuple[object, ...]:
    """The meaning of numbers: the names of classes, tokens, the names and units of channels, the order of corners."""
    tokens = {name: file.crc32c for name, file in manifest.files.items()}
    classes = {n: c for n, c in manifest.class_names.items() if c}
    order = manifest.options.get("box_order")
    return manifest.label_names, classes, tokens, manifest.channels, manifest.units, order


def read_schema(path: str) -> Manifest:
    """The manifest in a file; or one without splits, if the file has only a schema.

    Raises:
        UsageError: The file has no schema, or one of its dtypes needs a package that is not installed.
    """
    try:
        value = json.loads(read_text(absolute_path(path)))
        if isinstance(value, dict) and {"schema", "splits"} <= value.keys():
            manifest = Manifest.from_json(value)
        else:
            bare = value.get("schema", value) if isinstance(value, dict) else value
            manifest = Manifest(Schema.from_json(bare), {})
        for feature in manifest.schema.values():
            numpy_dtype(feature.dtype)
    except (OSError, ValueError, RecursionError, ImportError) as error:
        raise UsageError(f"--schema {path}: {error}") from None
    return manifest
