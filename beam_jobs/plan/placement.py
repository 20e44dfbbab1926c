"""The split of a record and its place in the global order, from hashes of its key."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from beam_jobs.errors import DataError, RejectError, UsageError
from beam_jobs.plan.groups import Groups
from beam_jobs.sources.labels import column_text
from readers.format.manifest import check_split_name


def hash64(seed: int, purpose: bytes, text: str) -> int:
    """A uniform 64-bit hash, the same on every machine: BLAKE2b keyed with the seed.

    Args:
        purpose: At most 16 bytes; hashes for different purposes are independent.
    """
    state = _keyed(seed, purpose).copy()
    state.update(text.encode("utf-8", "surrogateescape"))
    return int.from_bytes(state.digest(), "little")


def hashes64(seed: int, purpose: bytes, texts: Iterable[bytes]) -> np.ndarray:
    """The `hash64` of many texts, given as UTF-8: uint64 [n], in half the time."""
    keyed = _keyed(seed, purpose)
    digests = []
    for text in texts:
        state = keyed.copy()
        state.update(text)
        digests.append(state.digest())
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)


@functools.lru_cache(maxsize=64)
def _keyed(seed: int, purpose: bytes) -> hashlib.blake2b:
    # Mixing in the seed takes half the time of hashing a key, so it is done once.
    key = seed.to_bytes(8, "little", signed=True)
    return hashlib.blake2b(digest_size=8, key=key, person=purpose)


MAX_SPLITS = 256  # one byte a record


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
        kept: Whether each record keeps its split, which is in the name of the shard in its key.
    """

    names: tuple[str, ...] = ("train",)
    fractions: tuple[float, ...] = (1.0,)
    kept: bool = False

    @classmethod
    def parse(cls, text: str) -> Splits:
        """Parses the value of `--splits`, such as `train=0.8,val=0.2`.

        Raises:
            UsageError: A name or number is wrong, or the shares do not add up to 1.
        """
        shares: dict[str, float] = {}
        for part in text.split(","):
            name, equals, share = part.strip().partition("=")
            if not equals:
                raise UsageError(
                    f"--splits {text}: expected NAME=SHARE, such as train=0.8,val=0.2; found {part!r}"
                )
            try:
                check_split_name(name)
            except ValueError as error:
                raise UsageError(f"--splits {text}: {part!r} ({error})") from None
            if name in shares:
                raise UsageError(f"--splits {text}: {name!r} is repeated")
            shares[name] = _share(text, part, share)
        if len(shares) > MAX_SPLITS:
            raise UsageError(f"--splits: {len(shares)} splits, at most {MAX_SPLITS} are possible")
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise UsageError(
                f"--splits {text}: the shares add up to {sum(shares.values()):g}, not 1"
            )
        return cls(tuple(shares), tuple(shares.values()))

    @classmethod
    def named(cls, names: Sequence[str], column: str) -> Splits:
        """The splits whose names are the values of a column.

        Raises:
            UsageError: A file name cannot begin with a name, a name is repeated, or there are more
                than `MAX_SPLITS`.
        """
        for name in names:
            try:
                check_split_name(name)
            except ValueError as error:
                raise UsageError(f"--split_column {column}: {error}") from None
        if len(set(names)) < len(names) or len(names) > MAX_SPLITS:
            raise UsageError(
                f"--split_column {column}: expected up to {MAX_SPLITS} names of splits, each once, "
                f"got {len(names)}: {', '.join(names):.200}"
            )
        return cls(tuple(names), (1 / len(names),) * len(names))

    @classmethod
    def of_shards(cls, names: Sequence[str]) -> Splits:
        """The splits of existing shards, which their records keep.

        Raises:
            UsageError: There are more than `MAX_SPLITS`.
        """
        if len(names) > MAX_SPLITS:
            raise UsageError(
                f"--input: the files belong to {len(names)} splits, at most {MAX_SPLITS} are "
                "possible: reshard fewer datasets at once, or give --splits"
            )
        return cls(tuple(names), (1 / len(names),) * len(names), kept=True)

    @property
    def training(self) -> int:
        """The number of the split that vocabularies are learned from: `train`, or the first one."""
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
        return np.searchsorted(np.array(self.edges, np.uint64), hashes, side="right").astype(
            np.uint8
        )

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
                f"{key}: expected a shard of {', '.join(self.names)}; the inputs have changed since "
                "the job began: run it again"
            ) from None


@dataclass(frozen=True)
class Placement:
    """The split and the order of records, as pure functions of their keys.

    Attributes:
        seed: Determines splits and order.
        splits: Names and shares of the splits.
        groups: How records are kept together in one split.
        split_column: The column that names a record's split; if empty, a hash decides.
    """

    seed: int
    splits: Splits
    groups: Groups = field(default_factory=Groups)
    split_column: str = ""

    @property
    def split_features(self) -> set[str]:
        """The columns or features that decide the splits of records together with their keys."""
        return {name for name in (self.groups.column, self.split_column) if name}

    @property
    def deals_groups(self) -> bool:
        """Whether groups are dealt to splits by their sizes, which have to be counted first."""
        return bool(self.groups) and len(self.splits.names) > 1

    def order(self, key: str) -> int:
        """The 64-bit place of a record in the global order."""
        return hash64(self.seed, b"order", key)

    def split(self, group: str) -> int:
        """The index of the split that a group of records falls into."""
        if self.splits.kept:
            return int(self.splits.of_keys([group.encode("utf-8", "surrogateescape")])[0])
        if len(self.splits.names) == 1:
            return 0
        # Called for every record: bisect takes a tenth of the time of an array of one element.
        return bisect_right(self.splits.edges, hash64(self.seed, b"split", group))

    def split_of(self, key: str, row: Mapping[str, Any]) -> int:
        """The index of the split of a record, from its key and its columns.

        Raises:
            RejectError: The row has no valid split or group.
        """
        if not self.split_column:
            return self.split(self.groups.of(key, row))
        name = column_text(row, self.split_column)
        if name not in self.splits.names:
            raise RejectError(
                f"column {self.split_column!r} is {name!r:.80}, --splits has "
                f"{', '.join(self.splits.names)}"
            )
        return self.splits.names.index(name)

    def orders(self, keys: Iterable[bytes]) -> np.ndarray:
        """The `order` of many keys in UTF-8, uint64 [n]."""
        return hashes64(self.seed, b"order", keys)

    def splits_of(self, groups: Sequence[bytes]) -> np.ndarray:
        """The `split` of many groups, uint8 [n]."""
        if self.splits.kept:
            return self.splits.of_keys(groups)
        if len(self.splits.names) == 1:
            return np.zeros(len(groups), np.uint8)
        return self.splits.of(self.group_hashes(groups))

    def group_hashes(self, groups: Iterable[bytes]) -> np.ndarray:
        """The hashes that decide the splits of many groups, uint64 [n]."""
        return hashes64(self.seed, b"split", groups)


def check_seed(seed: int) -> None:
    """Refuses a seed that eight bytes cannot hold.

    Raises:
        UsageError: The seed is not a number from -2**63 to 2**63 - 1.
    """
    if not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise UsageError(f"--seed {seed!r}: expected a number from -2**63 to 2**63 - 1")
