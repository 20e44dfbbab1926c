"""Blocks of sketches, and how they are cut into elements."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import UsageError
from beam_jobs.records.pieces import PIECE_BYTES
from readers.format.similarity.likeness import Sketches

# The bytes of a block's name.
NAME_BYTES = 16

# Of each band, so that a billion texts have 750 MB in each.
PARTS = 32

# A key of a record in a partition.
ROW = np.dtype([("key", "<u4"), ("digest", "<u8"), ("order", "<u8"), ("row", "<u4")])

# Bytes of a record in an element besides its probe.
_RECORD_BYTES = 9


def duplicate_key(task: str) -> UsageError:
    """The error of two records with one key, of which one is in a task, given its id."""
    first, _, _ = task.rpartition("#")
    return UsageError(
        f"duplicate key of a record in {first} or soon after it: every record needs a key of its own; "
        "do two --input patterns match the same file, or do two rows of a --table name it (--key row "
        "tells them apart)?"
    )


class Probes(NamedTuple):
    """The probes of the records of a block, as one element.

    Attributes:
        owner: The id of the task that the records are dropped from.
        kept_out: Whether they are records to keep out, which are not dropped themselves.
        numbers: int64 [n] as bytes, the number of each in its owner.
        splits: uint8 [n] as bytes, the split of each.
        probes: uint8 [n, bytes] as bytes.
    """

    owner: str
    kept_out: bool
    numbers: bytes
    splits: bytes
    probes: bytes

    def rows(self) -> np.ndarray:
        """The probes, uint8 [n, bytes]."""
        count = len(self.splits)
        return np.frombuffer(self.probes, np.uint8).reshape(count, -1)


@dataclass(frozen=True)
class SketchBlock:
    """The sketches of some records of a task, or of a block of references.

    Attributes:
        name: Differs from block to block of a job.
        probes: The element that decides about the records.
        orders: uint64 [n], the place of each record in the global order.
        keys, known, digests: As in `Sketches`.
    """

    name: bytes
    probes: Probes
    orders: np.ndarray
    keys: np.ndarray
    known: np.ndarray
    digests: np.ndarray

    def partitions(self) -> Iterator[tuple[int, bytes]]:
        """Yields (number of a partition, packed `ROW`s of the records with a key in it)."""
        for band in range(self.keys.shape[1]):
            there = np.flatnonzero(self.known[:, band])
            rows = np.zeros(len(there), ROW)
            rows["key"] = self.keys[there, band]
            rows["digest"] = self.digests[there]
            rows["order"] = self.orders[there]
            rows["row"] = there
            parts = rows["key"] % PARTS
            order = np.argsort(parts, kind="stable")
            found, starts = np.unique(parts[order], return_index=True)
            for part, some in zip(found.tolist(), np.split(rows[order], starts[1:]), strict=False):
                yield band * PARTS + part, some.tobytes()


def sketch_blocks(
    owner: str,
    numbers: np.ndarray,
    orders: np.ndarray,
    splits: np.ndarray,
    sketches: Sketches,
    kept_out: bool = False,
) -> Iterator[SketchBlock]:
    """Yields blocks of records, so small that each of their elements is within the limit.

    Args:
        owner: The id of the task that the records are dropped from.
        numbers: int64 [n], the number of each record in its owner.
        orders: uint64 [n], its place in the global order.
        splits: uint8 [n], its split.
        sketches: Its sketch.
        kept_out: Whether they are records to keep out.
    """
    step = max(1, PIECE_BYTES // (sketches.probes.shape[1] + _RECORD_BYTES))
    for start in range(0, len(numbers), step):
        part = slice(start, start + step)
        named = f"{'kept out' if kept_out else 'job'} {owner}#{numbers[start]}"
        name = hashlib.blake2b(named.encode("utf-8", "surrogateescape"), digest_size=NAME_BYTES)
        probes = Probes(
            owner,
            kept_out,
            numbers[part].astype("<i8").tobytes(),
            splits[part].astype(np.uint8).tobytes(),
            sketches.probes[part].tobytes(),
        )
        columns = (sketches.keys, sketches.known, sketches.digests)
        yield SketchBlock(name.digest(), probes, orders[part], *(each[part] for each in columns))
