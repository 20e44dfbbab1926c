"""The splits of a dataset; a record's group, its split, and its place in the global order, from its key."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from beam_jobs.errors import DataError, RejectError, UsageError
from beam_jobs.sources.labels import column_text
from beam_jobs.sources.source import COLUMN
from readers.format.lookup.keys import ORDER, hash64, hashes64
from readers.format.lookup.stored_keys import StoredKeys
from readers.format.splits import check_split_name

MAX_SPLITS = 256  # one byte per record


def _check_names(names: Sequence[str], where: str) -> None:
    """Raises UsageError, which begins with `where`, for names of splits that are not valid, distinct, or too many."""
    if len(names) > MAX_SPLITS:
        raise UsageError(f"{where}: found {len(names)} splits, expected at most {MAX_SPLITS}")
    known: dict[str, str] = {}
    for name in names:
        try:
            check_split_name(name)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
        if other := known.get(name.lower()):
            if other == name:
                raise UsageError(f"{where}: {name!r} is repeated")
            raise UsageError(
                f"{where}: the splits {other!r} and {name!r} differ only in case, but name files, which "
                "macOS and Windows could not tell apart: use one name"
            )
        known[name.lower()] = name


def _share(splits: str, part: str, share: str) -> float:
    """The share of one split, a part of the value of `--splits`."""
    with contextlib.suppress(ValueError):
        if 0 < float(share) <= 1:
            return float(share)
    raise UsageError(f"--splits {splits}: {part!r}: expected a share up to 1, such as train=0.8")


@dataclass(frozen=True)
class Splits:
    """Names and shares of the splits.

    Attributes:
        names: The names in the order given.
        fractions: The share of each split; they add up to 1.
        kept: Whether each record keeps its split, which is part of the name of the shard in its key.
    """

    names: tuple[str, ...] = ("train",)
    fractions: tuple[float, ...] = (1.0,)
    kept: bool = False

    @classmethod
    def parse(cls, text: str) -> Splits:
        """Parses the value of `--splits`, such as `train=0.8,val=0.2`; UsageError if its names or shares are wrong."""
        parts = text.split(",")
        names, equals, given = zip(*(part.strip().partition("=") for part in parts), strict=True)
        if "" in equals:
            part = parts[equals.index("")]
            raise UsageError(
                f"--splits {text}: expected NAME=SHARE, such as train=0.8,val=0.2; found {part!r}"
            )
        _check_names(names, f"--splits {text:.200}")
        shares = tuple(_share(text, *pair) for pair in zip(parts, given, strict=True))
        if abs(sum(shares) - 1) > 1e-6:
            raise UsageError(f"--splits {text}: the shares add up to {sum(shares):g}, not 1")
        return cls(names, shares)

    @classmethod
    def folds(cls, text: str) -> Splits:
        """The splits of the value of `--folds`: `3` gives fold0, fold1 and fold2; UsageError if it is not valid."""
        if not (text.isascii() and text.isdecimal() and 2 <= int(text[:9]) <= MAX_SPLITS):
            raise UsageError(f"--folds {text}: expected a number from 2 to {MAX_SPLITS}")
        return cls._equal([f"fold{number}" for number in range(int(text))])

    @classmethod
    def named(cls, names: Sequence[str], column: str) -> Splits:
        """The splits that a column names; UsageError if its values are not names, not distinct, or too many."""
        _check_names(names, f"--split_column {column}")
        return cls._equal(names)

    @classmethod
    def of_shards(cls, names: Sequence[str]) -> Splits:
        """The splits of existing shards, which their records keep; UsageError if there are too many, or two are alike."""
        try:
            _check_names(names, "--input")
        except UsageError as error:
            raise UsageError(
                f"{error.message}; reshard fewer datasets at once, or add --splits"
            ) from None
        return cls._equal(names, kept=True)

    @classmethod
    def _equal(cls, names: Sequence[str], kept: bool = False) -> Splits:
        return cls(tuple(names), (1 / len(names),) * len(names), kept)

    @property
    def training(self) -> int:
        """The number of the split from which vocabularies are learned: `train`, or the first one."""
        return self.names.index("train") if "train" in self.names else 0

    @cached_property
    def edges(self) -> list[int]:
        """The smallest group hash of every split but the first."""
        return [
            min(round(math.fsum(self.fractions[: i + 1]) * 2**64), 2**64 - 1)
            for i in range(len(self.names) - 1)
        ]

    def of(self, hashes: np.ndarray) -> np.ndarray:
        """The split of each group hash, uint8 [n]; hashes is uint64 [n]."""
        splits = np.searchsorted(np.array(self.edges, np.uint64), hashes, side="right")
        return splits.astype(np.uint8)

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {name.encode(): number for number, name in enumerate(self.names)}

    def of_keys(self, keys: Sequence[bytes]) -> np.ndarray:
        """The splits of existing records, uint8 [n], from keys like `a/train-00000-of-00002.tfrecord#1`.

        Raises:
            DataError: A key names a shard of no split.
        """
        # Names of splits have no hyphen.
        names = [key.rpartition(b"/")[2].partition(b"-")[0] for key in keys]
        try:
            return np.array([self._numbers[name] for name in names], np.uint8)
        except KeyError as error:
            key = keys[names.index(error.args[0])].decode("utf-8", "backslashreplace")
            raise DataError(
                f"{key}: expected a shard of {', '.join(self.names)}; the inputs have changed since the job began: "
                "run the same command again"
            ) from None


@dataclass(frozen=True)
class Groups:
    """The rule for a record's group; by default each record is its own group.

    Attributes:
        pattern: A regular expression searched in the key: the record's group is the expression's
            first group, or its whole match.
        column: A column with the group.
    """

    pattern: str = ""
    column: str = ""

    @classmethod
    def parse(cls, text: str) -> Groups:
        """Parses the value of `--group_by`; UsageError if it is neither a regular expression nor `column:NAME`."""
        if text == COLUMN:
            raise UsageError(f"--group_by {text}: expected {COLUMN}NAME")
        if text.startswith(COLUMN):
            return cls(column=text.removeprefix(COLUMN))
        try:
            re.compile(text)
        except re.error as error:
            raise UsageError(
                f"--group_by {text}: not a regular expression ({error}); expected one, or {COLUMN}NAME"
            ) from None
        return cls(pattern=text)

    @functools.cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def of(self, key: str, row: Mapping[str, Any]) -> str:
        """The group of a record, from its key and its columns; RejectError if the record has no group."""
        if self.column:
            try:
                return column_text(row, self.column)
            except RejectError as error:
                raise RejectError(f"--group_by {COLUMN}{self.column}: {error}") from None
        if not self.pattern:
            return key
        match = self._regex.search(key)
        group = match and match[min(match.re.groups, 1)]
        if not group:
            # An empty match is not a group: all records with one would share a split.
            raise RejectError(f"--group_by {self.pattern} finds nothing in the key")
        return group

    def __bool__(self) -> bool:
        return bool(self.pattern or self.column)


# Of what every split gets its exact share: of nothing, because the hash of each key chooses its split; of
# all records; or of the records of each label.
Exact = Literal["", "records", "labels"]

# What to do with a record whose key the dataset has.
Existing = Literal["error", "skip", "replace"]

# Stands for all labels, and is not a label itself.
ALL = ""


@dataclass(frozen=True)
class Placement:
    """The split and the order of records, as pure functions of their keys.

    Attributes:
        seed: Determines splits and order.
        splits: Names and shares of the splits.
        groups: The rule that keeps records together in one split.
        split_column: The column that names a record's split; if empty, splits follow hashes.
        exact: Of what every split gets its exact share.
        windows: Whether a source gives several records, which stay together.
        stored: The keys of the dataset to which records are appended.
        existing: What to do with records whose keys it has: fail (`error`), leave them out (`skip`), or write them
            (`replace`).
    """

    seed: int
    splits: Splits
    groups: Groups = field(default_factory=Groups)
    split_column: str = ""
    exact: Exact = ""
    windows: bool = False
    stored: StoredKeys | None = field(default=None, repr=False)
    existing: Existing = field(default="error", repr=False)

    def skipped(self, keys: Sequence[bytes]) -> np.ndarray:
        """The numbers of the keys whose records are left out, because the dataset has them, int64 [k]."""
        if self.existing != "skip" or not len(keys):
            return np.empty(0, np.int64)
        return self._stored_among(self.orders(keys))

    def refused(self, orders: np.ndarray) -> np.ndarray:
        """The numbers of the keys that the dataset has, but may not have, int64 [k], given their hashes, uint64 [n]."""
        return self._stored_among(orders) if self.existing == "error" else np.empty(0, np.int64)

    def _stored_among(self, orders: np.ndarray) -> np.ndarray:
        if self.stored is None:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.stored.find(orders)[:, 0] >= 0)

    @property
    def split_features(self) -> set[str]:
        """The columns or features that, with their keys, determine the splits of records."""
        return {name for name in (self.groups.column, self.split_column) if name}

    @property
    def deals_groups(self) -> bool:
        """Whether groups are dealt to splits by size, so that sizes must be counted first."""
        has_groups = bool(self.groups or (self.exact and self.windows))
        return has_groups and len(self.splits.names) > 1

    @property
    def plans_splits(self) -> bool:
        """Whether the first split is known only after a pass over all records."""
        return bool(self.exact or self.deals_groups)

    def strata(self, labels: Iterable[Any]) -> list[str]:
        """The stratum of each record, given its label: every split gets its share of each stratum."""
        return [str(label) if self.exact == "labels" else ALL for label in labels]

    def split(self, group: str) -> int:
        """The index of the split of a group of records."""
        if self.splits.kept:
            return int(self.splits.of_keys([group.encode("utf-8", "surrogateescape")])[0])
        if len(self.splits.names) == 1:
            return 0
        # Called for every record: bisect takes a tenth of the time of an array of one element.
        return bisect_right(self.splits.edges, hash64(self.seed, b"split", group))

    def split_of(self, key: str, row: Mapping[str, Any]) -> int:
        """The index of a record's split, from its key and its columns; RejectError if these are not valid."""
        if not self.split_column:
            return self.split(self.groups.of(key, row))
        name = column_text(row, self.split_column)
        if name not in self.splits.names:
            raise RejectError(
                f"column {self.split_column!r} is {name!r:.80}, expected one of "
                f"{', '.join(self.splits.names)}"
            )
        return self.splits.names.index(name)

    def orders(self, keys: Iterable[bytes]) -> np.ndarray:
        """The 64-bit place of each record in the global order, uint64 [n], given keys in UTF-8."""
        return hashes64(self.seed, ORDER, keys)

    def splits_of(self, groups: Sequence[bytes]) -> np.ndarray:
        """The `split` of many groups, uint8 [n]."""
        if self.splits.kept:
            return self.splits.of_keys(groups)
        if len(self.splits.names) == 1:
            return np.zeros(len(groups), np.uint8)
        return self.splits.of(self.group_hashes(groups))

    def group_hashes(self, groups: Iterable[bytes]) -> np.ndarray:
        """The hashes that determine the splits of many groups in UTF-8, uint64 [n]."""
        return hashes64(self.seed, b"split", groups)


def check_seed(seed: int) -> None:
    """Raises a UsageError if a seed is not a number from -2**63 to 2**63 - 1, which eight bytes hold."""
    if not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise UsageError(f"--seed {seed!r}: expected a number from -2**63 to 2**63 - 1")
