"""The output directory and the options of a dataset."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from beam_jobs.errors import DataError, JobError, UsageError, did_you_mean, named_as_arguments
from beam_jobs.packages import versions
from beam_jobs.plan.placement import Existing, Placement, Splits, check_seed
from beam_jobs.plan.shards import MAX_SHARDS
from beam_jobs.plan.summary import Summary
from beam_jobs.records.mapping import Mapper
from beam_jobs.records.rejects import ANY_NUMBER, MaxRejects
from beam_jobs.sources.labels import LABEL, Names
from beam_jobs.storage.paths import GLOB, absolute_path
from readers.format.display import parse_bytes
from readers.format.encode.records import Encoder
from readers.format.manifest import join
from readers.format.schema import Feature, Schema

DEFAULT_SHARD_SIZE = 128 << 20

# The folder of a dataset with a folder for each run, which has its lease and unfinished files.
STAGING = ".staging"

# Options about the inputs, in which an append may differ from the dataset.
OF_INPUTS = frozenset(["input", "table", "label", "boxes", "masks", "captions", "keep_out"])

# Options about where the inputs are, not what they are.
_PLACES = ("input", "table")


def parse_size(text: str, name: str = "--shard_size") -> int:
    """The bytes in a flag's value, such as `128MiB`, `1GB`, `500k` or `1000`; UsageError if it is not valid."""
    size = parse_bytes(text)
    if not size:
        raise UsageError(f"{name} {text}: expected a size such as 128MiB or 500MB")
    return size


def not_writable(directory: str, error: OSError) -> JobError:
    """The error of a directory that cannot be written; a full disk is not the user's mistake."""
    kind = DataError if error.errno in (errno.ENOSPC, errno.EDQUOT) else UsageError
    return kind(
        f"--output {directory}: cannot be written ({error}); make room or choose another place"
    )


class Holder:
    """A run that may hold the lease of a dataset: its directory, and the name of the run's folder in `STAGING`."""

    directory: str
    run: str

    @property
    def staging(self) -> str:
        """The folder of its unfinished files."""
        return join(self.directory, f"{STAGING}/{self.run}")


@dataclass(frozen=True)
class Append:
    """An append, and what it takes from its dataset, which `begun` reads.

    Attributes:
        flags: Those that the manifest states, such as `existing`.
        names: The names of the classes of the dataset, by feature; new ones follow them.
        groups: Its packed `GroupSplits`; empty if hashes assign all groups.
    """

    flags: Mapping[str, Any]
    names: Names = field(default_factory=dict)
    groups: bytes = b""


@dataclass(frozen=True)
class Output(Holder):
    """A dataset to write.

    Attributes:
        directory: The path or URL of the dataset.
        schema: The features of every record.
        placement: Seed and splits, which determine where each key goes.
        num_shards: The number of shards of each split; 0 chooses it from `shard_size`.
        shard_size: The approximate size of a shard in bytes.
        overwrite: Whether an existing dataset may be replaced.
        options: The job's options for the manifest, without those of the runner or the machine.
        feature_names: Names of features in Examples, if they differ from those in the schema.
        max_rejects: The job fails if it rejects more inputs than this.
        mapper: Makes the features of `schema` from those of the job; None if they are the same.
        run: The name of the run's folder in `STAGING`.
        generation: The number of the generation that the job writes.
        parent: The SHA-256 of the manifest of the generation before; empty for the first.
        written: The `job` of the complete dataset here; empty unless this job must be that one.
        append: How records are added to the dataset here; None for a new one.
    """

    directory: str
    schema: Schema
    placement: Placement
    num_shards: tuple[int, ...]
    shard_size: int = DEFAULT_SHARD_SIZE
    overwrite: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    feature_names: Mapping[str, str] = field(default_factory=dict)
    max_rejects: MaxRejects = ANY_NUMBER
    mapper: Mapper | None = None
    run: str = ""
    generation: int = 1
    parent: str = ""
    written: str = ""
    append: Append | None = None

    def with_names(self, label_names: tuple[str, ...]) -> Names:
        """Names of classes by feature: those of the dataset to append to, and given ones of labels."""
        known = self.append.names if self.append else {}
        return {**known, LABEL: label_names} if label_names else known

    def in_examples(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by feature, with the names of features in Examples."""
        return {self.feature_names.get(name, name): value for name, value in values.items()}

    def versions(self, *more: str) -> dict[str, str]:
        """The versions of Python and of packages, of `more` too, that affect the bytes of the dataset."""
        is_packed = any(feature.codec.is_packed for feature in self.schema.values())
        return versions(*more) | ({"zlib": zlib.ZLIB_RUNTIME_VERSION} if is_packed else {})

    def job(self, summary: Summary) -> str:
        """A digest of the options and the inputs, but not of their places, in 16 hex digits."""
        options = {name: value for name, value in self.options.items() if name not in _PLACES}
        parts = [
            self.schema.to_json(),
            dict(self.feature_names),
            options,
            repr(self.placement),
            self.num_shards,
            self.shard_size,
            summary.facts(),
            *([dict(self.append.flags)] if self.append else []),
        ]
        return _digest(parts, 8)

    def folder(self, summary: Summary) -> str:
        """The name of the folder of this job's files, the same on every machine: 8 hex digits."""
        return _digest([self.job(summary), self.parent, self.versions()], 4)


def _digest(value: Any, size: int) -> str:
    text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=size).hexdigest()


