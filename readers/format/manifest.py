"""What a dataset is: schema, splits, shards and checksums, as `manifest.json` holds them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from readers.files.remote import read_file
from readers.format.schema import Schema

FORMAT_VERSION = 1

MANIFEST = "manifest.json"

VOCABULARY = "vocabulary.txt"

# The first two words of every vocabulary, which are not stored in its file.
PADDING, UNKNOWN = b"", b"[UNK]"

TOKENIZER = "tokenizer.json"

INDEX_SUFFIX = ".idx"

_SPLIT_NAME = re.compile(r"[A-Za-z0-9_.]{1,100}")

_CRC32C = re.compile(r"[0-9a-f]{8}")


class DatasetError(ValueError):
    """A directory that is not a dataset this package can read; the message says why."""


def shard_name(split: str, index: int, count: int) -> str:
    """The file of a shard, as TensorFlow Datasets names them: train-00000-of-00016.tfrecord."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


def check_split_name(name: str) -> str:
    """The name itself.

    Raises:
        ValueError: It cannot be the beginning of a file name.
    """
    if not _SPLIT_NAME.fullmatch(name) or name.startswith("."):
        raise ValueError(f"split name {name!r}: expected letters, digits, _ and .")
    return name


def join(directory: str, name: str) -> str:
    """A path below a directory, on any filesystem."""
    return directory + ("" if not directory or directory.endswith("/") else "/") + name


@dataclass(frozen=True)
class Shard:
    """One TFRecord file.

    Attributes:
        file: Its name, in the dataset's directory.
        records: How many it holds.
        bytes: Its size.
        crc32c: Of the whole file, not masked.
    """

    file: str
    records: int
    bytes: int
    crc32c: int


@dataclass(frozen=True)
class Split:
    """The shards of one split.

    Attributes:
        shards: In the order of their numbers.
        rejected: Inputs that fell into this split and could not become records.
        statistics: Feature name -> numbers about its values in this split alone, so that a
            normalisation taken from `train` knows nothing of `test`.
        duplicates: Inputs that fell into this split and were dropped, as they equal others.
    """

    shards: tuple[Shard, ...]
    rejected: int = 0
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    duplicates: int = 0

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)


