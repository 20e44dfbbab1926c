"""Near duplicates, second half: compares the probes of candidates, and counts near pairs.

The probe of the first of each pair is sent to the block of the second, where both are compared, so no worker needs
more than the probes of a block. The steps of a search must receive as many elements as earlier ones hand over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_jobs.columns import pack, unpack
from beam_jobs.errors import loss_error
from beam_jobs.plan.equality import Similarity
from beam_jobs.plan.near_keys import PAIR, Probes, duplicate_key
from beam_jobs.plan.summary import Summary
from beam_jobs.records.blocks import grouped
from beam_jobs.records.pieces import PIECE_BYTES

# Pairs to compare at a time: their probes as float64 take 16 MiB.
_AT_ONCE = 1 << 13

# The elements that steps hand over.
CHUNKS, KEYS, PAIRS = "chunks of files", "keys of sketches", "pairs of records"
PROBES = "probes of records"


class NearPairs(NamedTuple):
    """Near duplicates whose second is in one block.

    Attributes:
        second: int64 [pairs], rows of the block, in ascending order.
        kept_out: bool [pairs], whether the first is a record of `--keep_out`.
    """

    second: np.ndarray
    kept_out: np.ndarray


def only_one(name: bytes, probes: Sequence[Probes], needed: bool) -> Probes | None:
    """The probes of a block, which arrive once if they are needed; DataError if the runner lost them.

    They arrive twice if two tasks have one id, which is a UsageError: their records have the same keys.
    """
    if len(probes) > 1:
        raise duplicate_key(probes[0].owner)
    if needed and not probes:
        raise loss_error(f"a block of sketches ({name.hex()})")
    return probes[0] if probes else None


def sent(probes: Probes, pairs: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yields (block, rows of it and the earlier records to compare them with, for `near_pairs`).

    The arguments are the probes of the first's block, and the packed `PAIR`s from all partitions. A pair that several
    partitions have found is sent once.
    """
    every = np.unique(np.frombuffer(b"".join(pairs), f"V{PAIR.itemsize}")).view(PAIR)
    # In addition to a probe: the row of the later record, and whether the earlier one is kept out.
    step = max(1, PIECE_BYTES // (probes.rows.shape[1] + 5))
    for block, to_block in grouped(every["block"], every):
        for start in range(0, len(to_block), step):
            some = to_block[start : start + step]
            kept_out = np.full(len(some), probes.kept_out)
            yield block, pack(some["second"], kept_out, probes.rows[some["first"]])


def near_pairs(probes: Probes, arrived: Iterable[bytes], likeness: Similarity) -> NearPairs:
    """The near pairs whose second is in a block, given its probes and the results of `sent` for it."""
    none = np.empty(0, np.uint32), np.empty(0, bool), probes.rows[:0]
    columns = zip(none, *map(unpack, arrived), strict=True)
    second, kept_out, rows = (np.concatenate(parts) for parts in columns)
    second = second.astype(np.int64)
    order = np.argsort(second, kind="stable")
    near = [np.empty(0, np.int64)]
    for start in range(0, len(order), _AT_ONCE):
        some = order[start : start + _AT_ONCE]
        near.append(some[likeness.near(rows[some], probes.rows[second[some]])])
    some = np.concatenate(near)
    return NearPairs(second[some], kept_out[some])


@dataclass
class NearTally:
    """Counts of a search for near duplicates.

    Attributes:
        records: The number of the job's records, with or without a sketch.
        dropped: The number of dropped records.
        sent, received: Kind of element that steps hand over -> how many.
    """

    records: int = 0
    dropped: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)

    def merge(self, other: NearTally) -> None:
        """Adds the counts of another instance."""
        self.records += other.records
        self.dropped += other.dropped
        self.sent.update(other.sent)
        self.received.update(other.received)

    def check(self, records: int) -> None:
        """Checks the number of compared records, and that everything handed over was received; DataError if not."""
        for what in (CHUNKS, KEYS, PAIRS, PROBES):
            if self.received[what] != self.sent[what]:
                raise loss_error(what, self.received[what], self.sent[what])
        if self.records != records:
            raise loss_error("records to compare", self.records, records)


def check_near(summary: Summary, tallies: Sequence[NearTally]) -> None:
    """Checks that all records of a summary were compared, and that it counts dropped ones; DataError if not.

    Each search for duplicates has a tally, in order: it compares the records that earlier searches left.
    """
    left = summary.texts
    for tally in tallies:
        tally.check(left)
        left -= tally.dropped
    dropped = sum(split.duplicates for split in summary.splits)
    if tallies and summary.texts - left != dropped:
        raise loss_error("duplicates to drop", dropped, summary.texts - left)
