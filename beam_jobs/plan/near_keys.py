"""Near duplicates, first half: the pairs of records that share a key of their sketches, and may be near.

The sketches of a few hundred or thousand records are a block. Records that share a key meet in a partition and become
candidates, in pairs, which `near_pairs.py` compares. So no worker needs more than the keys of a partition.

Each record is paired with earlier ones: those of `--keep_out`, then those with a smaller place in the global order.
If many records have one key, each is compared only with the first few, the fewer the more records there are, so that
the work grows with the number of records and not with its square. Equal records are compared only with the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.plan.equality import Equality, Similarity
from beam_jobs.plan.shards import ONE_KEY
from beam_jobs.records.blocks import grouped
from beam_jobs.records.pieces import PIECE_BYTES
from readers.format.similarity.likeness import Sketches
from readers.format.similarity.pairs import pairs_in_runs, popcount

# The bytes of a block's name.
_NAME_BYTES = 16

# Partitions of each band, so that a billion texts have 750 MB in each.
PARTS = 32

# A key of a record in a partition.
ROW = np.dtype([("key", "<u4"), ("digest", "<u8"), ("order", "<u8"), ("row", "<u4")])

# A pair: the rows of both in their blocks, and the name of the second's block.
PAIR = np.dtype([("first", "<u4"), ("second", "<u4"), ("block", f"V{_NAME_BYTES}")])

# The bytes of a record in an element without its probe.
_RECORD_BYTES = 8

# Up to this many records with one key are all paired. If there are more, each is paired with the first ones, so
# many that the number of pairs stays the same, but at least `_FEWEST`.
_EACH = 2048
_MOST_PAIRS = 1 << 22
_FEWEST = 64

# The pairs of a record, and of all records with one key, whose probes are compared.
_CHOSEN, _ALL_CHOSEN = 32, 4096


def duplicate_key(task: str) -> UsageError:
    """The error about two records with one key, one of them in a task, given the task's id."""
    first, _, _ = task.rpartition("#")
    return UsageError(f"duplicate key of a record in {first} or soon after it: {ONE_KEY}")


@dataclass(frozen=True)
class Probes:
    """The probes of n records of a task.

    Attributes:
        owner: The id of the task from which the records are dropped.
        kept_out: Whether they are records of `--keep_out`, which are not dropped themselves.
        numbers: int64 [n], the number of each in its owner.
        rows: uint8 [n, bytes], the probe of each.
    """

    owner: str
    kept_out: bool
    numbers: np.ndarray
    rows: np.ndarray


class Keys(NamedTuple):
    """The keys of the records of a block in a partition: its name, the facts of its `Probes`, and packed `ROW`s."""

    block: bytes
    owner: str
    kept_out: bool
    rows: bytes


@dataclass(frozen=True)
class SketchBlock:
    """The sketches of some records of a task, or of a block of references.

    Attributes:
        name: Differs from block to block of a job.
        probes: The values with which records are compared.
        orders: uint64 [n], the place of each record in the global order.
        keys, known, digests: As in `Sketches`.
    """

    name: bytes
    probes: Probes
    orders: np.ndarray
    keys: np.ndarray
    known: np.ndarray
    digests: np.ndarray

    def partitions(self) -> Iterator[tuple[int, Keys]]:
        """Yields (number of a partition, the keys in it)."""
        for band in range(self.keys.shape[1]):
            there = np.flatnonzero(self.known[:, band])
            rows = np.zeros(len(there), ROW)
            rows["key"] = self.keys[there, band]
            rows["digest"] = self.digests[there]
            rows["order"] = self.orders[there]
            rows["row"] = there
            for part, some in grouped(rows["key"] % PARTS, rows):
                keys = self.name, self.probes.owner, self.probes.kept_out, some.tobytes()
                yield band * PARTS + part, Keys(*keys)


def sketch_blocks(
    owner: str,
    numbers: np.ndarray,
    orders: np.ndarray,
    sketches: Sketches,
    kept_out: bool = False,
) -> Iterator[SketchBlock]:
    """Yields blocks of records whose elements stay within the limit of size; arguments as in `SketchBlock`."""
    step = max(1, PIECE_BYTES // (sketches.probes.shape[1] + _RECORD_BYTES))
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        text = f"{'kept out' if kept_out else 'job'} {owner}#{numbers[start]}"
        name = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=_NAME_BYTES)
        its_numbers = numbers[part].astype(np.int64, copy=False)
        probes = Probes(owner, kept_out, its_numbers, sketches.probes[part])
        columns = (orders, sketches.keys, sketches.known, sketches.digests)
        yield SketchBlock(name.digest(), probes, *(column[part] for column in columns))


