"""Blocks: many records, or references to them, in one Beam element.

A runner spends about 50 microseconds on an element of any size, so elements carry many records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_jobs.columns import Ragged, pack, unpack
from beam_jobs.records.rejects import Reject
from readers.format.tfrecord import FRAME_BYTES

# Hashes (of 13 bytes, without payloads) in one element: 416 KiB.
HASHES_PER_BLOCK = 1 << 15

# A payload of encoded records is a framed Example, its row of the index and its key; or a mark followed by a
# reject as JSON. The marks take the place of the length of a record, and no record is that long.
_REJECTED = b"\xff" * 8

_PLANNED = b"\xfe" + b"\xff" * 7


def grouped(keys: np.ndarray, values: np.ndarray) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields (key, its values in their order) by ascending keys, given keys [n] of any dtype and values [n]."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    if len(keys):
        firsts = ordered[np.append(0, starts)].tolist()
        yield from zip(firsts, np.split(values[order], starts), strict=True)


@dataclass(frozen=True)
class Block:
    """The n records of one Beam element.

    Attributes:
        hashes: uint64 [n], each record's position in the global order.
        splits: uint8 [n], the index of each record's split.
        payloads: n byte strings: references or encoded records.
    """

    hashes: np.ndarray
    splits: np.ndarray
    payloads: Ragged

    def pack(self, compress: bool = False) -> bytes:
        """The block as bytes.

        Hashes are not compressed. References of neighbours shrink to a third, and a runner in one process keeps
        several copies of them.
        """
        return pack(self.hashes, self.splits, self.payloads, compress=compress)

    @classmethod
    def unpack(cls, data: bytes) -> Block:
        """The block that `pack` packed."""
        return cls(*unpack(data))

    def without_payloads(self) -> Block:
        """The block with empty payloads, which is enough to plan."""
        return Block(self.hashes, self.splits, Ragged(np.zeros(len(self.hashes), np.uint32), b""))

    @classmethod
    def join(cls, blocks: Sequence[Block]) -> Block:
        """The block of the records of some blocks, one or more."""
        payloads = Ragged(
            np.concatenate([block.payloads.lengths for block in blocks]),
            b"".join([block.payloads.data for block in blocks]),
        )
        hashes = np.concatenate([block.hashes for block in blocks])
        return cls(hashes, np.concatenate([block.splits for block in blocks]), payloads)

    def pieces(self, size: int) -> Iterator[Block]:
        """Yields blocks of consecutive records, in order, whose payloads begin in `size` bytes each."""
        starts = self.payloads.ends - self.payloads.lengths
        yield from (piece for _, piece in self.by(starts // size))

    def parts(self, records: int) -> Iterator[Block]:
        """Yields the block in parts of at most some number of records."""
        yield from (part for _, part in self.by(np.arange(len(self.hashes)) // records))

    def take(self, rows: np.ndarray) -> Block:
        """The block of some rows, int [m]."""
        return Block(self.hashes[rows], self.splits[rows], self.payloads.take(rows))

    def by(self, groups: np.ndarray) -> Iterator[tuple[int, Block]]:
        """Yields (group, block of its rows); `groups` is int [n]."""
        for group, rows in grouped(groups, np.arange(len(groups))):
            yield group, self.take(rows)


def pack_reject(reject: Reject, planned: bool = False) -> bytes:
    """The payload of a reject, which the plan may count."""
    return (_PLANNED if planned else _REJECTED) + reject.to_json().encode()


def is_reject(payload: bytes) -> bool:
    """Whether a payload is a reject that the plan does not count."""
    return payload.startswith(_REJECTED)


def is_planned(payload: bytes) -> bool:
    """Whether a payload is a reject that the plan counts as a record."""
    return payload.startswith(_PLANNED)


def unpack_reject(payload: bytes) -> Reject:
    """The reject in a payload."""
    return Reject.from_json(payload[len(_REJECTED) :])


def frame_checksums(payloads: Ragged, sizes: np.ndarray) -> np.ndarray:
    """The masked CRC32C at the end of the frame of each payload, uint32 [n], given the sizes of frames, int64 [n]."""
    stops = payloads.ends - payloads.lengths + sizes
    octets = np.frombuffer(payloads.data, np.uint8)
    return octets[stops[:, None] + np.arange(-4, 0)].view("<u4").reshape(-1)


def frame_lengths(payloads: Ragged) -> np.ndarray:
    """Size of the frame at the beginning of each payload, in bytes, int64 [n]; 0 for a reject."""
    starts = payloads.ends - payloads.lengths
    octets = np.frombuffer(payloads.data, np.uint8)
    heads = octets[starts[:, None] + np.arange(8)].view("<u8").reshape(-1)
    rejected = heads >= np.uint64(2**64 - 2)
    return np.where(rejected, 0, heads.astype(np.int64) + FRAME_BYTES)
