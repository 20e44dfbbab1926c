"""The splits, shards and other files in a manifest, and how its fields are checked."""

from __future__ import annotations

import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from readers.format.lookup.rows import RowList
from readers.format.remarks import Remarks
from readers.format.schema import Schema

_SPLIT_NAME = re.compile(r"[A-Za-z0-9_.]{1,100}")

_NUMBER = re.compile(r"[0-9a-f]{8}")

# A part of a path, on any filesystem and in any URL.
_PART = re.compile(r"(?!\.\.?\Z)[^/\\:%?#\x00-\x1f]+")

# The most records or bytes: the sums of several still fit into 63 bits.
_MOST = 1 << 60


def shard_name(split: str, index: int, count: int) -> str:
    """The file name of a shard, as in TensorFlow Datasets: `train-00000-of-00016.tfrecord`."""
    return f"{split}-{index:05d}-of-{count:05d}.tfrecord"


def check_split_name(name: str) -> str:
    """Returns the name of a split; ValueError if it is not valid in file names."""
    if not _SPLIT_NAME.fullmatch(name) or name.startswith("."):
        raise ValueError(f"split name {name!r}: expected letters, digits, _ and .")
    return name


def checked_path(path: Any, bases: Sequence[str] = ()) -> str:
    """Returns a path in a dataset, or below a base; ValueError if it is not text, or may lead elsewhere."""
    if isinstance(path, str):
        base = next((base for base in bases if path.startswith(f"{base}/")), None)
        inside = path if base is None else path[len(base) + 1 :]
        if all(map(_PART.fullmatch, inside.split("/"))):
            return path
    raise ValueError(f"path {str(path)[:200]!r}: expected a path inside the dataset")


def is_sibling(base: str) -> bool:
    """Whether a base is the parent folder of the dataset, or lies in it."""
    up, *parts = base.split("/")
    return up == ".." and all(map(_PART.fullmatch, parts))


class File(NamedTuple):
    """A file next to the shards.

    Attributes:
        path: Its path in the dataset's directory.
        crc32c: Its CRC32C.
    """

    path: str
    crc32c: int


@dataclass(frozen=True)
class Shard:
    """One TFRecord file.

    Attributes:
        path: The file's path in the dataset's directory.
        records: The number of records.
        bytes: The size of the file.
        crc32c: The CRC32C of the whole file, without TFRecord's masking.
        index_bytes: The size of its index.
        index_crc32c: The CRC32C of the head of its index, which includes the CRC32C of each block.
        smallest_hash: The smallest order hash of its records, top 32 bits; 0 if their keys are unknown.
        index_path: The path of its index; empty if that is next to the file.
    """

    path: str
    records: int
    bytes: int
    crc32c: int
    index_bytes: int
    index_crc32c: int
    smallest_hash: int
    index_path: str = ""


@dataclass(frozen=True)
class Split:
    """The shards of one split.

    The row of a record is its number among the records of all shards.

    Attributes:
        shards: The shards, in the order in which they were added, and of their numbers.
        rejected: The number of inputs of this split that were rejected.
        statistics: Feature name -> statistics of its values in this split only, so that a
            normalization fitted to `train` does not use data from `test`.
        duplicates: The number of inputs of this split that were dropped as duplicates.
        remarks: What was not read of the inputs of this split, and what was taken for what.
        gone: The rows that readers skip; None if there are none.
        rows: The only rows that readers see; None if they see all that are not gone.
        families: Name -> one shard for each of `shards`, with further features of its records, in the same order.
    """

    shards: tuple[Shard, ...]
    rejected: int = 0
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    duplicates: int = 0
    remarks: Remarks = field(default_factory=Remarks)
    gone: RowList | None = None
    rows: RowList | None = None
    families: dict[str, tuple[Shard, ...]] = field(default_factory=dict)

    @property
    def stored(self) -> int:
        """The number of records in the shards."""
        return sum(shard.records for shard in self.shards)

    @property
    def records(self) -> int:
        """The number of records that readers see."""
        if self.rows is not None:
            return self.rows.records
        return self.stored - (self.gone.records if self.gone else 0)

    @property
    def every_shard(self) -> list[Shard]:
        """The shards of the split and of its families."""
        return [*self.shards, *(shard for shards in self.families.values() for shard in shards)]

    def shards_of(self, family: str) -> tuple[Shard, ...]:
        """The shards of a family; those of the split for ""."""
        return self.families[family] if family else self.shards

    @property
    def bytes(self) -> int:
        """The size of all shards."""
        return sum(shard.bytes for shard in self.shards)

    def counts_of(self, feature: str) -> Counter[int] | None:
        """How often each value of a feature occurs; None if the statistics do not include counts."""
        figures = self.statistics.get(feature)
        values = figures.get("values") if isinstance(figures, Mapping) else None
        if not isinstance(values, Mapping) or not all(isinstance(n, int) for n in values.values()):
            return None
        with contextlib.suppress(ValueError):
            return Counter({int(value): n for value, n in values.items() if n > 0})
        return None


def split_json(split: Split) -> dict[str, Any]:
    """A split as JSON values, for the manifest."""
    return {
        "records": split.records,
        "bytes": split.bytes,
        "rejected": split.rejected,
        "duplicates": split.duplicates,
        **({"remarks": split.remarks.to_json()} if split.remarks else {}),
        "statistics": split.statistics,
        **{
            name: {"path": rows.path, "records": rows.records, "crc32c": f"{rows.crc32c:08x}"}
            for name, rows in (("gone", split.gone), ("rows", split.rows))
            if rows is not None
        },
        "shards": _shards_json(split.shards),
        **(
            {"families": {name: _shards_json(shards) for name, shards in split.families.items()}}
            if split.families
            else {}
        ),
    }


