"""The manifest of a dataset, `manifest.json`: its schema, splits, shards and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c

from readers.files.files import RefusedError
from readers.files.local import is_local, path_text
from readers.files.of_path import files_of, read_file
from readers.format.display import features_table, format_table, splits_table
from readers.format.remarks import Remarks
from readers.format.schema import Schema
from readers.format.splits import FIELDS, File, Shard, Split, is_sibling, split_json, typed

FORMAT_VERSION = 2

MANIFEST = "manifest.json"
GENERATIONS = "generations"
TAGS = "tags"

# The content of a tag: the number of a generation, and the SHA-256 of its manifest.
_TAG = re.compile(rb"([1-9][0-9]{0,17}) ([0-9a-f]{64})\n")

# The environment variable with the directories, divided by commas, in which manifests elsewhere may have shards.
ALLOWED_BASES = "BEAM_SHARDS_BASES"
VOCABULARY = "vocabulary.txt"

# The first two words of every vocabulary, with the ids 0 and 1, are not stored in its file.
PADDING, UNKNOWN = b"", b"[UNK]"
UNKNOWN_ID, RESERVED_IDS = 1, 2

# Removed from the words of a vocabulary.
PUNCTUATION = rb"""!"#$%&()*+,-./:;<=>?@[\]^_`{|}~'"""

TOKENIZER = "tokenizer.json"

# The splits to which groups were dealt: their hashes, uint64, ascending, and then their splits, uint8.
GROUPS = "groups"
INDEX_SUFFIX = ".index"

# Of text indexes, which other programs read, and which are not part of a dataset.
TEXT_INDEX_SUFFIX = ".idx"

# Stored with the options of a job: what the files of recordings state, as samples per second, and for each array the
# names and the units of its channels.
FACTS = SAMPLE_RATE, CHANNELS, UNITS = "sample_rate", "channel_names", "channel_units"
_RATE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(?:(k?)hz)?", re.IGNORECASE)

_ADVICE_FOR_NEWER = (
    ": a later release of beam-shards wrote the dataset; upgrade beam-shards, or, in Python, read the "
    "shards as TFRecord files with schema="
)

# What a manifest may require of its readers.
_KNOWN = frozenset(["base", "families", "gone", "indexes", "rows"])

# The last field of a manifest: the CRC32C of all bytes before its line.
_OWN_CRC = re.compile(rb' "crc32c": "([0-9a-f]{8})"\n}\n\Z')


class DatasetError(ValueError):
    """A directory is not a dataset that this version can read; the message states why."""


def join(directory: str, name: str) -> str:
    """The path of a file in a directory, on any filesystem; below a base, also of one outside of it."""
    if name.startswith("../"):
        if is_local(directory):
            parent = os.path.dirname(os.path.abspath(directory))
        else:
            parent = directory.rstrip("/").rpartition("/")[0]
        return join(parent, name[3:])
    if name.startswith("/") or "://" in name:
        return name
    return directory + ("" if not directory or directory.endswith("/") else "/") + name


def index_path(shard: Shard) -> str:
    """The path of a shard's index in the dataset's directory."""
    return shard.index_path or shard.path + INDEX_SUFFIX


def _rate_in(value: Any) -> float:
    """Samples per second in a number, or in a flag such as `16kHz` or `50`; 0 if there are none."""
    found = _RATE.fullmatch(str(value).strip())
    return float(found[1]) * (1000 if found[2] else 1) if found else 0.0


def generation_file(number: int) -> str:
    """The manifest file of a generation, which never changes."""
    return f"{GENERATIONS}/{number}.json"