def candidates(
    partition: Iterable[Keys], first_band: bool, likeness: Similarity, drops: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yields (name of the first's block, packed `PAIR`s).

    Args:
        partition: The keys of all records in a partition.
        first_band: Whether it is a partition of the first band, the only one that pairs equal records.
        likeness: The measure of similarity.
        drops: Whether records of the job are compared with each other, not only with those of `--keep_out`.

    Raises:
        UsageError: Two records have the same key.
    """
    blocks, distance = sorted(partition), likeness.distance
    tables = [np.frombuffer(block.rows, ROW) for block in blocks]
    rows = np.concatenate([np.empty(0, ROW), *tables])
    owners = np.repeat(np.arange(len(blocks)), [len(table) for table in tables])
    of_job = np.array([not block.kept_out for block in blocks], bool)[owners]
    equal = isinstance(likeness, Equality)
    columns = [rows["order"], of_job]
    columns.insert(2 if equal else 0, rows["digest"])
    order = np.lexsort((*columns, rows["key"]))
    rows, owners, of_job = rows[order], owners[order], of_job[order]
    keys, digests, orders = rows["key"], rows["digest"], rows["order"]

    def near(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        may_be = of_job[j] if drops else of_job[j] & ~of_job[i]
        if distance >= 0:
            may_be &= popcount(digests[i] ^ digests[j]) <= distance
        return may_be if first_band else may_be & (digests[i] != digests[j])

    first, second = _firsts(keys, digests) if equal else _chosen(keys, near)
    same_key = (orders[first] == orders[second]) & of_job[first] & of_job[second]
    if same_key.any():
        raise duplicate_key(min(blocks[owner].owner for owner in owners[second[same_key]]))
    pairs = np.empty(len(first), PAIR)
    pairs["first"], pairs["second"] = rows["row"][first], rows["row"][second]
    names = np.array([block.block for block in blocks] or [b""], f"V{_NAME_BYTES}")
    pairs["block"] = names[owners[second]]
    step = PIECE_BYTES // PAIR.itemsize
    for owner, some in grouped(owners[first], pairs):
        for start in range(0, len(some), step):
            yield blocks[owner].block, some[start : start + step].tobytes()


def _firsts(keys: np.ndarray, digests: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of pairs of equal records, sorted by digest: the first of each and, in turn, all others."""
    is_equal = (keys[1:] == keys[:-1]) & (digests[1:] == digests[:-1])
    starts = np.concatenate([[True], ~is_equal])[: len(keys)]
    first = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    second = np.flatnonzero(~starts)
    return first[second], second


def _chosen(
    keys: np.ndarray, near: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Places i < j of the pairs to compare, in sorted rows."""
    same = keys[1:] == keys[:-1]
    starts = np.flatnonzero(np.concatenate([[True], ~same]))[: len(keys)]
    sizes = np.diff(np.concatenate([starts, [len(keys)]]))
    sizes_of = np.repeat(sizes, sizes)
    most = np.clip(_ALL_CHOSEN // np.maximum(sizes_of, 1), 1, _CHOSEN)
    counts_of = np.zeros(len(keys), np.int64)
    firsts, seconds = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    small = same & (sizes_of[1:] <= _EACH) if len(keys) else same
    for i, j in _pairs(small, starts, sizes):
        may_be = near(i, j)
        i, j = i[may_be], j[may_be]
        # Limit the pairs of each record: the number of a pair among those of the same second.
        by_second = np.lexsort((i, j))
        i, j = i[by_second], j[by_second]
        begins = np.flatnonzero(np.concatenate([[True], j[1:] != j[:-1]]))[: len(j)]
        counts = np.diff(np.concatenate([begins, [len(j)]]))
        numbers = np.arange(len(j)) - np.repeat(begins, counts) + counts_of[j]
        few = numbers < most[j]
        counts_of[j[begins]] += counts
        firsts.append(i[few])
        seconds.append(j[few])
    return np.concatenate(firsts), np.concatenate(seconds)


def _pairs(
    small: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields all pairs of runs of up to `_EACH`, and the pairs with the first records of larger runs."""
    if len(small):
        yield from pairs_in_runs(small)
    for start, size in zip(starts[sizes > _EACH], sizes[sizes > _EACH], strict=True):
        for place in range(int(np.clip(_MOST_PAIRS // size, _FEWEST, _EACH))):
            later = np.arange(start + place + 1, start + size)
            yield np.full(len(later), start + place), later
