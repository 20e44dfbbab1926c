"""What manifests and schemas say of TFRecord files, before any record of theirs is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
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

# Manifests and vocabularies.
_MAX_TEXT_BYTES = 256 << 20


class Description(NamedTuple):
    """What is known of records: of those of our datasets all of it.

    Attributes:
        schema: Of each.
        names: Of classes, by feature.
        vocabulary: All words by id; empty without words.
        tokenizer: The text of `tokenizer.json`; empty without subwords.
    """

    schema: Schema
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    vocabulary: tuple[bytes, ...] = ()
    tokenizer: str = ""

    @property
    def means_something(self) -> bool:
        """Whether numbers in the records stand for something else."""
        named = any(classes for _, classes in self.names)
        return named or bool(self.vocabulary or self.tokenizer)


def known_of(folders: Sequence[str], schema: str) -> Description | None:
    """What is known of all records in some folders; None where they have to be asked.

    Args:
        schema: A file that says it; empty for the manifests in the folders.

    Raises:
        UsageError: What is said cannot be read, is contradictory, or is of some folders only.
    """
    if schema:
        given = read_schema(absolute_path(schema), schema)
        if given.means_something:
            for folder in folders:
                beside = _description(folder)
                if beside and beside[1:] != given[1:]:
                    raise _contradiction(absolute_path(schema), folder)
        return given
    found = {folder: _description(folder) for folder in folders}
    told = {folder: described for folder, described in found.items() if described}
    if not told:
        return None
    first, *others = told
    for folder in others:
        if told[folder] != told[first]:
            raise _contradiction(first, folder)
    if len(told) == len(found):
        return told[first]
    if told[first].means_something:
        other = next(folder for folder in found if folder not in told)
        raise UsageError(
            f"--input: {first} says what the numbers in it mean, {other} has no {MANIFEST}: reshard "
            f"them one by one, or give --schema {first}/{MANIFEST} if it says so of all"
        )
    return None


def _contradiction(one: str, other: str) -> UsageError:
    return UsageError(
        f"--input: {one} and {other} differ in features, labels or tokens, so that the same number "
        "would mean two things: reshard them one by one"
    )


def _description(folder: str) -> Description | None:
    """What the manifest in a folder says; None where there is none.

    Raises:
        UsageError: It is broken, or something that it names is not there.
    """
    try:
        text = _read(f"{folder}/{MANIFEST}")
    except OSError:
        return None
    try:
        return _of_manifest(folder, json.loads(text))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{folder}/{MANIFEST}: {error}; or give a --schema") from None


def _of_manifest(folder: str, value: Any) -> Description:
    """What a manifest says, and the files in its folder that it names.

    Raises:
        OSError, ValueError, RecursionError: It is broken, or they are.
    """
    found = Manifest.from_json(value)
    words = _read(f"{folder}/{VOCABULARY}").split(b"\n")[:-1] if found.vocabulary else []
    tokenizer = _read(f"{folder}/{TOKENIZER}").decode() if found.tokenizer else ""
    vocabulary = (PADDING, UNKNOWN, *words) if found.vocabulary else ()
    if len(vocabulary) != found.vocabulary:
        raise ValueError(
            f"{VOCABULARY} has {len(vocabulary)} tokens, not the {found.vocabulary} of {MANIFEST}"
        )
    names = ((LABEL, found.label_names), *sorted(found.class_names.items()))
    return Description(found.schema, names, vocabulary, tokenizer)


def _read(path: str) -> bytes:
    with open_file(path) as file:
        return file.read(_MAX_TEXT_BYTES)


def read_schema(path: str, given: str) -> Description:
    """What is in a file: a schema, alone or as `schema` of an object, or all that a manifest says.

    Args:
        given: How the flag spells the path.

    Raises:
        UsageError: There is no schema, one of its dtypes needs a package that is not installed, or a
            file that the manifest names is not beside it.
    """
    try:
        value = json.loads(_read(path))
        if isinstance(value, dict) and {"schema", "splits"} <= value.keys():
            found = _of_manifest(path.rpartition("/")[0], value)
        else:
            bare = value.get("schema", value) if isinstance(value, dict) else value
            found = Description(Schema.from_json(bare))
        for feature in found.schema.values():
            numpy_dtype(feature.dtype)
    except (OSError, ValueError, RecursionError, ImportError) as error:
        raise UsageError(f"--schema {given}: {error}") from None
    return found
