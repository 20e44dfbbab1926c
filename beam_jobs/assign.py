"""Key -> split, shard and order, so that shards of a split differ by at most one record.

Within a split, shards are contiguous ranges of a 64-bit hash of the key. Their boundaries are
exact quantiles, found without sorting everything: a histogram of the top bits says in which bins
the boundaries fall, and only the hashes of those bins are looked at one by one.
"""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from beam_jobs.blocks import Block, hash64, hashes64
from beam_jobs.errors import RejectError, UsageError
from beam_jobs.groups import Groups
from beam_jobs.labels import column_text
from readers.format.manifest import check_split_name

# 2**16 counts are 512 KiB a split: small as a side input, and of a billion keys 15,000 a bin.
BIN_BITS = 16
BINS = 1 << BIN_BITS
_BIN_SHIFT = np.uint64(64 - BIN_BITS)

MAX_SPLITS = 256  # one byte a record
MAX_SHARDS = 99_999  # five digits in a shard's name
SHARD_BITS = 17  # which hold them

# What to do where two records have one key.
ONE_KEY = (
    "every record needs a key of its own; do two --input patterns match the same file, has an "
    "archive two members of one name, or name two rows of a --table the same file (--key row tells "
    "them apart)?"
)


@dataclass(frozen=True)
class Splits:
    """The splits asked for and their shares.

    Attributes:
        names: In the order given.
        fractions: Of the groups, as many as names; they add up to 1.
    """

    names: tuple[str, ...] = ("train",)
    fractions: tuple[float, ...] = (1.0,)

    @classmethod
    def parse(cls, text: str) -> Splits:
        """The splits of a `--splits` flag such as `train=0.8,val=0.2`.

        Raises:
            UsageError: A name or number is wrong, or the shares do not add up to 1.
        """
        shares: dict[str, float] = {}
        for part in text.split(","):
            name, equals, share = part.strip().partition("=")
            if not equals:
                raise UsageError(f"--splits {text}: expected NAME=SHARE, found {part!r}")
            try:
                value = float(share)
                check_split_name(name)
            except ValueError as error:
                raise UsageError(f"--splits {text}: {part!r} ({error})") from None
            if name in shares or not 0 < value <= 1:
                raise UsageError(
                    f"--splits {text}: {part!r} is not a new name with a share in 0..1"
                )
            shares[name] = value
        if len(shares) > MAX_SPLITS:
            raise UsageError(f"--splits: {len(shares)} splits, at most {MAX_SPLITS} are possible")
        if abs(sum(shares.values()) - 1) > 1e-6:
            raise UsageError(
                f"--splits {text}: the shares add up to {sum(shares.values()):g}, not 1"
            )
        return cls(tuple(shares), tuple(shares.values()))

    @classmethod
    def named(cls, names: Sequence[str], column: str) -> Splits:
        """The splits of a column that names them.

        Raises:
            UsageError: A name cannot be the beginning of a file's or is given twice, or there are
                too many.
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

    @property
    def training(self) -> int:
        """The split from which vocabularies are learned: `train`, or the first one."""
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


@dataclass(frozen=True)
class Placement:
    """Where a record belongs, as a pure function of its key.

    Attributes:
        seed: Other seeds give other splits and another order.
        splits: The splits and their shares.
        groups: What keeps records in one split.
        split_column: The column that names the split of a record; empty to draw it.
    """

    seed: int
    splits: Splits
    groups: Groups = field(default_factory=Groups)
    split_column: str = ""

    def order(self, key: str) -> int:
        """The 64-bit place of a record in the global order."""
        return hash64(self.seed, b"order", key)

    def split(self, group: str) -> int:
        """The index of the split that a group of records falls into."""
        if len(self.splits.names) == 1:
            return 0
        # One at a time, for every record: bisect takes a tenth of the time of an array of one.
        return bisect_right(self.splits.edges, hash64(self.seed, b"split", group))

    def split_of(self, key: str, row: Mapping[str, Any]) -> int:
        """The index of the split of a record.

        Args:
            row: Its columns.

        Raises:
            RejectError: The row does not tell it, or its group.
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
        """The `order` of many records by their keys in UTF-8, uint64 [n]."""
        return hashes64(self.seed, b"order", keys)

    def splits_of(self, groups: Sequence[bytes]) -> np.ndarray:
        """The `split` of many groups, uint8 [n]."""
        if len(self.splits.names) == 1:
            return np.zeros(len(groups), np.uint8)
        return self.splits.of(self.group_hashes(groups))

    def group_hashes(self, groups: Iterable[bytes]) -> np.ndarray:
        """The hashes that decide the splits of many groups, uint64 [n]."""
        return hashes64(self.seed, b"split", groups)


def check_seed(seed: int) -> None:
    """Refuses a seed that eight bytes cannot hold.

    Raises:
        UsageError: It is none of -2**63 to 2**63 - 1.
    """
    if not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise UsageError(f"--seed {seed!r}: expected a number from -2**63 to 2**63 - 1")