def resolve(directory: str) -> str:
    """The absolute path or URL of the output directory.

    Raises:
        UsageError: The path is empty, or contains `*`, `?` or `[`, which Beam's filesystems take
            for a pattern even when they delete.
    """
    if not directory:
        raise UsageError("--output is empty: name a directory")
    path = absolute_path(directory)
    if GLOB.search(path):
        raise UsageError(f"--output {path}: expected a path without * ? and [")
    return path


def parse_num_shards(given: str | int | None, splits: tuple[str, ...]) -> tuple[int, ...]:
    """The number of shards of every split, from `16` or `train=16,val=2`; 0 if not given, UsageError if wrong."""
    shards, text = dict.fromkeys(splits, 0), str(given)
    for part in [] if given is None else text.split(","):
        name, equals, number = part.strip().rpartition("=")
        if equals and name not in shards:
            raise UsageError(
                f"--num_shards {text}: no split {name!r}, the splits are {', '.join(splits)}"
                f"{did_you_mean(name, splits)}"
            )
        if not number.isdecimal() or not 1 <= int(number) <= MAX_SHARDS:
            raise UsageError(f"--num_shards {text}: {number!r}: expected 1 to {MAX_SHARDS} shards")
        shards.update(dict.fromkeys([name] if equals else splits, int(number)))
    return tuple(shards.values())


def parse_names(text: str, schema: Schema) -> dict[str, str]:
    """Name in the schema -> name in Examples, from `image=image_raw,…`; UsageError if it is wrong."""
    names: dict[str, str] = {}
    for part in text.split(","):
        name, equals, stored = part.strip().partition("=")
        if not equals or name not in schema or name in names:
            raise UsageError(
                f"--names {text}: expected FEATURE=NAME,… with features of {', '.join(schema)}, "
                f"each once; got {part!r}{'' if name in schema else did_you_mean(name, schema)}"
            )
        names[name] = stored
    try:
        renamed_schema(schema, names)
    except ValueError as error:
        raise UsageError(f"--names {text}: {error}") from None
    return names


def renamed_schema(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema with some features renamed; ValueError if two would have the same name, or a name is not allowed."""
    features: dict[str, Feature] = {}
    for name, feature in schema.items():
        stored = names.get(name, name)
        if stored in features:
            raise ValueError(f"two features would be called {stored!r}")
        features[stored] = feature
    return Schema(features)


def output_of(
    directory: str | os.PathLike[str],
    schema: Schema,
    num_shards: int | None,
    shard_size: int | str,
    splits: Mapping[str, float] | tuple[str, ...] | None,
    seed: int,
    max_rejects: int | float | str,
    overwrite: bool,
    options: Mapping[str, Any] | None,
    append: bool = False,
    existing: Existing = "error",
) -> Output:
    """The dataset that arguments describe; UsageError if one of them is wrong.

    `splits` has shares, or in a tuple the names of the splits that records state; the others are those of `write`.
    """
    splits = splits or {"train": 1}
    _check(schema, splits, options)
    if existing not in get_args(Existing):
        raise UsageError(f"existing {existing!r:.80}: expected {', '.join(get_args(Existing))}")
    if append and overwrite:
        raise UsageError("append, overwrite: expected one of both at most")
    stated = dict(options or {})
    if seed or "seed" in stated:
        stated["seed"] = seed  # Readers look keys up with it.
    with named_as_arguments():
        check_seed(seed)
        if isinstance(splits, tuple):
            shares = Splits.named(splits, "names")
        else:
            shares = Splits.parse(",".join(f"{name}={share}" for name, share in splits.items()))
        return Output(
            directory=resolve(os.fspath(directory)),
            schema=schema,
            placement=Placement(seed, shares),
            num_shards=parse_num_shards(num_shards, shares.names),
            shard_size=parse_size(str(shard_size)),
            overwrite=overwrite,
            max_rejects=MaxRejects.parse(str(max_rejects)),
            options=stated,
            append=Append({"existing": existing}) if append else None,
        )


def checked_names(label_names: Iterable[str]) -> tuple[str, ...]:
    """The names of labels by id; UsageError if they are not texts."""
    names = tuple(label_names)
    if isinstance(label_names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"label_names {label_names!r:.80}: expected texts, such as ['cat', 'dog']")
    return names


def _check(schema: Any, splits: Any, options: Mapping[str, Any] | None) -> None:
    """Checks the arguments that no other function checks."""
    if not isinstance(schema, Schema):
        raise UsageError(
            f"schema {schema!r:.80}: expected a Schema, such as "
            "Schema({'x': Feature('float32', (8,))})"
        )
    if not isinstance(splits, Mapping | tuple):
        raise UsageError(
            f"splits {splits!r:.80}: expected a dict such as {{'train': 0.8, 'val': 0.2}}"
        )
    try:
        json.dumps(dict(options or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"options: expected JSON values ({error})") from None
    try:
        Encoder(schema)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if "key" in schema and schema["key"] != Feature("string"):
        raise UsageError(f"feature 'key' is {schema['key']}: expected string [], text")
