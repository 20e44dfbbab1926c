"""Reads what manifests and schema files state about TFRecord files, before any record is read."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from beam_jobs.errors import RejectError, UsageError
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.files import open_file
from beam_jobs.storage.paths import absolute_path
from readers.format.dtypes import numpy_dtype
from readers.format.manifest import (
    MANIFEST,
    PADDING,
    TOKENIZER,
    UNKNOWN,
    VOCABULARY,
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

# Path -> the content of a file beside shards, on disk or in an archive.
ReadText = Callable[[str], bytes]

# Folder -> its manifest, why that is broken, or None without one.
Manifests = Mapping[str, Manifest | str | None]


class Description(NamedTuple):
    """Facts about records that are known without reading them.

    Attributes:
        schema: The schema of each record; None if it is not known.
        names: The names of classes, by feature.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of `tokenizer.json`; empty without subwords.
    """

    schema: Schema | None = None
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""

    @property
    def has_meanings(self) -> bool:
        """Whether numbers in the records mean something else: classes, words or subwords."""
        named = any(classes for _, classes in self.names)
        return named or bool(self.vocabulary or self.tokenizer)


class InputSplits(NamedTuple):
    """The splits that input files belong to.

    Attributes:
        names: The splits in the order of the manifests; empty if no file belongs to one.
        lone: Why some file belongs to none, although there is a manifest; empty if all do.
        suggested: What the names of shards begin with, sorted, if there is no manifest.
    """

    names: tuple[str, ...] = ()
    lone: str = ""
    suggested: tuple[str, ...] = ()


def place_of(path: str) -> tuple[str, str]:
    """The directory of a file's dataset, and the file's path in it."""
    folder, _, name = path.rpartition("/")
    if found := _OF_A_JOB.fullmatch(folder):
        return found[1], f"{found[2]}/{name}"
    return folder, name


def read_text(path: str) -> bytes:
    """The content of a file beside shards.

    Raises:
        OSError: The file is missing or unreadable.
    """
    with open_file(path) as file:
        return file.read(MAX_TEXT_BYTES)


def manifests_in(folders: Collection[str], read: ReadText = read_text) -> Manifests:
    """Reads the manifests in some folders, once for all who ask."""
    return {folder: _manifest_in(folder, read) for folder in sorted(folders)}


def _manifest_in(folder: str, read: ReadText) -> Manifest | str | None:
    def content(path: str) -> bytes:
        try:
            return read(path)
        except OSError as error:  # Each filesystem has its own.
            raise FileNotFoundError from error

    try:
        found = newest_manifest(folder, content)
    except (ValueError, RejectError) as error:
        return str(error)
    return found[1] if found else None


def splits_of(files: Mapping[str, Collection[str]], manifests: Manifests) -> InputSplits:
    """The splits of input files, which the manifests beside them list.

    Args:
        files: Directory of a dataset -> the paths of the files in it; see `place_of`.
        manifests: The manifests in these folders.
    """
    if not any(manifests.values()):
        paths = itertools.chain.from_iterable(files.values())
        shards = (_SHARD.fullmatch(path.rpartition("/")[2]) for path in paths)
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


def description_of(manifests: Manifests, schema: str, read: ReadText = read_text) -> Description:
    """The description of all records in some folders; one without a schema if records must be read for it.

    Args:
        manifests: The manifests in the folders.
        schema: A file with a schema or a manifest; empty for the manifests in the folders.
        read: Reads the files beside the manifests.

    Raises:
        UsageError: A description cannot be read, two contradict each other, or some folders give
            numbers a meaning and others have no manifest.
    """
    given = read_schema(absolute_path(schema), schema) if schema else Description()
    if given.schema and not given.has_meanings:
        return given
    described = _descriptions(manifests, read)
    first = absolute_path(schema) if schema else next(iter(described), "")
    if not first:
        return given
    known = given if schema else described[first]
    for folder, other in described.items():
        # A given schema may leave features out.
        if other[1:] != known[1:] or not (schema or other.schema == known.schema):
            raise UsageError(
                f"--input: {first} and {folder} differ in features, labels or tokens, so the same number "
                "would mean two things: reshard them one by one"
            )
    if schema or len(described) == len(manifests):
        return known
    if known.has_meanings:
        other = next(folder for folder in manifests if folder not in described)
        raise UsageError(
            f"--input: the {MANIFEST} in {first} gives numbers a meaning, but {other} has no "
            f"{MANIFEST}: reshard them one by one, or give --schema {first}/{MANIFEST} if it applies "
            "to all"
        )
    return Description()


def _descriptions(manifests: Manifests, read: ReadText) -> dict[str, Description]:
    """The description of each folder that has a manifest; raises UsageError if one is broken."""
    described = {}
    for folder, manifest in manifests.items():
        if isinstance(manifest, str):
            raise UsageError(f"{manifest}; or give a --schema")
        if manifest:
            try:
                described[folder] = _description(folder, manifest, read)
            except (OSError, ValueError, RejectError) as error:
                raise UsageError(f"{folder}/{MANIFEST}: {error}; or give a --schema") from None
    return described


def _description(folder: str, manifest: Manifest, read: ReadText = read_text) -> Description:
    """The description in a manifest and the files that it names; raises OSError, ValueError or RejectError."""
    contents = {}
    for name in (VOCABULARY, TOKENIZER):
        if name in manifest.files:
            contents[name] = read(f"{folder}/{manifest.files[name].path}")
            try:
                manifest.check_file(name, contents[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    words = contents.get(VOCABULARY, b"").split(b"\n")[:-1]
    vocabulary = (PADDING, UNKNOWN, *words) if manifest.vocabulary else ()
    if len(vocabulary) != manifest.vocabulary:
        raise ValueError(
            f"{VOCABULARY} has {len(vocabulary)} tokens, expected {manifest.vocabulary} as in {MANIFEST}"
        )
    names = ((LABEL, manifest.label_names), *sorted(manifest.class_names.items()))
    tokenizer = contents.get(TOKENIZER, b"").decode()
    return Description(manifest.schema, names, vocabulary, tokenizer)


def read_schema(path: str, given: str) -> Description:
    """The description in a file: a schema, an object with the key `schema`, or a manifest.

    Args:
        given: The path as the user wrote it.

    Raises:
        UsageError: The file has no schema, one of its dtypes needs a package that is not installed,
            or a file that the manifest names is not beside it.
    """
    try:
        value = json.loads(read_text(path))
        if isinstance(value, dict) and {"schema", "splits"} <= value.keys():
            found = _description(path.rpartition("/")[0], Manifest.from_json(value))
        else:
            bare = value.get("schema", value) if isinstance(value, dict) else value
            found = Description(Schema.from_json(bare))
        for feature in (found.schema or {}).values():
            numpy_dtype(feature.dtype)
    except (OSError, ValueError, RecursionError, ImportError) as error:
        raise UsageError(f"--schema {given}: {error}") from None
    return found