def bin_counts(hashes: np.ndarray) -> np.ndarray:
    """The histogram of the top bits of uint64 hashes [n], int64 [BINS]."""
    return np.bincount((hashes >> _BIN_SHIFT).astype(np.int64), minlength=BINS)


def bins_of(hashes: np.ndarray) -> np.ndarray:
    """The bin of each hash, int64 [n]."""
    return (hashes >> _BIN_SHIFT).astype(np.int64)


def first_ranks(records: int, shards: int) -> list[int]:
    """The rank of the first record of every shard but shard 0: `records` dealt out to ±1."""
    return [records * shard // shards for shard in range(1, shards)]


def shard_sizes(records: int, shards: int) -> list[int]:
    """How many records each shard holds."""
    edges = [0, *first_ranks(records, shards), records]
    return [b - a for a, b in itertools.pairwise(edges)]


def boundary_ranks(counts: np.ndarray, shards: int) -> dict[int, list[int]]:
    """Which bins hold shard boundaries: bin -> ranks within it, rising.

    Args:
        counts: int64 [BINS], records of the split in each bin.
        shards: Of the split, at most its records.
    """
    ends = np.cumsum(counts)
    ranks = np.array(first_ranks(int(ends[-1]), shards), np.int64)
    bins = np.searchsorted(ends, ranks, side="right")
    within = ranks - (ends[bins] - counts[bins])
    wanted: dict[int, list[int]] = {}
    for bin_, rank in zip(bins.tolist(), within.tolist(), strict=True):
        wanted.setdefault(bin_, []).append(rank)
    return wanted


@dataclass(frozen=True)
class SplitPlan:
    """How the records of one split become shards.

    Attributes:
        records: To be written.
        rejected: Known before writing not to become records.
        record_bytes: About how many a record has, framing included.
        shards: How many; 0 when there are no records.
        boundaries: uint64 [shards - 1], the smallest hash of every shard but the first.
    """

    records: int
    rejected: int
    record_bytes: int
    shards: int
    boundaries: np.ndarray

    def shard_of(self, hashes: np.ndarray) -> np.ndarray:
        """The shard of each hash, int64 [n]."""
        return np.searchsorted(self.boundaries, hashes, side="right")


@dataclass(frozen=True)
class Plan:
    """Where everything goes: one `SplitPlan` for every split, in order."""

    splits: tuple[SplitPlan, ...]

    def pack(self) -> bytes:
        """The plan as bytes."""
        head = json.dumps(
            [[s.records, s.rejected, s.record_bytes, s.shards] for s in self.splits]
        ).encode()
        return b"\n".join(
            (head, b"".join(s.boundaries.astype("<u8").tobytes() for s in self.splits))
        )

    @classmethod
    def unpack(cls, data: bytes) -> Plan:
        """The plan that `pack` gave."""
        head, _, tail = data.partition(b"\n")
        boundaries = np.frombuffer(tail, "<u8")
        splits, at = [], 0
        for records, rejected, record_bytes, shards in json.loads(head):
            end = at + max(shards - 1, 0)
            splits.append(SplitPlan(records, rejected, record_bytes, shards, boundaries[at:end]))
            at = end
        return cls(tuple(splits))


def assign_shards(block: Block, plan: Plan) -> Iterator[tuple[int, Block]]:
    """Yields (split and shard in one number, the records of that shard)."""
    keys = block.splits.astype(np.int64) << SHARD_BITS
    for split in np.unique(block.splits).tolist():
        rows = block.splits == split
        keys[rows] |= plan.splits[split].shard_of(block.hashes[rows])
    yield from block.by(keys)


def count_shards(records: int, record_bytes: float, num_shards: int, shard_size: int) -> int:
    """How many shards a split gets: `num_shards`, or 0 to choose by size; no empty ones.

    Args:
        record_bytes: Mean size of a record in its file.
        shard_size: Bytes that a shard should not exceed by much.
    """
    wanted = num_shards or max(1, math.ceil(records * record_bytes / shard_size))
    return min(wanted, records, MAX_SHARDS)


def parse_size(text: str) -> int:
    """Bytes of `128MiB`, `1GB`, `500k` or `1000`.

    Raises:
        UsageError: It is no such size, or not positive.
    """
    units = {
        "": 1,
        "k": 1000,
        "m": 1000**2,
        "g": 1000**3,
        "ki": 1 << 10,
        "mi": 1 << 20,
        "gi": 1 << 30,
    }
    digits = text.strip().lower().removesuffix("b")
    unit = digits.lstrip("0123456789.")
    try:
        size = int(float(digits.removesuffix(unit)) * units[unit])
    except (KeyError, ValueError, OverflowError):
        size = 0
    if size <= 0:
        raise UsageError(f"--shard_size {text}: expected a size such as 128MiB or 500MB")
    return size
