"""Blocks: many records, or references to them, in one Beam element.

A runner spends about 50 microseconds on an element whatever its size, so elements carry many
records. A block crosses the network as bytes of a fixed layout: no pickle, the same everywhere.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# References (a key of about 50 bytes each) in one element: 50 us / 512 is noise, and a small
# dataset still spreads over several workers.
REFERENCES_PER_BLOCK = 512

# Encoded records in one element: large enough that the 50 us vanish beside encoding a megabyte,
# small enough that a grouped shard of them is a stream, far below the runners' 2 GiB limit.
BYTES_PER_BLOCK = 1 << 20


def hash64(seed: int, purpose: bytes, text: str) -> int:
    """A uniform 64-bit hash, the same on every machine: BLAKE2b keyed with the seed.

    Args:
        purpose: At most 16 bytes; hashes for different purposes are independent.
    """
    return int.from_bytes(
        hashlib.blake2b(
            text.encode("utf-8", "surrogateescape"),
            digest_size=8,
            key=seed.to_bytes(8, "little", signed=True),
            person=purpose,
        ).digest(),
        "little",
    )


@dataclass(frozen=True)
class Block:
    """Records of one Beam element, side by side.

    Attributes:
        hashes: uint64 [n], the place of each record in the global order.
        splits: uint8 [n], the index of its split.
        payloads: n byte strings; what they mean is agreed between maker and writer.
    """

    hashes: np.ndarray
    splits: np.ndarray
    payloads: Sequence[bytes]

    def pack(self) -> bytes:
        """The block as bytes."""
        lengths = np.fromiter(map(len, self.payloads), np.uint32, len(self.payloads))
        return b"".join(
            (
                struct.pack("<I", len(self.hashes)),
                self.hashes.astype("<u8").tobytes(),
                lengths.astype("<u4").tobytes(),
                self.splits.tobytes(),
                *self.payloads,
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> Block:
        """The block that `pack` gave."""
        (n,) = struct.unpack_from("<I", data)
        hashes = np.frombuffer(data, "<u8", n, 4)
        lengths = np.frombuffer(data, "<u4", n, 4 + 8 * n)
        splits = np.frombuffer(data, np.uint8, n, 4 + 12 * n)
        ends = (np.cumsum(lengths, dtype=np.int64) + (4 + 13 * n)).tolist()
        starts = [4 + 13 * n, *ends[:-1]]
        payloads = [data[a:b] for a, b in zip(starts, ends, strict=False)]
        return cls(hashes, splits, payloads)

    def take(self, rows: np.ndarray) -> Block:
        """The block of these rows, int [m]."""
        payloads = [self.payloads[row] for row in rows.tolist()]
        return Block(self.hashes[rows], self.splits[rows], payloads)

    def by(self, groups: np.ndarray) -> Iterator[tuple[int, Block]]:
        """Yields (group, the rows of that group); groups is int [n]."""
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        for rows in np.split(order, starts[1:]):
            if rows.size:
                yield int(groups[rows[0]]), self.take(rows)


class BlockBuilder:
    """Collects records into blocks.

    Args:
        max_records, max_bytes: A block is full when it reaches either.
    """

    def __init__(
        self, max_records: int = REFERENCES_PER_BLOCK, max_bytes: int = BYTES_PER_BLOCK
    ) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._clear()

    def _clear(self) -> None:
        self._hashes: list[int] = []
        self._splits: list[int] = []
        self._payloads: list[bytes] = []
        self._bytes = 0

    def add(self, hash_: int, split: int, payload: bytes) -> bytes | None:
        """Adds one record; the packed block when that fills it."""
        self._hashes.append(hash_)
        self._splits.append(split)
        self._payloads.append(payload)
        self._bytes += len(payload)
        if len(self._hashes) >= self._max_records or self._bytes >= self._max_bytes:
            return self.flush()
        return None

    def flush(self) -> bytes | None:
        """The packed block of what is left; None when there is nothing."""
        if not self._hashes:
            return None
        block = Block(
            np.array(self._hashes, np.uint64), np.array(self._splits, np.uint8), self._payloads
        )
        self._clear()
        return block.pack()