def _shards_json(shards: Sequence[Shard]) -> list[dict[str, Any]]:
    return [
        {
            "path": shard.path,
            "records": shard.records,
            "bytes": shard.bytes,
            "crc32c": f"{shard.crc32c:08x}",
            "smallest_hash": f"{shard.smallest_hash:08x}",
            "index": {
                **({"path": shard.index_path} if shard.index_path else {}),
                "bytes": shard.index_bytes,
                "crc32c": f"{shard.index_crc32c:08x}",
            },
        }
        for shard in shards
    ]


def _shards_of(values: list[Any], bases: Sequence[str]) -> tuple[Shard, ...]:
    shards = []
    for shard in values:
        path = checked_path(shard["path"], bases)
        try:
            records, index = _count(shard, "records"), typed(shard, "index", dict)
            smallest = _hex_number(shard, "smallest_hash")
            place = checked_path(index["path"], bases) if "path" in index else ""
            shards.append(Shard(path, records, *_size_of(shard), *_size_of(index), smallest, place))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return tuple(shards)


def _rows_of(value: Mapping[str, Any], key: str, bases: Sequence[str]) -> RowList | None:
    """The list of rows in a field, which may be missing."""
    if key not in value:
        return None
    rows = typed(value, key, dict)
    path = checked_path(rows["path"], bases)
    return RowList(path, _count(rows, "records"), _hex_number(rows, "crc32c"))


def _split_of(name: str, value: Mapping[str, Any], bases: Sequence[str]) -> Split:
    """Makes a split from the JSON values of `split_json`; ValueError, KeyError or TypeError if a field is wrong or missing."""
    split = Split(
        _shards_of(typed(value, "shards", list), bases),
        _count(value, "rejected"),
        typed(value, "statistics", dict),
        _count(value, "duplicates"),
        Remarks.from_json(value.get("remarks", [])),
        _rows_of(value, "gone", bases),
        _rows_of(value, "rows", bases),
        {
            name: _shards_of(shards, bases)
            for name, shards in (
                typed(value, "families", dict) if "families" in value else {}
            ).items()
        },
    )
    counts = [shard.records for shard in split.shards]
    if any([shard.records for shard in shards] != counts for shards in split.families.values()):
        raise ValueError(
            f"split {name}: the shards of a family differ from its shards in their records"
        )
    if max(rows.records if rows else 0 for rows in (split.gone, split.rows)) > split.stored:
        raise ValueError(f"split {name}: it lists more rows than its {split.stored} stored records")
    if split.gone and split.rows:
        raise ValueError(f"split {name}: expected either rows or rows that are gone")
    for key, total in (("records", split.records), ("bytes", split.bytes)):
        if _count(value, key) != total:
            raise ValueError(f"split {name}: {value[key]} {key}, but its shards add up to {total}")
    return split


def _size_of(file: Mapping[str, Any]) -> tuple[int, int]:
    """The size and the checksum of a file."""
    return _count(file, "bytes"), _hex_number(file, "crc32c")


def _hex_number(value: Mapping[str, Any], key: str) -> int:
    """The value of a key, which must be a number of 8 hexadecimal digits."""
    text: str = typed(value, key, str)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{key} must be 8 hex digits, found {text[:80]!r}")
    return int(text, 16)


def typed(value: Mapping[str, Any], key: str, kind: type) -> Any:
    """The value of a key, which must have exactly this type."""
    found = value[key]
    if type(found) is not kind:
        raise ValueError(f"{key}: expected {kind.__name__}, found {str(found)[:80]!r}")
    return found


def _count(value: Mapping[str, Any], key: str) -> int:
    """The value of a key, which must be a whole number from 0 to below 2 ** 60."""
    number: int = typed(value, key, int)
    if not 0 <= number < _MOST:
        raise ValueError(f"{key}: expected a count, found {number}")
    return number


def _texts(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    texts = typed(value, key, list)
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{key}: expected a list of text")
    return tuple(texts)


def _paths(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(checked_path(path, _bases(value, "base")) for path in typed(value, key, list))


def _names(value: Mapping[str, Any], key: str) -> dict[str, tuple[str, ...]]:
    found = typed(value, key, dict)
    for names in found.values():
        if type(names) is not list or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{key}: expected lists of text")
    return {name: tuple(names) for name, names in found.items()}


def _splits(value: Mapping[str, Any], key: str) -> dict[str, Split]:
    splits, bases = typed(value, key, dict).items(), _bases(value, "base")
    return {check_split_name(name): _split_of(name, split, bases) for name, split in splits}


def _bases(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The directories outside of the dataset in which it may have files; the field may be missing."""
    return _texts(value, key) if key in value else ()


def _families(value: Mapping[str, Any], key: str) -> dict[str, tuple[str, ...]]:
    return _names(value, key) if key in value else {}


def _files(value: Mapping[str, Any], key: str) -> dict[str, File]:
    files = {}
    for name, file in typed(value, key, dict).items():
        path = checked_path(file["path"], _bases(value, "base"))
        try:
            files[name] = File(path, _hex_number(file, "crc32c"))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    return files


_MAPPING = functools.partial(typed, kind=dict)

# Field of the manifest's JSON -> a function that reads and checks it, given all fields and its name.
FIELDS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    "schema": lambda value, key: Schema.from_json(value[key]),
    "splits": _splits,
    "label_names": _texts,
    "class_names": _names,
    "vocabulary": _count,
    "tokenizer": _count,
    "options": _MAPPING,
    "versions": _MAPPING,
    "files": _files,
    "rejected": _count,
    "rejects": _paths,
    "generation": _count,
    "job": functools.partial(typed, kind=str),
    "ancestors": _texts,
    "base": _bases,
    "families": _families,
    "operation": lambda value, key: typed(value, key, dict) if key in value else {},
}
