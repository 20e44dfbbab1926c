"""Compares the probes of candidates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from beam_jobs.errors import loss_error
from beam_jobs.plan.near.blocks import Probes, duplicate_key
from beam_jobs.plan.near.candidates import PAIR
from beam_jobs.records.pieces import PIECE_BYTES
from readers.format.similarity.likeness import Similarity


class NearPairs(NamedTuple):
    """Near duplicates whose second is in one block.

    Attributes:
        second: int64 [pairs], rows of the block, in ascending order.
        owner: object [pairs], the owner of the first.
        first: int64 [pairs], its number there.
        split: uint8 [pairs], its split.
        kept_out: bool [pairs], whether it is a record to keep out.
    """

    second: np.ndarray
    owner: np.ndarray
    first: np.ndarray
    split: np.ndarray
    kept_out: np.ndarray


def _sent_type(probe_bytes: int) -> np.dtype:
    """A record that is sent to the block of the second of its pair."""
    numbers = [("second", "<u4"), ("first", "<i8"), ("split", "u1"), ("kept_out", "?")]
    return np.dtype([*numbers, ("probe", "u1", (probe_bytes,))])


class Sent(NamedTuple):
    """Records of a block that are sent to the block of the second of their pairs.

    Attributes:
        owner: The id of their task.
        probe_bytes: The size of a probe.
        rows: Packed.
    """

    owner: str
    probe_bytes: int
    rows: bytes


def sent(probes: Probes, pairs: Iterable[bytes]) -> Iterator[tuple[bytes, Sent]]:
    """Yields (block, earlier records to compare with its records).

    A pair that several partitions have found is sent once.

    Args:
        probes: The probes of the first's block.
        pairs: Packed `PAIR`s from all partitions.
    """
    every = np.unique(np.frombuffer(b"".join(pairs), f"V{PAIR.itemsize}")).view(PAIR)
    rows, splits = probes.rows(), np.frombuffer(probes.splits, np.uint8)
    table = np.zeros(len(every), _sent_type(rows.shape[1]))
    numbers = np.frombuffer(probes.numbers, "<i8")
    table["second"], table["first"] = every["second"], numbers[every["first"]]
    table["split"], table["kept_out"] = splits[every["first"]], probes.kept_out
    table["probe"] = rows[every["first"]]
    order = np.argsort(every["block"], kind="stable")
    found, starts = np.unique(every["block"][order], return_index=True)
    step = max(1, PIECE_BYTES // table.itemsize)
    for block, some in zip(found, np.split(table[order], starts[1:]), strict=False):
        for start in range(0, len(some), step):
            data = some[start : start + step].tobytes()
            yield block.tobytes(), Sent(probes.owner, rows.shape[1], data)


def near_pairs(probes: Probes, arrived: Iterable[Sent], likeness: Similarity) -> NearPairs:
    """The pairs of which both are near, of those whose second is in a block.

    Args:
        probes: The probes of the block.
        arrived: The records that `sent` has sent to it.
        likeness: Decides.
    """
    rows = probes.rows()
    kind = _sent_type(rows.shape[1])
    # In an order of their own, so that examples are the same in every run.
    found = sorted(arrived)
    tables = [np.frombuffer(some.rows, kind) for some in found]
    owners = np.array([some.owner for some in found], object)
    owner = np.repeat(owners, [len(table) for table in tables])
    table = np.concatenate([np.empty(0, kind), *tables])
    order = np.argsort(table["second"], kind="stable")
    table, owner = table[order], owner[order]
    near = [np.empty(0, bool)]
    for start in range(0, len(table), _AT_ONCE):
        part = table[start : start + _AT_ONCE]
        near.append(likeness.near(part["probe"], rows[part["second"]]))
    kept = np.concatenate(near)
    table = table[kept]
    return NearPairs(
        table["second"].astype(np.int64),
        owner[kept],
        table["first"],
        table["split"],
        table["kept_out"],
    )


# Pairs that are compared at a time: their probes as float64 take 16 MiB.
_AT_ONCE = 1 << 13


def only_one(name: bytes, found: list[Probes], wanted: bool) -> Probes | None:
    """The probes of a block, which are there once if they are wanted.

    Raises:
        UsageError: Two tasks have one id, so their records have the same keys.
        DataError: The runner lost them.
    """
    if len(found) > 1:
        raise duplicate_key(found[0].owner)
    if wanted and not found:
        raise loss_error(f"a block of sketches ({name.hex()})")
    return found[0] if found else None