@dataclass(frozen=True)
class Manifest:
    """All that a reader has to know of a dataset.

    Attributes:
        schema: The features of every record.
        splits: Name -> shards, in the order they were asked for.
        label_names: Names of the classes by id; empty where the labels are the numbers themselves.
        class_names: The same of other features that are classes, such as `box_labels`.
        vocabulary: Tokens by id, in `vocabulary.txt`; how many, 0 without one.
        tokenizer: Ids of the tokenizer in `tokenizer.json`; how many, 0 without one.
        options: The job and its own options, without anything of the runner or the machine.
        versions: Of the packages that wrote it.
    """

    schema: Schema
    splits: dict[str, Split]
    label_names: tuple[str, ...] = ()
    vocabulary: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tokenizer: int = 0

    @property
    def duplicates(self) -> int:
        return sum(split.duplicates for split in self.splits.values())

    @property
    def rejected(self) -> int:
        return sum(split.rejected for split in self.splits.values())

    def split(self, name: str) -> Split:
        """A split by name.

        Raises:
            ValueError: There is none; the message lists those there are.
        """
        if name not in self.splits:
            raise ValueError(f"unknown split {name!r}: the dataset has {', '.join(self.splits)}")
        return self.splits[name]

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "schema": self.schema.to_json(),
            "label_names": list(self.label_names),
            "class_names": {name: list(names) for name, names in self.class_names.items()},
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "rejected": self.rejected,
            "splits": {
                name: {
                    "records": split.records,
                    "bytes": split.bytes,
                    "rejected": split.rejected,
                    "duplicates": split.duplicates,
                    "statistics": split.statistics,
                    "shards": [
                        {
                            "file": shard.file,
                            "records": shard.records,
                            "bytes": shard.bytes,
                            "crc32c": f"{shard.crc32c:08x}",
                        }
                        for shard in split.shards
                    ],
                }
                for name, split in self.splits.items()
            },
            "options": self.options,
            "versions": self.versions,
        }

    def to_bytes(self) -> bytes:
        """The text of manifest.json, UTF-8."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()

    @classmethod
    def from_json(cls, value: Any) -> Manifest:
        """The manifest that `to_json` gave.

        Raises:
            ValueError: A field is missing or wrong, or a later format version wrote it.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a JSON object, got {type(value).__name__}")
        version = value.get("format_version")
        if type(version) is not int or version != FORMAT_VERSION:
            raise ValueError(
                f"format version {version!r}; this package reads version {FORMAT_VERSION}"
            )
        try:
            manifest = cls(
                schema=Schema.from_json(value["schema"]),
                splits={
                    check_split_name(name): _split(name, split)
                    for name, split in _typed(value, "splits", dict).items()
                },
                label_names=tuple(_typed(value, "label_names", list)),
                class_names=_names(value),
                vocabulary=_count(value, "vocabulary"),
                tokenizer=_count(value, "tokenizer") if "tokenizer" in value else 0,
                options=_typed(value, "options", dict),
                versions=_typed(value, "versions", dict),
            )
            rejected = _count(value, "rejected")
        except KeyError as error:
            raise ValueError(f"the field {error} is missing") from None
        except TypeError as error:
            raise ValueError(f"a field has the wrong type ({error})") from None
        if not all(isinstance(name, str) for name in manifest.label_names):
            raise ValueError("label_names: expected a list of text")
        if manifest.rejected != rejected:
            raise ValueError(f"{rejected} rejected, but the splits add up to {manifest.rejected}")
        return manifest

    @classmethod
    def read(cls, directory: str) -> Manifest:
        """The manifest of a dataset on any filesystem that fsspec knows.

        Raises:
            DatasetError: The directory holds no manifest, or one that cannot be read.
        """
        path = join(str(directory), MANIFEST)
        try:
            text = read_file(path)
        except (FileNotFoundError, NotADirectoryError):
            raise DatasetError(
                f"{directory}: no {MANIFEST} here, so this is not a finished dataset; run the job "
                "again, or give schema= to read TFRecord files without a manifest"
            ) from None
        except (ImportError, ValueError) as error:  # An unknown protocol is a ValueError.
            raise DatasetError(f"{path}: {error}") from None
        try:
            return cls.from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}: {error}") from None


def _typed(value: Mapping[str, Any], key: str, kind: type) -> Any:
    found = value[key]
    if type(found) is not kind:
        raise ValueError(f"{key}: expected {kind.__name__}, found {str(found)[:80]!r}")
    return found


def _count(value: Mapping[str, Any], key: str) -> int:
    number: int = _typed(value, key, int)
    if number < 0:
        raise ValueError(f"{key}: expected a count, found {number}")
    return number


def _names(value: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The class names, which manifests of before have not."""
    if "class_names" not in value:
        return {}
    found = _typed(value, "class_names", dict)
    for names in found.values():
        if type(names) is not list or not all(isinstance(name, str) for name in names):
            raise ValueError("class_names: expected lists of text")
    return {name: tuple(names) for name, names in found.items()}


def _split(name: str, value: Mapping[str, Any]) -> Split:
    listed = _typed(value, "shards", list)
    shards = []
    for index, shard in enumerate(listed):
        # The exact name, so that no manifest can point outside its directory.
        expected = shard_name(name, index, len(listed))
        if shard["file"] != expected:
            raise ValueError(
                f"shard {index} of {name}: expected {expected!r}, "
                f"found {str(shard['file'])[:200]!r}"
            )
        crc32c = _typed(shard, "crc32c", str)
        if not _CRC32C.fullmatch(crc32c):
            raise ValueError(f"{expected}: crc32c must be 8 hex digits, found {crc32c[:80]!r}")
        try:
            sizes = _count(shard, "records"), _count(shard, "bytes")
        except ValueError as error:
            raise ValueError(f"{expected}: {error}") from None
        shards.append(Shard(expected, *sizes, int(crc32c, 16)))
    split = Split(
        tuple(shards),
        _count(value, "rejected"),
        _typed(value, "statistics", dict),
        _count(value, "duplicates") if "duplicates" in value else 0,
    )
    for key, total in (("records", split.records), ("bytes", split.bytes)):
        if _count(value, key) != total:
            raise ValueError(f"split {name}: {value[key]} {key}, but its shards add up to {total}")
    return split
