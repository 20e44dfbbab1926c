"""Reads what manifests and schema files state about TFRecord files, before any record is read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from beam_jobs.errors import UsageError
from beam_jobs.sources.labels import LABEL
from beam_jobs.storage.files import open_file
from beam_jobs.storage.paths import absolute_path
from readers.format.manifest import (
    MANIFEST,
    PADDING,
    TOKENIZER,
    UNKNOWN,
    VOCABULARY,
    Manifest,
)
from readers.format.schema import Schema, numpy_dtype

# The most bytes read of a manifest or a vocabulary.
_MAX_TEXT_BYTES = 256 << 20


class Description(NamedTuple):
    """Facts about records that are known without reading them.

    Attributes:
        schema: The schema of each record.
        names: The names of classes, by feature.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of `tokenizer.json`; empty without subwords.
    """

    schema: Schema
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
    """

    names: tuple[str, ...] = ()
    lone: str = ""


def splits_of(files: Mapping[str, Collection[str]]) -> InputSplits:
    """The splits of input files, which the manifests beside them list.

    Args:
        files: Folder -> the names of the files in it.
    """
    names: dict[str, None] = {}
    lone = []
    has_manifest = False
    for folder, inside in sorted(files.items()):
        try:
            text = _read(f"{folder}/{MANIFEST}")
        except OSError:
            lone.append(f"{folder} has no {MANIFEST}")
            continue
        has_manifest = True
        try:
            splits = Manifest.from_json(json.loads(text)).splits
        except (ValueError, RecursionError) as error:
            lone.append(f"{folder}/{MANIFEST}: {error}")
            continue
        split_of = {shard.file: name for name in splits for shard in splits[name].shards}
        lone += [f"{folder}/{MANIFEST} does not list {f}" for f in inside if f not in split_of]
        kept = {split_of.get(file) for file in inside}
        names |= {name: None for name in splits if name in kept}
    return InputSplits(tuple(names), lone[0] if lone and has_manifest else "")


def description_of(folders: Sequence[str], schema: str) -> Description | None:
    """The description of all records in some folders; None if the records must be read for it.

    Args:
        schema: A file with a schema or a manifest; empty for the manifests in the folders.

    Raises:
        UsageError: A description cannot be read, two contradict each other, or some folders give
            numbers a meaning and others have no manifest.
    """
    if schema:
        given = read_schema(absolute_path(schema), schema)
        if given.has_meanings:
            for folder in folders:
                beside = _manifest_in(folder)
                if beside and beside[1:] != given[1:]:
                    raise _contradiction(absolute_path(schema), folder)
        return given
    found = {folder: _manifest_in(folder) for folder in folders}
    described = {folder: description for folder, description in found.items() if description}
    if not described:
        return None
    first, *others = described
    for folder in others:
        if described[folder] != described[first]:
            raise _contradiction(first, folder)
    if len(described) == len(found):
        return described[first]
    if described[first].has_meanings:
        other = next(folder for folder in found if folder not in described)
        raise UsageError(
            f"--input: the {MANIFEST} in {first} gives numbers a meaning, but {other} has no "
            f"{MANIFEST}: reshard them one by one, or give --schema {first}/{MANIFEST} if it applies "
            "to all"
        )
    return None


def _contradiction(one: str, other: str) -> UsageError:
    return UsageError(
        f"--input: {one} and {other} differ in features, labels or tokens, so the same number would "
        "mean two things: reshard them one by one"
    )


def _manifest_in(folder: str) -> Description | None:
    """The description in a folder's manifest; None if there is no manifest.

    Raises:
        UsageError: The manifest is broken, or a file that it names cannot be read.
    """
    try:
        text = _read(f"{folder}/{MANIFEST}")
    except OSError:
        return None
    try:
        return _parse_manifest(folder, json.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{folder}/{MANIFEST}: {error}; or give a --schema") from None


def _parse_manifest(folder: str, value: Any) -> Description:
    """The description in a manifest and in the files of its folder that it names.

    Raises:
        OSError, ValueError, RecursionError: The manifest or one of the files is broken or missing.
    """
    found = Manifest.from_json(value)
    words = _read(f"{folder}/{VOCABULARY}").split(b"\n")[:-1] if found.vocabulary else []
    tokenizer = _read(f"{folder}/{TOKENIZER}").decode() if found.tokenizer else ""
    vocabulary = (PADDING, UNKNOWN, *words) if found.vocabulary else ()
    if len(vocabulary) != found.vocabulary:
        raise ValueError(
            f"{VOCABULARY} has {len(vocabulary)} tokens, expected {found.vocabulary} as in {MANIFEST}"
        )
    names = ((LABEL, found.label_names), *sorted(found.class_names.items()))
    return Description(found.schema, names, vocabulary, tokenizer)


def _read(path: str) -> bytes:
    with open_file(path) as file:
        return file.read(_MAX_TEXT_BYTES)


def read_schema(path: str, given: str) -> Description:
    """The description in a file: a schema, an object with the key `schema`, or a manifest.

    Args:
        given: The path as the user wrote it.

    Raises:
        UsageError: The file has no schema, one of its dtypes needs a package that is not installed,
            or a file that the manifest names is not beside it.
    """
    try:
        value = json.loads(_read(path))
        if isinstance(value, dict) and {"schema", "splits"} <= value.keys():
            found = _parse_manifest(path.rpartition("/")[0], value)
        else:
            bare = value.get("schema", value) if isinstance(value, dict) else value
            found = Description(Schema.from_json(bare))
        for feature in found.schema.values():
            numpy_dtype(feature.dtype)
    except (OSError, ValueError, RecursionError, ImportError) as error:
        raise UsageError(f"--schema {given}: {error}") from None
    return found