@dataclass(frozen=True)
class Manifest:
    """Everything that a reader needs to know about one generation of a dataset.

    Attributes:
        schema: The features of every record.
        splits: Name -> split, in the order of the job's options.
        label_names: The names of the classes by id; empty if the labels are plain numbers.
        vocabulary: The number of tokens in `vocabulary.txt`; 0 if there is none.
        options: The job and its options, without those of the runner or the machine.
        versions: Package -> version, of the packages that wrote the dataset.
        class_names: Feature name -> names of its classes by id, for other features that hold
            classes, such as `box_labels`.
        tokenizer: The number of ids of the tokenizer in `tokenizer.json`; 0 if there is none.
        files: Name -> the vocabulary and the tokenizer, if the dataset has them.
        rejects: The paths of the lists of rejects.
        generation: The number of the generation.
        job: Identifies the contents: the options of the job, and its inputs with their sizes.
        ancestors: The SHA-256 of the manifests of the generations that this one continues, from the first on.
        base: Directories outside of the dataset's, relative to it or absolute, in which some of its shards are.
        families: Name -> the features in its shards, which lie next to those of the splits.
        operation: The command that made the generation: its `name`, and its options.

    Raises:
        DatasetError: (a ValueError) From `read`: the directory has no manifest, or a damaged one.

    Example:
        >>> manifest = readers.Manifest.read("shards/images")
        >>> manifest.num_classes, manifest.splits["train"].records
        (2, 96)
    """

    schema: Schema
    splits: dict[str, Split]
    label_names: tuple[str, ...] = ()
    vocabulary: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    class_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tokenizer: int = 0
    files: dict[str, File] = field(default_factory=dict)
    rejects: tuple[str, ...] = ()
    generation: int = 1
    job: str = ""
    ancestors: tuple[str, ...] = ()
    base: tuple[str, ...] = ()
    families: dict[str, tuple[str, ...]] = field(default_factory=dict)
    operation: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        tables = features_table(self.schema), splits_table(self.splits)
        return "\n\n".join(map(format_table, tables))

    @property
    def sample_rate(self) -> float:
        """Samples per second of all recordings, as stored.

        0 if neither their files nor the job's flags state them, or if a function made the records.
        """
        if self.options.get("map"):
            return 0.0
        rates = (_rate_in(self.options.get(name)) for name in ("resample", SAMPLE_RATE, "rate"))
        return next(filter(None, rates), 0.0)

    @property
    def channels(self) -> dict[str, tuple[str, ...]]:
        """Feature name -> the names of its channels, its last axis, if their files state them."""
        return self._of_channels(CHANNELS)

    @property
    def units(self) -> dict[str, tuple[str, ...]]:
        """Feature name -> the unit of each channel, "" for unknown ones, if their files state them."""
        return self._of_channels(UNITS)

    def meaning(self, feature: str) -> dict[str, Any]:
        """The meaning of the numbers of a feature: names of classes, channels and units."""
        name, spec, options = self.name_of_job(feature), self.schema[feature], self.options
        tokens = [options.get("tokens"), *(file.crc32c for file in self.files.values())]
        facts = {
            "classes": self.label_names if name == "label" else self.class_names.get(feature),
            "tokens": tokens if name == "tokens" else None,
            "channels": self.channels.get(feature),
            "units": self.units.get(feature),
            "rate": self.sample_rate if spec.shape and spec.dtype != "string" else 0,
            "box_order": options.get("box_order") if name in ("boxes", "keypoints") else None,
        }
        return {fact: value for fact, value in facts.items() if value}

    @property
    def channel_titles(self) -> dict[str, tuple[str, ...]]:
        """Feature name -> its channels with their units, such as `x [g]`, for people."""
        units = self.units
        return {
            feature: tuple(
                f"{name} [{unit}]" if unit else name
                for name, unit in zip(names, units.get(feature, [""] * len(names)), strict=True)
            )
            for feature, names in self.channels.items()
        }

    def _of_channels(self, fact: str) -> dict[str, tuple[str, ...]]:
        stated, found = self.options.get(fact), dict[str, tuple[str, ...]]()
        if self.options.get("map") or not isinstance(stated, Mapping):
            return found
        for feature, spec in self.schema.items():
            texts = stated.get(self.name_of_job(feature))
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                continue
            if spec.shape[-1:] == (len(texts),):
                found[feature] = tuple(texts)
        return found

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @property
    def features_of(self) -> dict[str, tuple[str, ...]]:
        """Family -> the features in its shards; "" -> those in the shards of the splits."""
        others = {name for names in self.families.values() for name in names}
        return {"": tuple(name for name in self.schema if name not in others), **self.families}

    @property
    def paths(self) -> set[str]:
        """The paths of all files, except the manifests themselves; with a base, some are outside of the directory."""
        splits = self.splits.values()
        shards = [shard for split in splits for shard in split.every_shard]
        files = {path for shard in shards for path in (shard.path, index_path(shard))}
        rows = {rows.path for split in splits for rows in (split.gone, split.rows) if rows}
        others = {*self.rejects, *(file.path for file in self.files.values())}
        return {*files, *rows, *others}

    @property
    def requires(self) -> list[str]:
        """What a reader needs to know to read the dataset rightly."""
        splits = self.splits.values()
        needs = {
            "base": self.base,
            "families": self.families,
            "gone": any(split.gone for split in splits),
            "indexes": any(shard.index_path for split in splits for shard in split.every_shard),
            "rows": any(split.rows for split in splits),
        }
        return [name for name, is_needed in needs.items() if is_needed]

    @property
    def duplicates(self) -> int:
        """The number of inputs in all splits that were dropped as duplicates."""
        return sum(split.duplicates for split in self.splits.values())

    @property
    def remarks(self) -> Remarks:
        """What was not read of the inputs of all splits, and what was taken for what."""
        remarks = Remarks()
        for split in self.splits.values():
            remarks.merge(split.remarks)
        return remarks

    @property
    def rejected(self) -> int:
        """The number of inputs in all splits that were rejected."""
        return sum(split.rejected for split in self.splits.values())

    def counts_of(self, feature: str) -> Counter[int] | None:
        """How often each value of a feature occurs in all splits; None if values were not counted.

        Scalar labels and tokens are counted, up to 100,000 different values.
        """
        counts: Counter[int] = Counter()
        for split in self.splits.values():
            found = split.counts_of(feature)
            if found is None and split.records:
                return None
            counts.update(found or {})
        return counts

    def name_of_job(self, feature: str) -> str:
        """The name that the job gave a feature before its option `--names` renamed it."""
        renamed = self.options.get("names")
        for pair in renamed.split(",") if isinstance(renamed, str) else ():
            name, _, new = pair.partition("=")
            if new.strip() == feature:
                return name.strip()
        return feature

    @property
    def counted_label(self) -> str:
        """The feature with one counted label per record; empty without one."""
        for name, feature in self.schema.items():
            # Tokens are counted, too, but they are arrays.
            if not feature.shape and any(split.counts_of(name) for split in self.splits.values()):
                return name
        return ""

    @property
    def label(self) -> str:
        """The feature with the label or labels of a record, counted or not; empty without one."""
        flat = (name for name, feature in self.schema.items() if len(feature.shape) < 2)
        return self.counted_label or next((f for f in flat if self.name_of_job(f) == "label"), "")

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Feature name -> the names of its classes by id, for all features with named classes."""
        names = {self.label or "label": self.label_names, **self.class_names}
        return {feature: found for feature, found in names.items() if found}

    @property
    def num_classes(self) -> int | None:
        """One more than the largest id of a label: the size of a classifier's output.

        None if there are no labels, or if some are negative numbers.
        """
        if self.label_names:
            return len(self.label_names)
        ends = self.label_range
        return ends[1] + 1 if ends and ends[0] >= 0 else None

    @property
    def label_range(self) -> tuple[int, int] | None:
        """The smallest and the largest label; None without integer labels."""
        if not self.label or self.schema[self.label].dtype != "int64":
            return None
        found = [split.statistics.get(self.label) for split in self.splits.values()]
        ends = [
            each.get(end) for each in found if isinstance(each, Mapping) for end in ("min", "max")
        ]
        whole = [value for value in ends if isinstance(value, int)]
        return (min(whole), max(whole)) if whole else None

    def check_file(self, name: str, content: bytes) -> None:
        """Checks the content of a file of `files`.

        Raises:
            ValueError: Its checksum differs from the manifest's.
        """
        crc, expected = google_crc32c.value(content), self.files[name].crc32c
        if expected != crc:
            raise ValueError(
                f"its CRC32C is {crc:08x}, the manifest states {expected:08x}; it is damaged or from "
                "another run of the job"
            )

    def tokens(self, directory: str, read: Callable[[str], bytes]) -> tuple[tuple[bytes, ...], str]:
        """All words by id, and the text of the tokenizer, from the files in the dataset's directory; empty without these.

        Raises:
            OSError, ValueError: A file is missing, damaged, or not the one that the manifest lists.
        """
        contents = {VOCABULARY: b"", TOKENIZER: b""}
        for name in [name for name in contents if name in self.files]:
            contents[name] = read(join(directory, self.files[name].path))
            try:
                self.check_file(name, contents[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        words = contents[VOCABULARY].split(b"\n")[:-1]
        vocabulary = (PADDING, UNKNOWN, *words) if self.vocabulary else ()
        if len(vocabulary) != self.vocabulary:
            raise ValueError(
                f"{VOCABULARY} has {len(vocabulary)} tokens, expected {self.vocabulary} as in {MANIFEST}"
            )
        return vocabulary, contents[TOKENIZER].decode()

    def split(self, name: str) -> Split:
        """Looks up a split by name.

        Raises:
            ValueError: There is no such split; the message lists those that exist.
        """
        if name not in self.splits:
            raise ValueError(f"unknown split {name!r}: the dataset has {', '.join(self.splits)}")
        return self.splits[name]

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON values."""
        return {
            "format_version": FORMAT_VERSION,
            "requires": self.requires,
            "generation": self.generation,
            "ancestors": list(self.ancestors),
            **({"operation": self.operation} if self.operation else {}),
            **({"base": list(self.base)} if self.base else {}),
            **(
                {"families": {name: list(names) for name, names in self.families.items()}}
                if self.families
                else {}
            ),
            "job": self.job,
            "schema": self.schema.to_json(),
            "label_names": list(self.label_names),
            "class_names": {name: list(names) for name, names in self.class_names.items()},
            "vocabulary": self.vocabulary,
            "tokenizer": self.tokenizer,
            "files": {
                name: {"path": file.path, "crc32c": f"{file.crc32c:08x}"}
                for name, file in self.files.items()
            },
            "rejected": self.rejected,
            "rejects": list(self.rejects),
            "splits": {name: split_json(split) for name, split in self.splits.items()},
            "options": self.options,
            "versions": self.versions,
        }

    def to_bytes(self) -> bytes:
        """Serializes `manifest.json` in UTF-8; the last field, `crc32c`, covers all bytes before it."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        data = text.removesuffix("\n}").encode() + b",\n"
        return data + b' "crc32c": "%08x"\n}\n' % google_crc32c.value(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Parses the content that `to_bytes` returned.

        Raises:
            ValueError: The content is not a manifest, has another format version, or fails its own CRC32C.
            RecursionError: The JSON is nested too deeply.
        """
        manifest = cls.from_json(json.loads(data))
        found = _OWN_CRC.search(data)
        crc = google_crc32c.value(data[: found.start()]) if found else 0
        if not found or crc != int(found[1], 16):
            stated = (
                f"it states {found[1].decode()} and has {crc:08x}" if found else "it states none"
            )
            raise ValueError(
                f"its CRC32C is wrong: {stated}, so it is damaged or was edited; copy it again from where "
                "the job wrote it, or run the job again"
            )
        return manifest

    @classmethod
    def from_json(cls, value: Any) -> Manifest:
        """Makes a manifest from the JSON values that `to_json` returned.

        Raises:
            ValueError: A field is missing or wrong, or the format version is another one.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"expected a JSON object, got {type(value).__name__}")
        version = value.get("format_version")
        if type(version) is not int or version != FORMAT_VERSION:
            is_newer = type(version) is int and version > FORMAT_VERSION
            raise ValueError(
                f"format version {version!r}; this package reads version {FORMAT_VERSION}"
                + (_ADVICE_FOR_NEWER if is_newer else "; run the job again")
            )
        try:
            # A later format may require support for something else.
            if unknown := {*typed(value, "requires", list)} - _KNOWN:
                raise ValueError(f"it requires {min(map(str, unknown))!r}{_ADVICE_FOR_NEWER}")
            fields = {name: read(value, name) for name, read in FIELDS.items()}
        except KeyError as error:
            raise ValueError(f"the field {error} is missing") from None
        except TypeError as error:
            raise ValueError(f"a field has the wrong type ({error})") from None
        rejected = fields.pop("rejected")
        manifest = cls(**fields)
        if manifest.rejected != rejected:
            raise ValueError(f"{rejected} rejected, but the splits add up to {manifest.rejected}")
        every = [shard.path for split in manifest.splits.values() for shard in split.every_shard]
        if len(set(every)) < len(every):
            raise ValueError("splits: a shard is listed twice")
        if {*typed(value, "requires", list)} != {*manifest.requires}:
            raise ValueError(f"it requires {value['requires']}, expected {manifest.requires}")
        for name, split in manifest.splits.items():
            if split.families.keys() != manifest.families.keys():
                raise ValueError(f"split {name}: its families differ from those of the dataset")
        for name, size in ((VOCABULARY, manifest.vocabulary), (TOKENIZER, manifest.tokenizer)):
            if bool(size) != (name in manifest.files):
                raise ValueError(f"{size} ids, and {name} is {'not ' * bool(size)}among its files")
        return manifest

    @classmethod
    def read(cls, directory: str | os.PathLike[str]) -> Manifest:
        """Reads a manifest of a dataset on a disk, in an object store, or from any fsspec URL.

        Args:
            directory: The dataset, for its newest generation; or `DIR@3` or `DIR@TAG`.

        Raises:
            DatasetError: (a ValueError) The directory has no manifest, or a damaged one.
            StoreError: (an OSError) A store still fails after several retries.
        """
        return open_generation(path_text(directory)).manifest


class Generation(NamedTuple):
    """A generation of a dataset, whose directory is without `@`."""

    directory: str
    manifest: Manifest
    sha256: str


def open_generation(path: str, pinned: Collection[str] = ()) -> Generation:
    """Reads the manifest of a dataset, or of one of its generations.

    Args:
        path: A directory, for the newest generation; or `DIR@3` or `DIR@TAG`.
        pinned: SHA-256 of manifests. If the newest generation continues one of them, that one is read instead.

    Raises:
        DatasetError: (a ValueError) There is no manifest, generation or tag, or a manifest is damaged.
        StoreError: (an OSError) A store still fails after several retries.
    """
    directory, name = divided(path)
    newest = newest_manifest(directory, read_file)
    if newest is None:
        raise DatasetError(_without_manifest(directory))
    data, manifest = newest
    number, found, expected = manifest.generation, hashlib.sha256(data).hexdigest(), ""
    first = number - len(manifest.ancestors)
    if name.isdecimal():
        number = int(name)
    elif name:
        number, expected = read_tag(directory, name)
    elif found not in pinned:
        older = [n for n, sha256 in enumerate(manifest.ancestors, first) if sha256 in pinned]
        number = older[-1] if older else number
    if first <= number < manifest.generation:
        expected = expected or manifest.ancestors[number - first]
    if number != manifest.generation:
        try:
            data = read_file(join(directory, generation_file(number)))
            manifest, found = Manifest.from_bytes(data), hashlib.sha256(data).hexdigest()
        except FileNotFoundError:
            raise DatasetError(
                f"{path}: generation {number} is not here; beam-shards log {directory} lists those that are"
            ) from None
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{join(directory, generation_file(number))}: {error}") from None
        if expected not in ("", found):
            raise DatasetError(f"{path}: generation {number} has been replaced by another one")
    _check_bases(directory, manifest.base)
    return Generation(directory, manifest, found)


def divided(path: str) -> tuple[str, str]:
    """The directory of a dataset, and the generation or tag after `@`; a directory with such a name wins."""
    folder, at, name = path.rstrip("/").rpartition("@")
    if not at or not folder or "/" in name or not name:
        return path, ""
    is_here = files_of(path).exists(join(path, MANIFEST))
    return (path, "") if is_here else (folder, name)


def read_tag(directory: str, name: str) -> tuple[int, str]:
    """The number of a tagged generation, and the SHA-256 of its manifest; DatasetError if there is no such tag."""
    try:
        found = _TAG.fullmatch(read_file(join(directory, f"{TAGS}/{name}")))
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(f"{directory}: no generation or tag {name!r}") from None
    if found is None:
        raise DatasetError(f"{directory}/{TAGS}/{name}: expected a generation and its SHA-256")
    return int(found[1]), found[2].decode()


def _check_bases(directory: str, bases: Sequence[str]) -> None:
    """Raises DatasetError for a base outside of the dataset's parent folder, unless `ALLOWED_BASES` has it.

    Otherwise a manifest of somebody else could name any file of this machine.
    """
    allowed = [base.rstrip("/") for base in os.environ.get(ALLOWED_BASES, "").split(",") if base]
    for base in bases:
        if not is_sibling(base) and not any(f"{base}/".startswith(f"{a}/") for a in allowed):
            raise DatasetError(
                f"{directory}: its shards are in {base}; if you trust it, set {ALLOWED_BASES}={base}"
            )


def newest_manifest(directory: str, read: Callable[[str], bytes]) -> tuple[bytes, Manifest] | None:
    """Reads the newest manifest of a dataset, and its content; returns None without one.

    An interrupted job may have left `manifest.json` older than the newest generation, or missing. `read` must raise
    FileNotFoundError or NotADirectoryError for a path without a file.

    Raises:
        DatasetError: A manifest is damaged, or cannot be read.
    """
    found, name, number = None, MANIFEST, 0
    while True:
        path = join(directory, name)
        try:
            data = read(path)
            found = data, Manifest.from_bytes(data)
            stated = found[1].generation
            if stated != number and name != MANIFEST:
                raise ValueError(f"it states that it is generation {stated}")
            number = stated
        except (FileNotFoundError, NotADirectoryError):
            if name != MANIFEST:
                return found
        except PermissionError as error:
            # Stores answer 403 for a missing file if the user may not list. Credentials may also have expired.
            if found is None or isinstance(error, RefusedError):
                raise
            return found
        except (ImportError, ValueError, RecursionError) as error:  # Or a driver is missing.
            raise DatasetError(f"{path}: {error}") from None
        number += 1
        name = generation_file(number)


def _without_manifest(directory: str) -> str:
    """The error message for a directory without a manifest."""
    on_disk = is_local(directory)
    if on_disk and not os.path.exists(directory):
        return f"{directory}: no such directory"
    if on_disk and os.path.isfile(directory) and os.path.basename(directory) != MANIFEST:
        above = [str(folder) for folder in Path(directory).parents if (folder / MANIFEST).exists()]
        return (
            f"{directory} is a file: expected the directory of a dataset{f', {above[0]}' if above else ''}; or, "
            "in Python, set schema= to read TFRecord files without a manifest"
        )
    if os.path.basename(directory) == MANIFEST:
        return f"{directory} is a file: name its folder, {os.path.dirname(directory) or '.'}"
    if on_disk and any(Path(directory).glob("*/*.tfrecord.done")):
        return (
            f"{directory}: not a finished dataset: its job still runs or was killed; the same command again "
            "keeps the shards that are done"
        )
    message = (
        f"{directory}: no {MANIFEST} here, so this is not a finished dataset; run the job again, or, "
        "in Python, set schema= to read TFRecord files without a manifest"
    )
    if on_disk and any(Path(directory).glob("*.tfrecord*")):
        message += f"; beam-shards index {directory} --output DIR makes a dataset of the files here"
    return message
